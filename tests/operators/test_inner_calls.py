# SPDX-License-Identifier: Apache-2.0
"""Calls whose cost the calls inside tell; chains of calls that one kernel could be."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cclbench.operators.call import Call, NoModel, Tensor
from cclbench.operators.chains import find_chains, fused_cost
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
BETWEEN = tuple(Call("aten::empty", (sizes, 15)) for sizes in ((2, 3), (1, 6, 32), (1, 1, 6, 64)))
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
def test_experts_of_unrecorded_sizes(kernels: tuple[str, ...], inner: tuple[Call, ...], reason: str) -> None:
    with pytest.raises(NoModel, match=reason):
        cost_of(Call("vllm::moe_forward", MOE, kernels, inner=inner))


def tensor(*shape: int, dtype: str = "c10::BFloat16") -> Tensor:
    return Tensor(shape, dtype)


def calls_on(x: Tensor, names: str) -> list[Call]:
    return [Call(f"aten::{name}", (x, x)) for name in names.split()]


def of(text: str, *sequence: int) -> list[tuple[str, tuple[int, ...]]]:
    calls = [Call(f"aten::{name}") for name in text.split()]
    numbers = np.array(sequence or [-1] * len(calls), np.int64)
    return [(one.kind, one.calls) for one in find_chains(calls, numbers)]


@pytest.mark.parametrize(
    ("calls", "found"),
    [
        ("bmm div add _softmax bmm", [("attention", (0, 1, 2, 3, 4))]),
        ("mm baddbmm _softmax copy_ bmm mm", [("attention", (1, 2, 3, 4))]),
        ("copy_ pow mean add rsqrt mul copy_ mul", [("norm", tuple(range(8)))]),
        ("pow mean add rsqrt mul mul", [("norm", tuple(range(6)))]),
        *(("mm silu mm mul mm", [("activation", (1, 3))]), ("gelu mul", [("activation", (0, 1))])),
        ("mul pow mul add mul tanh add mul mm", [("activation", tuple(range(8)))]),
        ("mul div erf add mul", [("activation", (0, 1, 2, 3, 4))]),
        ("mm sigmoid mul", [("activation", (1, 2))]),
        ("mul neg cat mul add", [("rotary", (0, 1, 2, 3, 4))]),
        ("mul mul sub mul mul add cat", [("rotary", tuple(range(7)))]),
        ("mean sub pow mean add sqrt div mul mm", [("norm", tuple(range(8)))]),
        # scaled_dot_product_attention in its math form, from bf16
        (
            "mm copy_ copy_ copy_ mul fill_ tril fill_ where mul bmm add_ _softmax isneginf all fill_ where"
            " copy_ bmm copy_ mm",
            [("attention", tuple(range(1, 20)))],
        ),
        ("bmm amax sub exp sum div bmm", [("attention", tuple(range(7)))]),
        ("mul_ lerp_ mul_ addcmul_ sqrt div add_ addcdiv_", [("optimizer", tuple(range(8)))]),
        (
            "lerp_ mul_ addcmul_ sqrt div add_ addcdiv_ lerp_ mul_ addcmul_ sqrt div add_ addcdiv_",
            [("optimizer", tuple(range(7))), ("optimizer", tuple(range(7, 14)))],
        ),
        (
            "_foreach_lerp_ _foreach_mul_ _foreach_addcmul_ _foreach_sqrt _foreach_addcdiv_",
            [("optimizer", (0, 1, 2, 3, 4))],
        ),
        # what one kernel does already, and what is no chain
        *(("_scaled_dot_product_flash_attention mm", []), ("_fused_adamw_", [])),
        *(("_foreach_mul_ _foreach_add_ _foreach_norm _foreach_div_", []), ("bmm add bmm", [])),
        *(("mul add mul", []), ("rms_norm silu mm", [])),
    ],
)
def test_what_is_a_chain(calls: str, found: list[tuple[str, tuple[int, ...]]]) -> None:
    assert of(calls) == found


def test_what_computes_the_gradients_of_a_chain_is_one_too() -> None:
    """By autograd's numbers; what stands apart in a chain, as the product in SwiGLU, stays apart."""
    text = "silu mm mul mm  mm mm mul mul mm mm silu_backward"
    numbers = (7, 8, 9, 10, 10, 10, 9, 9, 8, 8, 7)
    assert of(text, *numbers) == [("activation", (0, 2)), ("activation", (6, 7, 10))]
    # between the products of attention all is its own
    text = "bmm div _softmax bmm  bmm bmm _softmax_backward_data div bmm bmm add_"
    numbers = (3, 4, 5, 7, 7, 7, 5, 4, 3, 3, 2)
    assert of(text, *numbers) == [("attention", (0, 1, 2, 3)), ("attention", (4, 5, 6, 7, 8, 9))]


def test_gradients_of_one_chain_have_none_of_their_own() -> None:
    """A chain of the backward pass, such as scores that are computed again: what follows it with the same
    numbers computes other gradients of the forward pass."""
    text = "bmm mul _softmax bmm  bmm mul _softmax bmm mm mm"
    again = [("attention", (0, 1, 2, 3)), ("attention", (4, 5, 6, 7))]
    assert of(text, *[3] * 4, *[7] * 6) == [again[0], again[1], ("attention", (8, 9))]
    assert of(f"mm {text}", 7, *[3] * 4, *[7] * 6) == [
        (kind, tuple(index + 1 for index in calls)) for kind, calls in again
    ]


