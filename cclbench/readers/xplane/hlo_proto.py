# SPDX-License-Identifier: Apache-2.0
"""The compiled program in a profile: what each instruction of an HLO module is, and the bytes it moves.

JAX puts the HloProto of each module into the plane `/host:metadata`; on CPU devices nothing else tells
the shapes of a collective.  Field numbers: hlo.proto and xla_data.proto of the OpenXLA project.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from functools import cache
from typing import Any, Final

import msgspec

from cclbench.classify import element_bytes
from cclbench.errors import InputError

_MESSAGES: Final = {
    "Shape": "element_type=2:int32 dimensions=3:int64* tuple_shapes=4:Shape*",
    "Instruction": "name=1:string opcode=2:string shape=3:Shape id=35:int64 operand_ids=36:int64*"
    " called_computation_ids=38:int64*",
    "Computation": "instructions=2:Instruction* id=5:int64",
    "Module": "computations=3:Computation*",
    "Hlo": "hlo_module=1:Module",
}
"""Fields as name=number:type; `*` repeats."""

_TYPES: Final = {
    1: "pred",
    2: "s8",
    3: "s16",
    4: "s32",
    5: "s64",
    6: "u8",
    7: "u16",
    8: "u32",
    9: "u64",
    10: "f16",
    11: "f32",
    12: "f64",
    15: "c64",
    16: "bf16",
    18: "c128",
    19: "f8e5m2",
    20: "f8e4m3fn",
    23: "f8e4m3b11fnuz",
    24: "f8e5m2fnuz",
    25: "f8e4m3fnuz",
}
"""Names of PrimitiveType; types below a byte are left out."""
_TUPLE: Final = 13
_LARGEST: Final = 1 << 56

_COLLECTIVE: Final = re.compile(
    r"(?:all-reduce|all-gather|all-to-all|reduce-scatter|ragged-all-to-all|collective-(?:permute|broadcast))"
    r"(?:-start|-done)?|send|send-done|recv|recv-done"
)
_MOVES: Final = re.compile(
    r"(?:dynamic-)?slice|dynamic-update-slice|bitcast(?:-convert)?|broadcast|concatenate|constant|convert|copy"
    r"|get-tuple-element|iota|pad|parameter|reshape|reverse|transpose|tuple"
)
_TELLING: Final = (
    ("gemm", frozenset({"dot"})),
    ("convolution", frozenset({"convolution"})),
    (None, frozenset({"custom-call"})),
    ("embedding", frozenset({"gather", "scatter"})),
    ("reduction", frozenset({"reduce", "reduce-window", "sort", "select-and-scatter"})),
)
"""What a fusion does, by the first of these that is in it; None leaves it to its name."""


class Instruction(msgspec.Struct, frozen=True):
    """An instruction of a module; bytes are those of all operands and of the result, None where unknown."""

    opcode: str
    category: str | None
    """Of `schema.CATEGORIES`; None where the opcode does not tell."""
    dtype: str | None
    in_bytes: int | None
    out_bytes: int | None

    @property
    def collective(self) -> bool:
        """Whether it communicates."""
        return _COLLECTIVE.fullmatch(self.opcode) is not None


def instructions(hlo: bytes, where: str) -> dict[str, Instruction]:
    """The instructions of an HloProto by name; `InputError` where the bytes are none."""
    from google.protobuf.message import DecodeError

    try:
        module = _hlo().FromString(hlo).hlo_module
    except DecodeError:
        raise InputError("an HLO module is damaged", where=where, hint="is the file damaged?") from None
    inside = {c.id: frozenset(i.opcode for i in c.instructions) for c in module.computations}
    found = {}
    for computation in module.computations:
        shapes = {i.id: i.shape for i in computation.instructions}
        for i in computation.instructions:
            operands = [shapes.get(operand) for operand in i.operand_ids]
            types = {kind for shape in (*operands, i.shape) for kind in _types(shape)}
            found[i.name] = Instruction(
                opcode=i.opcode,
                category=_category(i, inside),
                dtype=_TYPES.get(types.pop()) if len(types) == 1 else None,
                in_bytes=_bytes(operands),
                out_bytes=_bytes([i.shape]),
            )
    return found


def _category(instruction: Any, inside: dict[int, frozenset[str]]) -> str | None:
    if _COLLECTIVE.fullmatch(instruction.opcode):
        return "communication"
    opcodes = {instruction.opcode}
    if instruction.opcode == "fusion":
        opcodes = set().union(*(inside.get(called, ()) for called in instruction.called_computation_ids))
    for category, marks in _TELLING:
        if opcodes & marks:
            return category
    return "copy" if all(map(_MOVES.fullmatch, opcodes)) else "elementwise"


def _leaves(shape: Any) -> Iterable[Any]:
    if shape.element_type != _TUPLE:
        yield shape
    for part in shape.tuple_shapes:
        yield from _leaves(part)  # as deep as protobuf lets messages nest, 100


def _types(shape: Any) -> Iterable[int]:
    return (leaf.element_type for leaf in _leaves(shape)) if shape is not None else ()


def _bytes(shapes: Iterable[Any | None]) -> int | None:
    """Bytes of arrays; None where a type is unknown or the size absurd."""
    total = 0
    for shape in shapes:
        if shape is None:
            return None
        for leaf in _leaves(shape):
            element = element_bytes(_TYPES.get(leaf.element_type))
            if element is None or min(leaf.dimensions, default=0) < 0:
                return None
            total += math.prod(leaf.dimensions) * element
    return total if total < _LARGEST else None


@cache
def _hlo() -> Any:
    """The class of HloProto messages, with the fields that are read."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(name="hlo", package="cclbench.hlo", syntax="proto3")
    for message, fields in _MESSAGES.items():
        described = file.message_type.add(name=message)
        for text in fields.split():
            name, number, kind = re.split("[=:]", text)
            field = described.field.add(name=name, number=int(number))
            field.label = field.LABEL_REPEATED if kind.endswith("*") else field.LABEL_OPTIONAL
            kind = kind.rstrip("*")
            if kind in _MESSAGES:
                field.type, field.type_name = field.TYPE_MESSAGE, f".cclbench.hlo.{kind}"
            else:
                field.type = getattr(field, f"TYPE_{kind.upper()}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("cclbench.hlo.Hlo"))
