# SPDX-License-Identifier: Apache-2.0
"""HLO text of one instruction: opcode, shapes with bytes and memory, and who takes part in a collective.

    %name = f32[8,128]{1,0:T(8,128)S(5)} opcode(f32[] %operand), channel_id=1, replica_groups=[4,2]<=[8]

Notation: openxla.org/xla/operation_semantics and hlo_to_llvm; layouts: openxla.org/xla/tiled_layout.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Final

import msgspec
import numpy as np

from cclbench.classify import element_bytes

MOST_DEVICES: Final = 1 << 20
"""A list of more participants is taken for damage."""
HOST_MEMORY: Final = 5
"""Memory space S(5) of a layout: the host's."""

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
_PAIRS: Final = re.compile(r"source_target_pairs=\{((?:\{\d+, ?\d+\},? ?)*)\}")
_CHANNEL: Final = re.compile(r"channel_id=\d")


class Shape(msgspec.Struct, frozen=True):
    """An array: element type as HLO names it, bytes (None where HLO leaves them open), memory space."""

    dtype: str
    bytes: int | None
    space: int = 0


class Instruction(msgspec.Struct, frozen=True):
    """One instruction; `attributes` is the text behind its operands."""

    name: str
    opcode: str
    results: tuple[str, ...]
    """Types of the result's elements, one where it is no tuple."""
    operands: tuple[str, ...]
    attributes: str

    @property
    def first_operand(self) -> str | None:
        """Name of the first operand."""
        name = re.search(r"%([^\s,()]+)$", self.operands[0]) if self.operands else None
        return name[1] if name else None

    @property
    def has_channel(self) -> bool:
        """Whether a collective communicates across partitions."""
        return _CHANNEL.search(self.attributes) is not None

    @property
    def has_global_ids(self) -> bool:
        """Whether replica groups number devices, replica · partitions + partition, not replicas."""
        return "use_global_device_ids=true" in self.attributes


def instruction(text: str) -> Instruction | None:
    """Parse an instruction; None where the text is none."""
    head = _HEAD.match(text)
    if head is None:
        return None
    end = _closing(text, head.end()) if text[head.end() :].startswith("(") else text.find(" ", head.end())
    opcode = _OPCODE.match(text, end) if end > 0 else None
    close = _closing(text, opcode.end() - 1) if opcode else -1
    if opcode is None or close < 0:
        return None
    result = text[head.end() : end]
    return Instruction(
        name=head["name"],
        opcode=opcode[1],
        results=tuple(_elements(result[1:-1])) if result.startswith("(") else (result,),
        operands=tuple(_elements(text[opcode.end() : close - 1])),
        attributes=text[close:],
    )


def shapes(text: str) -> list[Shape]:
    """All arrays of a type or of typed operands, in order; tokens and opaque values are none."""
    return [_shape(*found) for found in _SHAPE.findall(text)]


def total_bytes(arrays: list[Shape]) -> int | None:
    """Σ bytes; None where there is no array or the bytes of one are open."""
    known = [array.bytes for array in arrays if array.bytes is not None]
    return sum(known) if known and len(known) == len(arrays) else None


def replica_groups(attributes: str) -> Groups | None:
    """Participants in either notation, `{{0,1},{2,3}}` or `[2,2]<=[2,2]T(1,0)`; () where all are one group.

    None where the text tells nothing, or nothing that can be.
    """
    if listed := _LISTED.search(attributes):
        return tuple(_integers(group) for group in re.findall(r"\{([\d, ]*)\}", listed[1]))
    iota = _IOTA.search(attributes)
    if iota is None:
        return None
    shape, tiles = _integers(iota[1]), _integers(iota[2])
    order = _integers(iota[3]) if iota[3] else tuple(range(len(tiles)))
    count = math.prod(tiles)
    fits = math.prod(shape) == count and sorted(order) == list(range(len(tiles)))
    if not fits or not 0 < count <= MOST_DEVICES or len(tiles) > 32:
        return None
    ids = np.arange(count).reshape(tiles).transpose(order).reshape(-1, shape[-1])
    return tuple(map(tuple, ids.tolist()))


def source_target_pairs(attributes: str) -> tuple[tuple[int, int], ...] | None:
    """Who sends to whom in a collective-permute."""
    found = _PAIRS.search(attributes)
    if found is None:
        return None
    pairs = (_integers(pair) for pair in re.findall(r"\{([\d, ]*)\}", found[1]))
    return tuple((source, target) for source, target in pairs)


def _integers(text: str) -> tuple[int, ...]:
    return tuple(int(number[:19]) for number in re.findall(r"\d+", text))


def _shape(dtype: str, dimensions: str, layout: str) -> Shape:
    space = _SPACE.search(layout)
    where = int(space[1][:9]) if space else 0
    if dtype in ("token", "opaque"):
        return Shape(dtype, 0, where)
    lengths = dimensions.split(",") if dimensions else []
    packed = _PACKED.search(layout)
    bits = int(packed[1][:3]) if packed else 8 * (element_bytes(dtype) or bool(_SUB_BYTE.fullmatch(dtype)))
    if not bits or not all(length.isdecimal() and len(length) < 19 for length in lengths):
        return Shape(dtype, None, where)
    size = -(-math.prod(map(int, lengths)) * bits // 8)
    return Shape(dtype, size if size < 1 << 62 else None, where)


def _closing(text: str, at: int) -> int:
    """Where the parenthesis that opens at `at` is closed, one past it; −1 where it is not."""
    depth = 0
    for bracket in re.compile("[()]").finditer(text, at):
        depth += 1 if bracket[0] == "(" else -1
        if depth == 0:
            return bracket.end()
    return -1


def _elements(text: str) -> Iterator[str]:
    """Parts between the commas that lie in no bracket."""
    depth = begin = 0
    for mark in _NESTING.finditer(text):
        if mark[0] == "," and depth == 0:
            yield text[begin : mark.start()].strip()
            begin = mark.end()
        elif mark[0] != ",":
            depth += 1 if mark[0] in "([{" else -1
    if text[begin:].strip():
        yield text[begin:].strip()
