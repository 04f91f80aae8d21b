# SPDX-License-Identifier: Apache-2.0
"""FLOPs and bytes of compiled instructions, worked out by hand."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest

from cclbench.formats.xplane.fused_work import instruction_work


def array(*dimensions: int, kind: str = "f32") -> Any:
    return SimpleNamespace(dimensions=dimensions, kind=kind, tuple_shapes=[])


def instruction(number: int, opcode: str, shape: Any, *operands: int) -> Any:
    return SimpleNamespace(id=number, opcode=opcode, shape=shape, operand_ids=operands)


def work(one: Any, shapes: dict[int, Any], *inside: Any) -> tuple[int, int, int] | None:
    """The work of an instruction, with four bytes a number."""
    return instruction_work(
        one,
        shapes,
        SimpleNamespace(instructions=inside) if inside else None,
        size=lambda listed: sum(4 * math.prod(shape.dimensions) for shape in listed),
        type_name=lambda shape: shape.kind,
    )


A, B = array(2, 3), array(3, 2)
SHAPES = {1: A, 2: A}


def test_a_fusion_counts_its_operations_and_its_ends() -> None:
    """(a·b + a)ᵀ of 6 numbers: 12 operations; a, b and the result of 24 bytes each, what is between none."""
    inside = (
        instruction(10, "parameter", A),
        instruction(11, "parameter", A),
        instruction(12, "multiply", A, 10, 11),
        instruction(13, "add", A, 12, 10),
        instruction(14, "transpose", B, 13),
    )
    assert work(instruction(3, "fusion", B, 1, 2), SHAPES, *inside) == (12, 48, 24)


def test_an_operand_is_read_once() -> None:
    assert work(instruction(3, "multiply", A, 1, 1), SHAPES) == (6, 24, 24)


def test_a_reduction_counts_what_it_reads_and_a_comparison_what_it_compares() -> None:
    assert work(instruction(3, "reduce", array(2), 1), SHAPES) == (6, 24, 8)
    compared = instruction(3, "compare", array(2, 3, kind="pred"), 1, 2)
    assert work(compared, SHAPES) == (6, 48, 24)


def test_integers_and_copies_have_no_flops() -> None:
    numbers = {1: array(5, kind="s32")}
    assert work(instruction(3, "add", array(5, kind="s32"), 1), numbers) == (0, 20, 20)
    assert work(instruction(3, "copy", A, 1), SHAPES) == (0, 24, 24)


@pytest.mark.parametrize("opcode", ["dynamic-slice", "gather", "custom-call", "while", "pad", "unheard-of"])
def test_what_touches_a_part_or_calls_a_library_is_not_certain(opcode: str) -> None:
    one = instruction(3, opcode, A, 1)
    assert work(one, SHAPES) is None
    assert work(instruction(4, "fusion", A, 1), SHAPES, instruction(1, "parameter", A), one) is None
