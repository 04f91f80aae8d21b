# SPDX-License-Identifier: Apache-2.0
"""Calls as traces record them: tensors, lists, numbers, sizes and layout of products, windows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cclbench.operators.call import Call, NoModel, Tensor, parse_call
from cclbench.operators.cost import Cost, cost_of
from cclbench.operators.element_types import promoted_type, promotion_rank
from cclbench.operators.masks import Mask
from cclbench.operators.product_sizes import product_sizes
from cclbench.operators.shapes import valid_positions


def test_arguments_are_tensors_lists_numbers_and_nothing() -> None:
    call = parse_call(
        "aten::some",
        "[[2, 3], [[4], [5, 6]], [], [], [], []]",
        '["c10::BFloat16", "TensorList", "double", "ScalarList", "Scalar", ""]',
        "[[3, 1], [[1], [6, 1]], [], [], [], []]",
        '["", "", "", "[1, 2]", "0.5", ""]',
    )
    assert call.arguments == (
        *(Tensor((2, 3), "c10::BFloat16", (3, 1)), (Tensor((4,), "", (1,)), Tensor((5, 6), "", (6, 1)))),
        *(Tensor((), "double", ()), (1, 2), 0.5, None),
    )
    assert call.tensors == (call.tensor(0), *call.arguments[1], call.tensor(2))  # type: ignore[misc]
    assert call.optional_tensor(5) is call.optional_tensor(99) is call.value(99) is None
    with pytest.raises(NoModel, match="no tensor is recorded as argument 3"):
        call.tensor(3)


@pytest.mark.parametrize("shapes", [None, "", "null", "[[2, -3]]", "[[2", '[["2"]]', "7"])
def test_what_is_malformed_is_not_recorded(shapes: str | None) -> None:
    assert parse_call("aten::exp", shapes, '["float"]').optional_tensor(0) is None


@pytest.mark.parametrize(
    ("shape", "strides", "distinct"),
    [
        *(((2, 3), (3, 1), 24), ((2, 3), (0, 1), 12), ((2, 3), (0, 0), 4), ((2, 3), None, 24)),
        ((0, 3), (3, 1), 0),
    ],
)
def test_expanded_dimension(shape: tuple[int, ...], strides: tuple[int, ...] | None, distinct: int) -> None:
    assert Tensor(shape, "float", strides).distinct_bytes == distinct


@pytest.mark.parametrize(
    ("types", "promoted"),
    [
        *((("float", "c10::BFloat16"), "float"), (("c10::Half", "c10::BFloat16"), "float32")),
        *((("c10::Half", "double"), "double"), (("long int", "c10::Half"), "c10::Half")),
        *((("bool", "int"), "int"), (("int", "long int"), "long int")),
    ],
)
def test_types_are_promoted_as_pytorch_does(types: tuple[str, ...], promoted: str) -> None:
    operands = [Tensor((2,), one) for one in types]
    assert promoted_type(operands) == promoted_type(operands[::-1]) == promoted


def test_a_number_promotes_by_its_kind_alone() -> None:
    """torch.result_type: a tensor without dimensions widens no type of its own kind."""
    half = Tensor((2,), "c10::Half")
    assert promoted_type([half, Tensor((), "double")]) == "c10::Half"
    assert promoted_type([Tensor((2,), "int"), Tensor((), "double")]) == "float32"
    assert promoted_type([Tensor((2,), "int")], [0.5]) == "float32"


def test_kinds_of_types_by_their_names() -> None:
    kinds = [("bool", 0), ("short int", 1), ("unsigned char", 1), ("s32", 1), ("f32", 2), ("c10::Half", 2)]
    for dtype, kind in [*kinds, ("c10::Float8_e4m3fn", 2), ("c10::complex<float>", 3)]:
        assert promotion_rank(dtype) == kind, dtype


def seen(queries: int, keys: int, mask: Mask) -> int:
    """The pairs that a mask leaves, one by one."""
    shift = keys - queries if mask.aligned_at_end else 0
    right = 0 if mask.causal else mask.right
    return sum(
        (right < 0 or key <= query + shift + right) and (mask.left < 0 or key >= query + shift - mask.left)
        for query in range(queries)
        for key in range(keys)
    )


@pytest.mark.parametrize("aligned_at_end", [True, False])
@pytest.mark.parametrize(
    ("causal", "left", "right"), [(False, -1, -1), (True, -1, 0), (True, 2, 0), (False, 1, 3)]
)
def test_pairs_of_a_mask_are_those_counted(aligned_at_end: bool, causal: bool, left: int, right: int) -> None:
    mask = Mask(causal=causal, aligned_at_end=aligned_at_end, left=left, right=right)
    for queries in range(8):
        for keys in range(8):
            assert mask.count_pairs(queries, keys) == seen(queries, keys, mask), (queries, keys)


def test_a_cost_has_bytes_both_ways_and_no_peak_without_arithmetic() -> None:
    a = Tensor((2, 3), "float")
    assert Cost.from_tensors(precision="fp32", reads=(a, None), writes=(a, a)) == Cost(
        flops=0, precision=None, read_bytes=24, written_bytes=48
    )
    assert Cost.from_tensors(reads=(a,), writes=(a,)).bytes == 48


def test_sizes_that_cannot_be_true_are_a_reason() -> None:
    huge = Tensor((1 << 40, 1 << 40), "float")
    with pytest.raises(NoModel, match="are implausible"):
        cost_of(Call("aten::mm", (huge, huge)))


small = st.integers(1, 9)


@given(
    read=small,
    written=small,
    size=small,
    stride=small,
    before=st.integers(-5, 9),
    dilation=small,
    spread=small,
)
def test_valid_positions_are_those_counted_one_by_one(
    read: int, written: int, size: int, stride: int, before: int, dilation: int, spread: int
) -> None:
    met = [o * stride + k * dilation - before for o in range(written) for k in range(size)]
    counted = sum(0 <= place <= (read - 1) * spread and place % spread == 0 for place in met)
    window = {"stride": stride, "before": before, "dilation": dilation, "spread": spread}
    assert valid_positions(read, written, size, **window) == counted


def test_large_windows_are_counted_and_absurd_ones_are_not() -> None:
    assert valid_positions(1 << 40, 1 << 40, 3, before=1) == 3 * (1 << 40) - 2
    with pytest.raises(NoModel, match="its window has 1099511627776 positions"):
        valid_positions(1 << 40, 1 << 40, 1 << 41)


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
