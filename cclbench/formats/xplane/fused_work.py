# SPDX-License-Identifier: Apache-2.0
"""Arithmetic and compulsory traffic of a compiled instruction: a fusion, or one that is alone.

From the result back, each instruction needs as many numbers of its operands as its users need of it: of an
operand that is sliced or looked up, that many, once.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from cclbench.formats.xplane.hlo_products import CONTRACTIONS, shape_leaves
from cclbench.operators.call import NoModel
from cclbench.operators.shapes import valid_positions

_UNCOUNTED: Final = frozenset(
    [
        "and",
        "bitcast",
        "bitcast-convert",
        "broadcast",
        "complex",
        "concatenate",
        "constant",
        "convert",
        "copy",
        "count-leading-zeros",
        "dynamic-slice",
        "dynamic-update-slice",
        "gather",
        "get-tuple-element",
        "imag",
        "iota",
        "not",
        "or",
        "pad",
        "parameter",
        "popcnt",
        "real",
        "reduce-precision",
        "reshape",
        "reverse",
        "rng-bit-generator",
        "select",
        "shift-left",
        "shift-right-arithmetic",
        "shift-right-logical",
        "slice",
        "sort",
        "transpose",
        "tuple",
        "xor",
    ]
)
"""Opcodes without arithmetic on floating-point numbers; comparisons of sorts are not counted."""
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
            "is-finite",
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
_REDUCTIONS: Final = ("reduce", "reduce-window")
_SLICES: Final = ("slice", "dynamic-slice", "gather")
_COUNTED_BY_OPERAND: Final = ("compare", "is-finite", "scatter", *_REDUCTIONS)
"""Opcodes whose arithmetic is of the type of the first operand."""
_UPDATES: Final = ("dynamic-update-slice", "scatter")
_WHOLE: Final = (*CONTRACTIONS, "sort", "custom-call", "get-tuple-element", "tuple")
"""Opcodes that touch their operands whole."""
_SELECTIONS: Final = ("__gpu$TopK", "TopK")
"""Custom calls that compare, as a sort does."""
_FLOATING, _COMPLEX = ("f", "bf"), "c"
_DISTINCT: Final = "no index occurs twice"
_APART: Final = "the parts of an operand that it reads do not overlap"


class InstructionWork(NamedTuple):
    """FLOPs, bytes of all distinct operands, and of the result; what that assumes."""

    flops: int
    read_bytes: int
    written_bytes: int
    assumes: str = ""


class Typing(NamedTuple):
    """Bytes of shapes, None where unknown, and the element type of one."""

    size: Callable[[Iterable[Any | None]], int | None]
    type_name: Callable[[Any], str]


def instruction_work(
    instruction: Any, shapes: Mapping[int, Any], computations: Mapping[int, Any], typing: Typing
) -> InstructionWork:
    """The work of an instruction, of a fusion that of the computation that it calls, less a product in it.

    `shapes` are those of its computation by id, `computations` the program's.  Raises `NoModel` where it is
    not certain.
    """
    return _Fused(instruction, shapes, computations, typing).work()


class _Fused:
    """The instructions that run as one, and how many numbers of each are needed."""

    def __init__(
        self, instruction: Any, shapes: Mapping[int, Any], computations: Mapping[int, Any], typing: Typing
    ) -> None:
        self._whole, self._outer, self._computations, self._typing = instruction, shapes, computations, typing
        self._alone = instruction.opcode != "fusion"
        inner = [instruction]
        if not self._alone:
            called = [computations[i] for i in instruction.called_computation_ids if i in computations]
            if len(called) != 1:
                raise NoModel("its program does not have the computation of the fusion")
            inner = list(called[0].instructions)
        self._inner = {op.id: op for op in inner}
        root = instruction if self._alone else self._inner.get(called[0].root, inner[-1])
        self._roots = [self._inner[i] for i in root.operand_ids] if root.opcode == "tuple" else [root]
        self._shapes = shapes if self._alone else {op.id: op.shape for op in inner}
        self._in_place = {
            producer.id
            for op in self._roots
            if (producer := self._producer(op)).opcode in _UPDATES and self._owns(producer)
        }
        self._needed = Counter[int]()
        """By users that need the same numbers, or of which that is not known."""
        self._sliced = Counter[int]()
        """By slices and lookups."""
        self._slices = Counter[int]()
        self._assumes: dict[str, None] = {}

    def work(self) -> InstructionWork:
        """The work of all of them."""
        for root in self._roots:
            self._needed[root.id] = _elements(root.shape)
        flops = 0
        for instruction in reversed(self._inner.values()):
            if needed := self._numbers(instruction.id, instruction.shape):
                flops += self._flops(instruction, needed)
                for place, (operand, count) in enumerate(self._operand_needs(instruction, needed)):
                    if instruction.opcode in _SLICES and place == 0:
                        self._sliced[operand] += count
                        self._slices[operand] += 1
                    else:
                        self._needed[operand] = max(self._needed[operand], count)
        read = self._read_bytes()
        written = self._size(shape for root in self._roots for shape in self._written(root))
        return InstructionWork(flops, read, written, "; ".join(self._assumes))

    def _flops(self, instruction: Any, needed: int) -> int:
        if (
            instruction.opcode in _UNCOUNTED
            or instruction.opcode in CONTRACTIONS
            or instruction.target in _SELECTIONS
        ):
            return 0
        if instruction.opcode == "custom-call":
            raise NoModel(f"the call of {instruction.target} has no cost model")
        if instruction.opcode not in _ARITHMETIC and instruction.opcode not in _COUNTED_BY_OPERAND:
            raise NoModel(f"no cost model for the instruction {instruction.opcode}")
        shape = (
            self._shape(instruction.operand_ids[0])
            if instruction.opcode in _COUNTED_BY_OPERAND
            else instruction.shape
        )
        kind = self._typing.type_name(shape)
        if kind.startswith(_COMPLEX):
            raise NoModel("arithmetic on complex numbers is not modelled")
        if not kind.startswith(_FLOATING):
            return 0
        if instruction.opcode == "reduce":
            return _part(_elements(shape), needed, _elements(instruction.shape))
        if instruction.opcode == "reduce-window":
            return _part(_window_pairs(instruction, shape), needed, _elements(instruction.shape))
        if instruction.opcode == "scatter":
            return (
                sum(_elements(self._shape(i)) for i in _updates(instruction))
                if self._combines(instruction)
                else 0
            )
        return _ARITHMETIC[instruction.opcode] * needed

    def _operand_needs(self, instruction: Any, needed: int) -> list[tuple[int, int]]:
        """Operands, and how many numbers of each are needed."""
        sizes = [(operand, _elements(self._shape(operand))) for operand in instruction.operand_ids]
        if instruction.opcode in _WHOLE:
            return sizes
        if instruction.id in self._in_place:
            kept = len(_updates(instruction))
            touched = (
                sum(_elements(self._shape(i)) for i in _updates(instruction))
                if self._combines(instruction)
                else 0
            )
            if instruction.opcode == "scatter":
                self._assumes[_DISTINCT] = None
            return [(operand, min(touched, size)) for operand, size in sizes[:kept]] + sizes[kept:]
        first = (len(sizes) + 1) // 2 if instruction.opcode in _REDUCTIONS else 1
        if instruction.opcode in ("gather", "dynamic-slice", "pad", *_REDUCTIONS, *_UPDATES):
            if instruction.opcode == "gather":
                self._assumes[_DISTINCT] = None
            parts = [
                (operand, min(self._reach(instruction, needed, size), size))
                for operand, size in sizes[:first]
            ]
            return parts + sizes[first:]
        return [(operand, min(self._reach(instruction, needed, size), size)) for operand, size in sizes]

    def _reach(self, instruction: Any, needed: int, size: int) -> int:
        """Numbers of an operand of this size for so many of the result."""
        if instruction.opcode in ("reduce", "bitcast", "bitcast-convert"):
            return _part(size, needed, _elements(instruction.shape))
        if instruction.opcode == "reduce-window":
            return needed * int(math.prod(dimension.size for dimension in instruction.window.dimensions))
        return needed

    def _numbers(self, number: int, shape: Any | None) -> int:
        """How many numbers of an instruction are needed."""
        return min(max(self._needed[number], self._sliced[number]), _elements(shape))

    def _read_bytes(self) -> int:
        read = Counter[int]()
        sources = {i: i for i in self._whole.operand_ids}
        if not self._alone:
            parameters = [
                instruction for instruction in self._inner.values() if instruction.opcode == "parameter"
            ]
            sources = {parameter.id: self._whole.operand_ids[parameter.parameter] for parameter in parameters}
        for source, operand in sources.items():
            read[operand] += self._numbers(source, self._shapes.get(source))
            if self._slices[source] > 1 and read[operand] < _elements(self._outer.get(operand)):
                self._assumes[_APART] = None
        total = 0
        for operand, count in read.items():
            shape = self._outer.get(operand)
            total += _part(self._size([shape]), min(count, _elements(shape)), _elements(shape))
        return total

    def _written(self, root: Any) -> list[Any]:
        """Shapes that are written for a result: in place of an operand, only what is updated."""
        producer = self._producer(root)
        return [self._shape(i) for i in _updates(producer)] if producer.id in self._in_place else [root.shape]

    def _producer(self, instruction: Any) -> Any:
        """The instruction that makes the numbers, before views of them."""
        for _ in self._inner:
            if (
                instruction.opcode not in ("bitcast", "reshape")
                or instruction.operand_ids[0] not in self._inner
            ):
                break
            instruction = self._inner[instruction.operand_ids[0]]
        return instruction

    def _owns(self, instruction: Any) -> bool:
        """Whether an update's first operand is one of the whole, which XLA then updates in place."""
        operand = self._inner.get(instruction.operand_ids[0])
        return operand is None or self._producer(operand).opcode == "parameter"

    def _combines(self, instruction: Any) -> bool:
        """Whether an update computes with what is there."""
        called = [
            self._computations[i] for i in instruction.called_computation_ids if i in self._computations
        ]
        return any(i.opcode in _ARITHMETIC for computation in called for i in computation.instructions)

    def _shape(self, number: int) -> Any:
        shape = self._shapes.get(number)
        if shape is None:
            raise NoModel("its program lacks one of its operands")
        return shape

    def _size(self, shapes: Iterable[Any | None]) -> int:
        size = self._typing.size(shapes)
        if size is None:
            raise NoModel("the size of one of its operands or results is unknown")
        return size


def _updates(instruction: Any) -> Sequence[int]:
    """Operands of an update that are written into the first ones."""
    if instruction.opcode == "dynamic-update-slice":
        return list(instruction.operand_ids[1:2])
    return list(instruction.operand_ids[(len(instruction.operand_ids) + 1) // 2 :])


def _window_pairs(instruction: Any, read: Any) -> int:
    """Numbers, not padding, in all windows of a reduction."""
    result = next(iter(shape_leaves(instruction.shape)))
    return math.prod(
        valid_positions(
            size,
            out,
            dimension.size,
            stride=dimension.stride or 1,
            before=dimension.before,
            dilation=dimension.dilation or 1,
            spread=dimension.spread or 1,
        )
        for size, out, dimension in zip(
            read.dimensions, result.dimensions, instruction.window.dimensions, strict=False
        )
    )


def _elements(shape: Any | None) -> int:
    """Numbers of an array, of several those of the first."""
    leaf = None if shape is None else next(iter(shape_leaves(shape)), None)
    elements: int = 0 if leaf is None else math.prod(leaf.dimensions)
    return max(elements, 0)


def _part(total: int, needed: int, count: int) -> int:
    """The share needed/count of a total, rounded up."""
    return -(-total * needed // count) if count else 0
