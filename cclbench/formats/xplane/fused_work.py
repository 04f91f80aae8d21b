# SPDX-License-Identifier: Apache-2.0
"""Arithmetic and compulsory traffic of a compiled instruction: a fusion, or one that is alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

_WHOLE: Final = frozenset(
    [
        "bitcast",
        "bitcast-convert",
        "broadcast",
        "concatenate",
        "constant",
        "convert",
        "copy",
        "get-tuple-element",
        "iota",
        "parameter",
        "reshape",
        "reverse",
        "transpose",
        "tuple",
    ]
)
"""Opcodes that touch their operands whole, and have no arithmetic."""
_UNCOUNTED: Final = frozenset(["and", "not", "or", "select", "xor"])
_ARITHMETIC: Final = {
    **dict.fromkeys(
        [
            "abs",
            "add",
            "atan2",
            "cbrt",
            "ceil",
            "compare",
            "cosine",
            "divide",
            "erf",
            "exponential",
            "exponential-minus-one",
            "floor",
            "log",
            "log-plus-one",
            "maximum",
            "minimum",
            "multiply",
            "negate",
            "power",
            "round-nearest-afz",
            "round-nearest-even",
            "rsqrt",
            "sign",
            "sine",
            "sqrt",
            "subtract",
            "tan",
            "tanh",
        ],
        1,
    ),
    "clamp": 2,
    "logistic": 4,
    "remainder": 4,
}
"""FLOPs an element, as of PyTorch's operators."""
_REDUCE: Final = "reduce"
_FLOATING: Final = ("f", "bf")


class InstructionWork(NamedTuple):
    """FLOPs, bytes of all distinct operands, and of the result."""

    flops: int
    read_bytes: int
    written_bytes: int


def instruction_work(
    instruction: Any,
    shapes: Mapping[int, Any],
    fused: Any | None,
    *,
    size: Callable[[Iterable[Any | None]], int | None],
    type_name: Callable[[Any], str],
) -> InstructionWork | None:
    """The work of an instruction, of a fusion that of its computation `fused`; None where it is not certain.

    Slices, gathers and paddings touch a part of their operands, calls of libraries do what they do: of both
    nothing is known.  `shapes` are those of the computation by id; `size` has the bytes of shapes, None where
    unknown; `type_name` the element type of a shape.
    """
    inner = [instruction] if fused is None else list(fused.instructions)
    of_inner = shapes if fused is None else {one.id: one.shape for one in inner}
    flops = 0
    for one in inner:
        counted = one.opcode in _ARITHMETIC or one.opcode == _REDUCE
        if not counted and one.opcode not in _WHOLE | _UNCOUNTED:
            return None
        shape = of_inner.get(one.operand_ids[0]) if one.opcode == _REDUCE and one.operand_ids else one.shape
        if shape is None or (counted and shape.tuple_shapes):
            return None
        if one.opcode == "compare":
            shape = of_inner.get(one.operand_ids[0]) if one.operand_ids else None
        if counted and shape is not None and type_name(shape).startswith(_FLOATING):
            flops += _ARITHMETIC.get(one.opcode, 1) * math.prod(shape.dimensions)
    operands = [shapes.get(number) for number in dict.fromkeys(instruction.operand_ids)]
    read, written = size(operands), size([instruction.shape])
    return None if read is None or written is None else InstructionWork(flops, read, written)
