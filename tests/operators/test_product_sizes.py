# SPDX-License-Identifier: Apache-2.0
"""Sizes and layout of matrix products by their recorded arguments."""

from __future__ import annotations

import pytest

from cclbench.operators.call import parse_call
from cclbench.operators.cost import cost_of
from cclbench.operators.product_sizes import product_sizes

FLOATS = '["float","float","float"]'


@pytest.mark.parametrize(
    ("name", "shapes", "strides", "sizes"),
    [
        ("aten::mm", "[[4,3],[3,2]]", "[[3,1],[2,1]]", (1, 4, 2, 3, "NN")),
        ("aten::mm", "[[4,3],[3,2]]", "[[3,1],[1,3]]", (1, 4, 2, 3, "NT")),
        ("aten::mm", "[[4,3],[3,2]]", "[[1,4],[2,1]]", (1, 4, 2, 3, "TN")),
        # rows of a slice are further apart; with a step between numbers neither is contiguous
        ("aten::mm", "[[4,3],[3,2]]", "[[9,1],[2,1]]", (1, 4, 2, 3, "NN")),
        ("aten::mm", "[[4,3],[3,2]]", "[[6,2],[2,1]]", (1, 4, 2, 3, None)),
        ("aten::mm", "[[4,3],[3,2]]", None, (1, 4, 2, 3, None)),
        ("aten::bmm", "[[5,4,3],[5,3,2]]", "[[12,3,1],[6,1,3]]", (5, 4, 2, 3, "NT")),
        ("aten::addmm", "[[2],[4,3],[3,2]]", "[[1],[3,1],[1,3]]", (1, 4, 2, 3, "NT")),
        ("aten::linear", "[[6,4,3],[2,3]]", "[[12,3,1],[3,1]]", (1, 24, 2, 3, "NT")),
        ("aten::add", "[[4,3],[4,3]]", None, None),
    ],
)
def test_sizes(name: str, shapes: str, strides: str | None, sizes: tuple[object, ...] | None) -> None:
    call = parse_call(name, shapes, FLOATS, strides)
    assert product_sizes(call, cost_of(call)) == sizes


def test_sizes_of_a_cost_of_other_flops_are_not_stated() -> None:
    call = parse_call("aten::mm", "[[4,3],[3,2]]", FLOATS)
    other = parse_call("aten::mm", "[[4,3],[3,9]]", FLOATS)
    assert product_sizes(call, cost_of(other)) is None


def test_sizes_beyond_64_bits_are_not_stated() -> None:
    call = parse_call("aten::mm", f"[[{2**64},1],[1,1]]", FLOATS)
    assert product_sizes(call, cost_of(call)) is None
