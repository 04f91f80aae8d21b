# SPDX-License-Identifier: Apache-2.0
"""HLO text of one instruction: opcode, shapes with bytes and memory space, participants of a collective.

    %name = f32[8,128]{1,0:T(8,128)S(5)} opcode(f32[] %operand), channel_id=1, replica_groups=[4,2]<=[8]

Notation: openxla.org/xla/operation_semantics and hlo_to_llvm; layouts: openxla.org/xla/tiled_layout.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Final

import msgspec
import numpy as np

from cclbench.classify import element_bytes
from cclbench.ground.intervals import Int64

MOST_DEVICES: Final = 1 << 20
"""Most participants of a collective; a longer list is taken for damage."""
HOST_MEMORY: Final = 5
"""Memory space S(5) of a layout: host memory."""
_MOST_AXES: Final = 32

Groups = tuple[tuple[int, ...], ...]

_HEAD: Final = re.compile(r"(?:ROOT )?%?(?P<name>[^\s=]+) = ")
_OPCODE: Final = re.compile(r" ?([a-z][\w-]*)\(")
_SHAPE: Final = re.compile(r"\b([a-z][a-z0-9]*)\[([^\]]*)\](?:\{([^}]*)\})?")
_SPACE: Final = re.compile(r"S\((\d+)\)")
_PACKED: Final = re.compile(r"E\((\d+)\)")
_SUB_BYTE: Final = re.compile(r"[suf][1-7](?:e.*)?")
_NESTING: Final = re.compile(r"[(){}\[\],]")
_LISTED: Final = re.compile(r"replica_groups=\{((?:\{[\d, ]*\},? ?)*)\}")
_IOTA: Final = re.compile(r"replica_groups=\[([\d,]+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?")
_MESH: Final = re.compile(
    r"replica_groups=mesh\[([^\]]*)\](?:, device_ids=\(((?:\[[^)]*\))?[^)]*)\))? \{([^}]*)\}"
)
_TILES: Final = re.compile(r"\[([\d,]+)\](?:T\(([\d,]+)\))?")
_PAIRS: Final = re.compile(r"source_target_pairs=\{((?:\{\d+, ?\d+\},? ?)*)\}")
_CHANNEL: Final = re.compile(r"channel_id=\d")


class Shape(msgspec.Struct, frozen=True):
    """An array: HLO element type, bytes (None if a dimension is unknown), memory space."""

    dtype: str
    bytes: int | None
    space: int = 0


class Participants(msgspec.Struct, frozen=True):
    """Participants of a collective, as numbers of replicas, partitions or both."""

    groups: Groups | None = None
    """() if all are one group; None if unknown or invalid."""
    pairs: tuple[tuple[int, int], ...] = ()
    """(source, target) pairs of a collective-permute."""
    has_channel: bool = False
    """Whether it communicates across partitions."""
    has_global_ids: bool = False
    """Whether groups contain device numbers, replica · partitions + partition, instead of replicas."""


class HloText(msgspec.Struct, frozen=True):
    """One instruction; `attributes` is the text after its operands."""

    name: str
    opcode: str
    results: tuple[str, ...]
    """Types of the result's elements; one unless it is a tuple."""
    operands: tuple[str, ...]
    attributes: str

    @property
    def first_operand(self) -> str | None:
        """Name of the first operand."""
        name = re.search(r"%([^\s,()]+)$", self.operands[0]) if self.operands else None
        return name[1] if name else None


def parse_instruction(text: str) -> HloText | None:
    """Parse an instruction; None if the text is not one."""
    head = _HEAD.match(text)
    if head is None:
        return None
    end = (
        _closing_parenthesis(text, head.end())
        if text[head.end() :].startswith("(")
        else text.find(" ", head.end())
    )
    opcode = _OPCODE.match(text, end) if end != -1 else None
    if opcode is None or (close := _closing_parenthesis(text, opcode.end() - 1)) == -1:
        return None
    result = text[head.end() : end]
    return HloText(
        name=head["name"],
        opcode=opcode[1],
        results=tuple(_split_elements(result[1:-1])) if result.startswith("(") else (result,),
        operands=tuple(_split_elements(text[opcode.end() : close - 1])),
        attributes=text[close:],
    )


def parse_shapes(text: str) -> list[Shape]:
    """All arrays of a type or of typed operands, in order, without tokens and opaque values."""
    return [_parse_shape(*match) for match in _SHAPE.findall(text)]


def parse_arrays(text: str) -> list[tuple[str, tuple[int, ...]]]:
    """Element type and sizes of all arrays of typed operands, in order, without those of unknown size."""
    return [
        (dtype, tuple(map(int, lengths)))
        for dtype, dimensions, _ in _SHAPE.findall(text)
        if _are_known(lengths := dimensions.split(",") if dimensions else [])
    ]


def total_bytes(arrays: list[Shape]) -> int | None:
    """Σ bytes; None if there is no array or one has unknown bytes."""
    sizes = [array.bytes for array in arrays if array.bytes is not None]
    return sum(sizes) if sizes and len(sizes) == len(arrays) else None


def parse_participants(attributes: str) -> Participants:
    """Parse groups in any notation: `{{0,1},{2,3}}`, `[2,2]<=[2,2]T(1,0)`, `mesh['a'=2,'b'=2] {'a'}`."""
    pairs = _PAIRS.search(attributes)
    parsed_pairs = (_parse_integers(pair) for pair in re.findall(r"\{([\d, ]*)\}", pairs[1])) if pairs else ()
    return Participants(
        groups=_parse_groups(attributes),
        pairs=tuple((source, target) for source, target in parsed_pairs),
        has_channel=_CHANNEL.search(attributes) is not None,
        has_global_ids="use_global_device_ids=true" in attributes,
    )


