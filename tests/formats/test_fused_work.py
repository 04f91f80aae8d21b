# SPDX-License-Identifier: Apache-2.0
"""FLOPs and bytes of compiled instructions, worked out by hand."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest

from cclbench.formats.xplane.fused_work import Typing, instruction_work
from cclbench.operators.call import NoModel

TYPING = Typing(
    size=lambda listed: sum(4 * math.prod(shape.dimensions) for shape in listed),
    type_name=lambda shape: shape.kind,
)
"""Four bytes a number."""


def array(*dimensions: int, kind: str = "f32") -> Any:
    return SimpleNamespace(dimensions=dimensions, kind=kind, element_type=11, tuple_shapes=[])


def instruction(number: int, opcode: str, shape: Any, *operands: int, **more: Any) -> Any:
    fields = {"called_computation_ids": (), "parameter": 0, "target": "", **more}
    return SimpleNamespace(id=number, opcode=opcode, shape=shape, operand_ids=operands, **fields)


def window(*sizes: int, stride: int = 1, before: int = 0) -> Any:
    told = {"stride": stride, "before": before, "dilation": 1, "spread": 1}
    return SimpleNamespace(dimensions=[SimpleNamespace(size=size, **told) for size in sizes])


def parameters(*shapes: Any) -> list[Any]:
    """Parameters with the ids 10, 11, ..."""
    return [instruction(10 + i, "parameter", shape, parameter=i) for i, shape in enumerate(shapes)]


def work(one: Any, shapes: dict[int, Any], *inside: Any, **called: Any) -> tuple[Any, ...]:
    """The work of an instruction; of a fusion, of these, the last of which is the root."""
    computations = {7: SimpleNamespace(instructions=inside, root=0), **called.get("others", {})}
    if one.opcode == "fusion":
        one.called_computation_ids = (7,)
    return instruction_work(one, shapes, computations, TYPING)


def chain(given: list[Any], *steps: tuple[Any, ...]) -> tuple[Any, ...]:
    """Parameters of these shapes and, numbered on from them, instructions of (opcode, shape, operands)."""
    first = 10 + len(given)
    return (*parameters(*given), *(instruction(first + i, *step) for i, step in enumerate(steps)))


def fused(shape: Any, *operands: int) -> Any:
    return instruction(3, "fusion", shape, *operands)


A, B = array(2, 3), array(3, 2)
SHAPES = {1: A, 2: A}
TABLE, INDICES = array(100, 8), array(5, kind="s32")
ADD = {8: SimpleNamespace(instructions=[instruction(1, "add", array())], root=1)}


def test_a_fusion_counts_its_operations_and_its_ends() -> None:
    """(a·b + a)ᵀ of 6 numbers: 12 operations; a, b and the result of 24 bytes each, what is between none."""
    inside = chain([A, A], ("multiply", A, 10, 11), ("add", A, 12, 10), ("transpose", B, 13))
    assert work(fused(B, 1, 2), SHAPES, *inside) == (12, 48, 24, "")
    # an operand is read once
    assert work(instruction(3, "multiply", A, 1, 1), SHAPES) == (6, 24, 24, "")
    assert work(fused(A, 1, 1), SHAPES, *chain([A, A], ("multiply", A, 10, 11))) == (6, 24, 24, "")
    # one without operands writes
    assert work(fused(A), {}, *chain([], ("constant", array()), ("broadcast", A, 10))) == (0, 0, 24, "")


def test_flops_of_reductions_comparisons_integers_and_copies() -> None:
    assert work(instruction(3, "reduce", array(2), 1, 2), {1: A, 2: array()}) == (6, 28, 8, "")
    compared = instruction(3, "compare", array(2, 3, kind="pred"), 1, 2)
    assert work(compared, SHAPES) == (6, 48, 24, "")
    numbers = {1: array(5, kind="s32")}
    assert work(instruction(3, "add", array(5, kind="s32"), 1), numbers) == (0, 20, 20, "")
    for opcode, more in (("copy", {}), ("sort", {}), ("custom-call", {"target": "__gpu$TopK"})):
        assert work(instruction(3, opcode, A, 1, **more), SHAPES) == (0, 24, 24, "")


def test_of_a_slice_only_its_numbers_are_read_and_computed() -> None:
    """√(x)[:4] of 16 numbers: 4 roots; where the other half is sliced as well, all are read."""
    x, half, part = array(16), array(8), array(4)
    inside = chain([x], ("sqrt", x, 10), ("slice", part, 11))
    assert work(fused(part, 1), {1: x}, *inside) == (4, 16, 16, "")
    halves = chain([x], ("slice", half, 10), ("slice", half, 10), ("multiply", half, 11, 12))
    assert work(fused(half, 1), {1: x}, *halves) == (8, 64, 32, "")
    quarters = chain([x], ("slice", part, 10), ("slice", part, 10), ("multiply", part, 11, 12))
    apart = "the parts of an operand that it reads do not overlap"
    assert work(fused(part, 1), {1: x}, *quarters) == (4, 32, 16, apart)
    # (x·exp(x))[:4] of 16 numbers reads 4
    x, part = array(16), array(4)
    inside = chain([x], ("exponential", x, 10), ("multiply", x, 10, 11), ("slice", part, 12))
    assert work(fused(part, 1), {1: x}, *inside) == (8, 16, 16, "")


def test_lookups_and_windows_read_what_they_use() -> None:
    found = instruction(3, "gather", array(5, 8), 1, 2)
    distinct = "no index occurs twice"
    assert work(found, {1: TABLE, 2: INDICES}) == (0, 20 + 160, 160, distinct)
    assert work(instruction(3, "pad", array(8), 1, 2), {1: array(6), 2: array()}) == (0, 28, 32, "")
    # sums of 3 of 8 numbers at each place, one of padding at both ends: 3·8 − 2
    sums = instruction(3, "reduce-window", array(8), 1, 2, window=window(3, before=1))
    assert work(sums, {1: array(8), 2: array()}) == (22, 36, 32, "")


def test_an_update_in_place_writes_what_is_updated() -> None:
    """Five rows of a table of 100, added or overwritten; a table that is made there is written whole."""
    shapes = {1: TABLE, 2: INDICES, 4: array(5, 8)}
    added = instruction(3, "scatter", TABLE, 1, 2, 4, called_computation_ids=(8,))
    distinct = "no index occurs twice"
    assert work(added, shapes, others=ADD) == (40, 160 + 20 + 160, 160, distinct)
    assert work(instruction(3, "scatter", TABLE, 1, 2, 4), shapes) == (0, 20 + 160, 160, distinct)
    place = instruction(3, "dynamic-update-slice", TABLE, 1, 4, 5)
    assert work(place, {**shapes, 5: array(kind="s32")}) == (0, 160 + 4, 160, "")
    given = [array(5, 8), array(kind="s32")]
    made = ("constant", array()), ("broadcast", TABLE, 12), ("dynamic-update-slice", TABLE, 13, 10, 11)
    inside = chain(given, *made)
    assert work(fused(TABLE, 4, 5), {4: given[0], 5: given[1]}, *inside) == (0, 164, 3200, "")


def test_tuples_are_written_and_products_left_out() -> None:
    both = SimpleNamespace(element_type=13, tuple_shapes=[A, A])
    inside = chain([A], ("negate", A, 10), ("tuple", both, 11, 10))
    assert work(fused(A, 1), SHAPES, *inside) == (6, 24, 48, "")
    square = array(2, 2)
    inside = chain([A, B], ("dot", square, 10, 11), ("tanh", square, 12))
    assert work(fused(square, 1, 2), {1: A, 2: B}, *inside) == (4, 48, 16, "")


@pytest.mark.parametrize(
    ("one", "reason"),
    [
        (instruction(3, "custom-call", A, 1, target="my_call"), "the call of my_call has no cost model"),
        (instruction(3, "while", A, 1), "no cost model for the instruction while"),
        (instruction(3, "add", array(2, kind="c64"), 1), "complex numbers"),
        (instruction(3, "add", A, 9), "lacks one of its operands"),
        (instruction(3, "fusion", A, 1, called_computation_ids=(9,)), "computation of the fusion"),
    ],
)
def test_what_is_not_certain_is_a_reason(one: Any, reason: str) -> None:
    with pytest.raises(NoModel, match=reason):
        instruction_work(one, SHAPES, {}, TYPING)


def test_bytes_of_an_unknown_type_are_a_reason() -> None:
    with pytest.raises(NoModel, match="size of one of its operands or results is unknown"):
        instruction_work(instruction(3, "copy", A, 1), SHAPES, {}, TYPING._replace(size=lambda _: None))
