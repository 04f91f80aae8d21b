# SPDX-License-Identifier: Apache-2.0
"""Calls whose cost the calls inside them tell: what PyTorch's profiler does not record of the call itself."""

from __future__ import annotations

from typing import Any

import pytest

from cclbench.operators.call import Call, NoModel, Tensor
from cclbench.operators.cost import cost_of


def bf16(*shape: int) -> Tensor:
    return Tensor(shape, "c10::BFloat16")


def i64(*shape: int) -> Tensor:
    return Tensor(shape, "long int")


def view(x: Tensor, shape: tuple[int, ...]) -> Call:
    return Call("aten::as_strided", (x, shape, (1,) * len(shape), 0))


def reshape(index: Tensor) -> Call:
    return Call("aten::reshape", (index, (*index.shape, 1)))


X, POSITIONS = bf16(9, 4), Call("aten::nonzero", (Tensor((9,), "bool"),))


@pytest.mark.parametrize(
    ("name", "arguments", "inner", "moved"),
    [
        # at 3 indices: 24 bytes of them, 3·4 elements of 2 bytes in and out
        ("aten::index", (X, None), (view(X, (3, 4)), reshape(i64(3))), (48, 24)),
        # 20 rows of 9: no more than all are read
        ("aten::index", (X, None), (view(X, (20, 4)), reshape(i64(20))), (160 + 72, 160)),
        # a mask: its positions (5, 1) are viewed as (5); the view of x itself has the result's shape
        (
            "aten::index",
            (X, None),
            (POSITIONS, view(i64(5, 1), (5,)), view(X, (5, 4)), reshape(i64(5))),
            (40 + 40, 40),
        ),
        # x[i] = v with 3 indices and one row v of 4, which is broadcast
        ("aten::index_put_", (X, None, bf16(4), False), (view(X, (3, 4)), reshape(i64(3))), (24 + 8, 24)),
    ],
)
def test_an_index_moves_a_row_for_each_index(
    name: str, arguments: tuple[Any, ...], inner: tuple[Call, ...], moved: tuple[int, int]
) -> None:
    cost = cost_of(Call(name, arguments, inner=inner))
    assert (cost.flops, cost.read_bytes, cost.written_bytes) == (0, *moved)


UP = "_matmul_ogs_NNT_bf16xbf16xmxfp4_16x128x256x1_swiglu"
DOWN = "_matmul_ogs_NNT_bf16xbf16xmxfp4_16x128x256x1"
MOE = (bf16(2, 64), bf16(2, 8), None, None)
"""2 tokens of 64 channels, 8 experts."""
BETWEEN = (
    Call("aten::empty", ((2, 3), 15)),
    Call("aten::empty", ((1, 6, 32), 15)),
    Call("aten::empty", ((1, 1, 6, 64), 15)),
)
"""Allocations of a layer: 3 experts a token, 32 channels between their products."""


def test_experts_sizes_are_those_of_the_tensor_between_their_products() -> None:
    """2·6·(2·32·64 + 64·32) = 73,728; 6 experts of 6,144 weights in 17/32 bytes, tokens 256, logits 32."""
    cost = cost_of(Call("vllm::moe_forward", MOE, ("_topk_forward", UP, DOWN), inner=BETWEEN))
    assert (cost.flops, cost.precision) == (73_728, "bf16")
    assert (cost.read_bytes, cost.written_bytes) == (6 * 6144 * 17 // 32 + 256 + 32, 256)
    # without a gate half of the first product
    plain = cost_of(Call("vllm::moe_forward", MOE, (DOWN, DOWN), inner=BETWEEN))
    assert plain.flops == 2 * 6 * 2 * 32 * 64


@pytest.mark.parametrize(
    ("kernels", "inner", "reason"),
    [
        ((UP, DOWN), (), "weights of its experts"),
        (("fused_moe_kernel",) * 2, BETWEEN, "weights of its experts"),
        ((UP, DOWN), (Call("aten::empty", ((1, 7, 32), 15)),), "do not fit"),
    ],
)
def test_experts_whose_sizes_are_not_recorded(
    kernels: tuple[str, ...], inner: tuple[Call, ...], reason: str
) -> None:
    with pytest.raises(NoModel, match=reason):
        cost_of(Call("vllm::moe_forward", MOE, kernels, inner=inner))