def test_products_around_another_softmax_are_no_attention() -> None:
    """The router of experts: its softmax is not of what the first product gives out."""
    first = Call("aten::bmm", (tensor(8, 128, 64), tensor(8, 64, 256)))
    last = Call("aten::bmm", (tensor(8, 128, 256), tensor(8, 256, 64)))
    softmax = Call("aten::_softmax", (tensor(1024, 8), -1, False))
    assert list(find_chains([first, softmax, last], np.full(3, -1))) == []


QUERIES, KEYS = (8, 1024, 64), (8, 64, 1024)


@pytest.mark.parametrize("widened", [False, True])
def test_attention_as_one_kernel_keeps_its_scores_on_chip(widened: bool) -> None:
    """8 heads of 64 over 1024 tokens: four tensors of 1 MiB, 2 · 2 · 8 · 1024² · 64 FLOPs, also where it was
    computed in fp32 from bf16; its gradients: 2.5 times the FLOPs, twice the bytes."""
    dtype = "float" if widened else "c10::BFloat16"
    queries, scores = tensor(*QUERIES, dtype=dtype), tensor(8, 1024, 1024, dtype=dtype)
    calls = [
        *[Call("aten::copy_", (queries, tensor(*QUERIES), False))] * widened,
        Call("aten::bmm", (queries, tensor(*KEYS, dtype=dtype))),
        *(Call("aten::_softmax", (scores, -1, False)), Call("aten::bmm", (scores, queries))),
    ]
    cost = fused_cost("attention", calls)
    assert (cost.flops, cost.precision, cost.bytes) == (4 * 8 * 1024**2 * 64, "bf16", 4 << 20)
    back = fused_cost("attention", calls, backward=True)
    assert (back.flops, back.precision, back.bytes) == (10 * 8 * 1024**2 * 64, "bf16", 8 << 20)


INPUT, WIDE = tensor(64, 1024), tensor(64, 1024, dtype="float")
HALF, LISTED, MILLION = tensor(8, 1024, 64), Tensor(QUERIES, ""), tensor(1_000_000, dtype="float")
CAST = Call("aten::copy_", (WIDE, INPUT, False))
NEAR = [CAST, Call("aten::sub", (WIDE, tensor(64, 1, dtype="float"), 1))]
ONCE = 64 * 1024 * 2
"""Bytes of X."""


@pytest.mark.parametrize(
    ("kind", "calls", "moved"),
    [
        # two halves of 1 MiB in and out
        ("rotary", [Call("aten::mul", (HALF, HALF)), Call("aten::cat", ((LISTED, LISTED),))], 4 << 20),
        # in and out once, in the type before it was widened
        *(("norm", [CAST], 2 * ONCE), ("norm", [Call("aten::pow", (INPUT, 2))], 2 * ONCE)),
        # a gate reads two, GELU by its formula one
        ("activation", [Call("aten::silu", (INPUT,))], 3 * ONCE),
        ("activation", calls_on(INPUT, "sigmoid mul"), 3 * ONCE),
        ("activation", calls_on(INPUT, "mul pow mul add mul tanh add mul"), 2 * ONCE),
        # parameter, gradient and two moments of 4 MB in, three of them out
        ("optimizer", [Call("aten::addcdiv_", (MILLION, MILLION, MILLION, 1))], 28_000_000),
        # neighbours in the smallest type that reads, and that writes; or only a sum of each row
        ("neighbours", NEAR, 64 * 1024 * (4 + 4)),
        ("neighbours", [Call("aten::exp", (INPUT,)), *NEAR], 2 * ONCE),
        (
            "neighbours",
            [Call("aten::exp", (INPUT,)), *NEAR, Call("aten::sum", (WIDE, (-1,), True))],
            ONCE + 64 * 4,
        ),
    ],
)
def test_one_kernel_reads_and_writes_once(kind: str, calls: list[Call], moved: int) -> None:
    assert fused_cost(kind, calls).bytes == moved


def test_without_arguments_it_costs_nobody_knows_what() -> None:
    with pytest.raises(NoModel):
        fused_cost("norm", [Call("aten::pow")])


def neighbours(*calls: Call) -> list[tuple[int, ...]]:
    found = find_chains(calls, np.full(len(calls), -1, np.int64))
    return [one.calls for one in found if one.kind == "neighbours"]


def test_neighbours_are_elementwise_calls_copies_and_reductions_on_as_many_elements() -> None:
    """A loss by its formula: the calls on one value a row do not separate it, a lookup and a product do."""
    x, row, target = tensor(64, 1024, dtype="float"), tensor(64, 1, dtype="float"), tensor(64, dtype="long")
    cast = Call("aten::copy_", (x, tensor(64, 1024), False))
    loss = [
        *(cast, Call("aten::amax", (x, (-1,), True)), Call("aten::sub", (x, row, 1))),
        *(Call("aten::exp", (x,)), Call("aten::sum", (x, (-1,), True)), Call("aten::mul", (row, row))),
        Call("aten::div", (x, row)),
    ]
    lookup = Call("aten::scatter_", (x, 1, target, 1))
    product = Call("aten::mm", (x, x))
    assert neighbours(*loss, lookup, loss[2], loss[3], product, loss[3]) == [tuple(range(7)), (8, 9)]
    assert neighbours(product, loss[3], product, loss[3], loss[5]) == []
    # a call on twice as many elements is on other data
    wide = Call("aten::exp", (tensor(128, 1024, dtype="float"),))
    assert neighbours(loss[3], wide, wide, loss[3]) == [(1, 2)]
    # nor does a small one begin a chain, or end it
    assert neighbours(loss[5], loss[3], loss[6], loss[5]) == [(1, 2)]