def _parse_groups(attributes: str) -> Groups | None:
    if listed := _LISTED.search(attributes):
        return tuple(_parse_integers(group) for group in re.findall(r"\{([\d, ]*)\}", listed[1]))
    if match := _IOTA.search(attributes):
        shape, tiles, order = (_parse_integers(part or "") for part in match.groups())
        return rows_of(iota_tiles(tiles, order), shape)
    if match := _MESH.search(attributes):
        axes = re.findall(r"'([^']*)'=(\d{1,9})", match[1])
        names = [name for name, _ in axes]
        parts = re.findall(r"'([^']*)'(?::\((\d{1,9})\)(\d{1,9}))?", match[3])
        if not all(name in names for name, _, _ in parts):
            return None
        tiled = _TILES.fullmatch(match[2] or "")
        ids = iota_tiles(*(_parse_integers(part or "") for part in tiled.groups())) if tiled else None
        if match[2] and not tiled:
            ids = np.array(_parse_integers(match[2]), np.int64)
        axes_within = [(names.index(name), (int(a), int(b)) if a else None) for name, a, b in parts]
        return mesh_groups([int(size) for _, size in axes], ids, axes_within)
    return None


def iota_tiles(tiles: Sequence[int], order: Sequence[int]) -> Int64 | None:
    """0, 1, 2, ... in the shape `tiles`, axes transposed to `order`, flattened; None if that is invalid."""
    count = math.prod(tiles)
    order = order or range(len(tiles))
    if not 0 < count <= MOST_DEVICES or not 0 < len(tiles) <= _MOST_AXES or min(tiles) < 0:
        return None
    if sorted(order) != list(range(len(tiles))):
        return None
    return np.arange(count).reshape(tiles).transpose(order).reshape(-1)


def rows_of(ids: Int64 | None, shape: Sequence[int]) -> Groups | None:
    """Devices in this shape, each row of the last axis a group; None if they do not fit."""
    if ids is None or not shape or min(shape) < 1 or math.prod(shape) != len(ids):
        return None
    return tuple(map(tuple, ids.reshape(-1, shape[-1]).tolist()))


def mesh_groups(
    sizes: Sequence[int], ids: Int64 | None, within: Sequence[tuple[int, tuple[int, int] | None]]
) -> Groups | None:
    """Groups along the axes `within` of a mesh of devices `ids` (default: 0, 1, 2, ...).

    An axis may be partial, (b, s): the middle of the axis reshaped to [b, s, rest].
    """
    ids = iota_tiles(sizes, ()) if ids is None else ids
    if ids is None or len(ids) != math.prod(sizes) or any(not 0 <= axis < len(sizes) for axis, _ in within):
        return None
    shape: list[int] = []
    begins: dict[tuple[int, int], int] = {}
    for axis, size in enumerate(sizes):
        parts = [part for at, part in within if at == axis and part is not None]
        cuts = sorted({1, size, *(end for outer, length in parts for end in (outer, outer * length))})
        if cuts[0] < 1 or cuts[-1] > size or any(b % a for a, b in pairwise(cuts)):
            return None
        for a, b in pairwise(cuts):
            begins[axis, a] = len(shape)
            shape.append(b // a)
    chosen = []
    for axis, part in within:
        outer, length = part or (1, sizes[axis])
        chosen += [
            at for (axis_of, a), at in begins.items() if axis_of == axis and outer <= a < outer * length
        ]
    if len(set(chosen)) < len(chosen):
        return None
    apart_axes = [at for at in range(len(shape)) if at not in chosen]
    ordered = ids.reshape(shape).transpose([*apart_axes, *chosen]).reshape(-1)
    size = math.prod(shape[at] for at in chosen)
    return rows_of(ordered, (len(ids) // size, size))


def _parse_integers(text: str) -> tuple[int, ...]:
    return tuple(int(number[:19]) for number in re.findall(r"\d+", text))


def _parse_shape(dtype: str, dimensions: str, layout: str) -> Shape:
    space, packed = _SPACE.search(layout), _PACKED.search(layout)
    lengths = dimensions.split(",") if dimensions else []
    is_static = _are_known(lengths)
    return Shape(
        dtype,
        array_bytes(dtype, map(int, lengths), int(packed[1][:3]) if packed else None) if is_static else None,
        int(space[1][:9]) if space else 0,
    )


def _are_known(lengths: Sequence[str]) -> bool:
    return all(length.isdecimal() and len(length) < 19 for length in lengths)


def array_bytes(dtype: str, lengths: Iterable[int], bits: int | None = None) -> int | None:
    """Bytes of an array; `bits` is the size of a packed element.  None if unknown."""
    if dtype in ("token", "opaque"):
        return 0
    bits = bits or 8 * (element_bytes(dtype) or bool(_SUB_BYTE.fullmatch(dtype)))
    size = -(-math.prod(lengths) * bits // 8)
    return size if bits and 0 <= size < 1 << 62 else None


def _closing_parenthesis(text: str, at: int) -> int:
    """Offset behind the parenthesis that closes the one at `at`; −1 if there is none."""
    depth = 0
    for bracket in re.compile("[()]").finditer(text, at):
        depth += 1 if bracket[0] == "(" else -1
        if depth == 0:
            return bracket.end()
    return -1


def _split_elements(text: str) -> Iterator[str]:
    """Parts between commas outside of brackets."""
    depth = begin = 0
    for mark in _NESTING.finditer(text):
        if mark[0] == "," and depth == 0:
            yield text[begin : mark.start()].strip()
            begin = mark.end()
        elif mark[0] != ",":
            depth += 1 if mark[0] in "([{" else -1
    if text[begin:].strip():
        yield text[begin:].strip()
