# SPDX-License-Identifier: Apache-2.0
"""Recorded arguments of a call, and why some do not suffice."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cclbench.reproduction.arguments import (
    NotRecorded,
    RecordedTexts,
    recorded_arguments,
    require_reproducible,
)


def texts(
    shapes: list[Any], dtypes: list[Any], strides: list[Any] | None = None, values: list[str] | None = None
) -> RecordedTexts:
    return RecordedTexts(*(None if x is None else json.dumps(x) for x in (shapes, dtypes, strides, values)))


def test_tensors_numbers_lists_and_absent_arguments() -> None:
    """aten::_fused_rms_norm(Tensor input, int[] normalized_shape, Tensor? weight, float? eps)."""
    types, strides = ["c10::BFloat16", "ScalarList", "float", ""], [[8, 1], [], [1], []]
    recorded = texts([[16, 8], [], [8], []], types, strides, ["", "[8]", "", ""])
    assert recorded_arguments(recorded) == [
        *({"tensor": {"shape": [16, 8], "dtype": "bfloat16", "strides": [8, 1]}}, {"value": [8]}),
        *({"tensor": {"shape": [8], "dtype": "float32", "strides": [1]}}, None),
    ]


@pytest.mark.parametrize(
    ("text", "value"),
    [("0.", 0.0), ("1e-05", 1e-5), ("True", True), ("[1, 1]", [1, 1]), ("tanh", "tanh"), ("-inf", "-inf")],
)
def test_values_as_pytorch_prints_them(text: str, value: Any) -> None:
    assert recorded_arguments(texts([[]], ["Scalar"], [[]], [text])) == [{"value": value}]


@pytest.mark.parametrize(
    ("recorded", "torch"),
    [
        *(("c10::Half", "float16"), ("double", "float64"), ("long int", "int64"), ("unsigned char", "uint8")),
        *(("c10::Float8_e4m3fn", "float8_e4m3fn"), ("c10::complex<float>", "complex64"), ("bool", "bool")),
    ],
)
def test_types_by_pytorch_names(recorded: str, torch: str) -> None:
    (argument,) = recorded_arguments(texts([[2]], [recorded]))
    assert argument == {"tensor": {"shape": [2], "dtype": torch, "strides": None}}


def test_a_list_of_tensors_needs_a_stated_type() -> None:
    recorded = texts([[[2, 3], [2, 3]], []], ["TensorList", "Scalar"], [[[3, 1], [1, 2]], []], ["", "1"])
    with pytest.raises(NotRecorded, match="--dtype"):
        recorded_arguments(recorded)
    both = [{"shape": [2, 3], "dtype": "float16", "strides": strides} for strides in ([3, 1], [1, 2])]
    assert recorded_arguments(recorded, "float16") == [{"tensors": both}, {"value": 1}]


@pytest.mark.parametrize(
    ("recorded", "reason"),
    [
        (RecordedTexts(None, None, None, None), "record_shapes=True"),
        (texts([[], []], ["", ""]), "record_shapes=True"),
        (RecordedTexts("[[2]]", None, None, None), "element type of its argument 0"),
        (RecordedTexts("{", "[1]", None, None), "record_shapes=True"),
        (texts([[], []], ["TensorList", "Scalar"], [[], []], ["", "1"]), "sizes of its list of tensors"),
        (texts([[2], []], ["float", "Scalar"]), "value of its argument 1 is not recorded"),
        (texts([[2]], [""]), "element type of its argument 0"),
        (texts([[2]], ["QInt8"]), "is of type 'QInt8'"),
        (texts([["2"]], ["float"]), "sizes of its argument 0"),
        (texts([[-2]], ["float"]), "sizes of its argument 0"),
        (texts([[1 << 60]], ["float"]), "sizes of its argument 0"),
        (texts([[True]], ["float"]), "sizes of its argument 0"),
    ],
)
def test_what_is_lacking_is_named(recorded: RecordedTexts, reason: str) -> None:
    with pytest.raises(NotRecorded, match=reason):
        recorded_arguments(recorded)


@pytest.mark.parametrize(
    ("operator", "reason"),
    [
        *(("c10d::allreduce_", "collective"), ("nccl:all_reduce", "collective")),
        ("_c10d_functional::all_gather_into_tensor", "collective"),
        ("vllm::moe_forward", "not an operator of PyTorch itself"),
        ("autograd::engine::evaluate_function: MmBackward0", "function that calls operators"),
        *(("triton_poi_fused_add_0", "function that calls operators"), ("aten::from_file", "file")),
        *(("aten::save", "file"), ("aten::index", "list of indices")),
        *(("aten::_index_put_impl_", "list of indices"), ("aten::as_strided", "view")),
        ('aten::mm"); __import__("os").system("id") #', "not an operator"),
        *(("aten::mm\nimport os", "not an operator"), ("aten::__class__.__init__", "not an operator")),
    ],
)
def test_operators_that_are_not_reproduced(operator: str, reason: str) -> None:
    with pytest.raises(NotRecorded, match=reason):
        require_reproducible(operator)
    for one in ("aten::mm", "aten::index_select", "aten::_softmax", "aten::add_"):
        require_reproducible(one)
