# SPDX-License-Identifier: Apache-2.0
"""Chains of calls that one kernel could be, and what that would read and write, by hand."""

from __future__ import annotations

import pytest

from cclbench.operators.call import Call, NoModel, Tensor
from cclbench.operators.chains import chains, fused_cost


def of(text: str) -> list[tuple[str, tuple[int, ...]]]:
    return [tuple(one) for one in chains([f"aten::{name}" for name in text.split()])]  # type: ignore[misc]


@pytest.mark.parametrize(
    ("calls", "found"),
    [
        ("bmm div add _softmax bmm", [("attention", (0, 1, 2, 3, 4))]),
        ("mm baddbmm _softmax copy_ bmm mm", [("attention", (1, 2, 3, 4))]),
        ("copy_ pow mean add rsqrt mul copy_ mul", [("norm", tuple(range(8)))]),
        ("pow mean add rsqrt mul mul", [("norm", tuple(range(6)))]),
        ("mm silu mm mul mm", [("activation", (1, 3))]),
        ("gelu mul", [("activation", (0, 1))]),
        ("mul neg cat mul add", [("rotary", (0, 1, 2, 3, 4))]),
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
        ("_scaled_dot_product_flash_attention mm", []),
        ("_fused_adamw_", []),
        ("_foreach_mul_ _foreach_add_ _foreach_norm _foreach_div_", []),
        ("bmm add bmm", []),
        ("mul add mul", []),
        ("rms_norm silu mm", []),
    ],
)
def test_what_is_a_chain(calls: str, found: list[tuple[str, tuple[int, ...]]]) -> None:
    assert of(calls) == found


def tensor(*shape: int, dtype: str = "c10::BFloat16") -> Tensor:
    return Tensor(shape, dtype)


def test_attention_as_one_kernel_keeps_its_scores_on_chip() -> None:
    """8 heads of 64 over 1024 tokens: four tensors of 1 MiB, 2 · 2 · 8 · 1024² · 64 FLOPs."""
    queries, keys = tensor(8, 1024, 64), tensor(8, 64, 1024)
    scores = tensor(8, 1024, 1024)
    calls = [
        Call("aten::bmm", (queries, keys)),
        Call("aten::_softmax", (scores, -1, False)),
        Call("aten::bmm", (scores, queries)),
    ]
    cost = fused_cost("attention", calls)
    assert (cost.flops, cost.precision, cost.bytes) == (4 * 8 * 1024**2 * 64, "bf16", 4 << 20)


def test_a_norm_reads_and_writes_once() -> None:
    entry = tensor(16, 1024)
    cast = Call("aten::copy_", (tensor(16, 1024, dtype="float"), entry, False))
    assert fused_cost("norm", [cast]).bytes == 2 * 16 * 1024 * 2
    assert fused_cost("norm", [Call("aten::pow", (entry, 2))]).bytes == 2 * 16 * 1024 * 2
    assert fused_cost("activation", [Call("aten::silu", (entry,))]).bytes == 3 * 16 * 1024 * 2


def test_an_update_moves_seven_times_the_parameters() -> None:
    """Parameter, gradient and two moments of 4 MB in, three of them out."""
    one = tensor(1_000_000, dtype="float")
    assert fused_cost("optimizer", [Call("aten::addcdiv_", (one, one, one, 1))]).bytes == 28_000_000


def test_without_arguments_it_costs_nobody_knows_what() -> None:
    with pytest.raises(NoModel):
        fused_cost("norm", [Call("aten::pow")])
