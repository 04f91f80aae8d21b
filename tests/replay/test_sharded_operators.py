# SPDX-License-Identifier: Apache-2.0
"""What calls take when tensors are cut: by hand from their shapes, and of a recorded run."""

from __future__ import annotations

from pathlib import Path

import pytest

import cclbench
from cclbench.hardware import catalog
from cclbench.operators.call import Call, Tensor
from cclbench.replay.sharded_operators import BoundedFactor, TensorCutting, cut_kernels

H100 = catalog.accelerator("nvidia-h100-sxm")
HALF, WHOLE = BoundedFactor(0.5, 0.5, 0.5), BoundedFactor(1.0, 1.0, 1.0)


def product(m: int, k: int, n: int, name: str = "aten::mm") -> Call:
    return Call(name, (Tensor((m, k), "bf16"), Tensor((k, n), "bf16")))


def test_a_product_goes_as_its_flops_or_its_bytes() -> None:
    cutting = TensorCutting(2, hidden=8192, tokens=16384, accelerator=H100)
    for sizes in ((16384, 8192, 28672), (16384, 28672, 8192), (28672, 16384, 8192)):
        found = cutting.of_call(product(*sizes), "forward")
        assert found == pytest.approx(HALF, rel=1e-6)
    # 65,536 tokens of 64, by 64 x 128: of 4.19 + 0.008 + 8.39 million elements the first stay, half of
    # others
    m, k, n = 65_536, 64, 128
    cut = (m * k + k * n / 2 + m * n / 2) / (m * k + k * n + m * n)
    found = TensorCutting(2, hidden=k, tokens=m, accelerator=H100).of_call(product(m, k, n), "forward")
    assert found == pytest.approx(BoundedFactor(cut, cut, cut))
    unknown = TensorCutting(2, accelerator=H100).of_call(product(m, k, n), "forward")
    other = ((m * k / 2 + k * n + m * n / 2), (m * k / 2 + k * n / 2 + m * n))
    cuts = [cut, *(each / (m * k + k * n + m * n) for each in other)]
    assert (unknown.low, unknown.high) == pytest.approx((min(cuts), max(cuts)))


@pytest.mark.parametrize(
    ("call", "phase", "expected"),
    [
        (Call("aten::add", (Tensor((4, 128, 512), "bf16"),) * 2), "forward", WHOLE),
        (Call("aten::silu", (Tensor((4, 128, 1376), "bf16"),)), "forward", HALF),
        (Call("aten::_fused_adamw_", ((Tensor((512, 512), "float"),),)), "optimizer", HALF),
        (Call("aten::bmm", (Tensor((8, 64, 64), "bf16"),) * 2), "forward", HALF),
        (Call("aten::_scaled_dot_product_flash_attention"), "forward", HALF),
        (Call("aten::fill_"), "forward", None),
    ],
)
def test_other_calls(call: Call, phase: str, expected: BoundedFactor | None) -> None:
    assert TensorCutting(2, hidden=512).of_call(call, phase) == expected


def test_what_may_be_cut_or_not_lies_between() -> None:
    found = TensorCutting(4).of_call(Call("aten::add", (Tensor((4, 512), "bf16"),) * 2), "forward")
    assert found == BoundedFactor(0.5, 0.25, 1.0)
    assert TensorCutting(4, sequences=True).of_category("elementwise") == BoundedFactor(0.25, 0.25, 0.25)
    assert TensorCutting(4).of_category("normalization") == WHOLE
    assert TensorCutting(4).of_category("gemm") == BoundedFactor(0.25, 0.25, 0.25)
    # fewer ranks take longer
    assert TensorCutting(0.25).cut_factor == BoundedFactor(4.0, 4.0, 4.0)
    assert TensorCutting(0.25).cut_or_whole_factor == BoundedFactor(2.0, 1.0, 4.0)
    assert TensorCutting(4).cut_or_whole_factor == BoundedFactor(0.5, 0.25, 1.0)
    assert TensorCutting(4).of_category("other") == BoundedFactor(0.5, 0.25, 1.0)
    assert TensorCutting(4, sequences=True).of_category("normalization") == BoundedFactor(0.25, 0.25, 0.25)
    whole = Call("aten::add", (Tensor((4, 512), "bf16"),))
    assert TensorCutting(4, hidden=512).of_call(whole, "forward") == WHOLE
    cut = TensorCutting(4, hidden=512, sequences=True).of_call(whole, "forward")
    assert cut == BoundedFactor(0.25, 0.25, 0.25)
    scalar = Call("aten::fill_", (Tensor((), "bf16"),))
    assert TensorCutting(4).of_call(scalar, "forward") is None


def test_operators_of_a_recorded_run(repository: Path, tmp_path: Path) -> None:
    """Its products are most of the time and go as 1/2; what is added to activations of 512 stays."""
    run = cclbench.ingest(
        repository / "workload_cards" / "tiny-llama-operators-ddp2-gloo-cpu.yaml", store=tmp_path
    )
    found = cut_kernels(run, [0], TensorCutting(2, hidden=512, tokens=512))
    assert found.shaped > 0.95
    assert 0.5 < found.together.expected < 0.6
    assert found.together.low <= found.together.expected <= found.together.high
    same = cut_kernels(run, [0], TensorCutting(1, hidden=512, tokens=512))
    assert same.together == pytest.approx(WHOLE)


def test_a_product_is_cut_along_neither_tokens_nor_the_hidden_size() -> None:
    """Where sizes are both, any of them may be cut; FLOPs alone count where no accelerator is known."""
    alone = TensorCutting(4, hidden=512, tokens=128)
    assert alone.of_call(product(128, 512, 2048), "forward") == BoundedFactor(0.25, 0.25, 0.25)
    assert alone.of_call(product(128, 512, 512), "forward") == BoundedFactor(0.25, 0.25, 0.25)
    # of 6 columns a quarter is 2, not 1.5; never less than 1
    found = alone.of_call(product(128, 512, 6), "forward")
    assert found == pytest.approx(BoundedFactor(1 / 3, 1 / 3, 1 / 3))
    assert alone.of_call(product(128, 512, 1), "forward") == pytest.approx(WHOLE)
    # products by name and by their shapes
    first = Tensor((64,), "bf16")
    added = Call("aten::addmm", (first, Tensor((32, 16), "bf16"), Tensor((16, 64), "bf16")))
    assert TensorCutting(2).of_call(added, "forward") == pytest.approx(HALF)
    flat = Call("aten::mm", (Tensor((8,), "bf16"), Tensor((8, 4), "bf16")))
    assert TensorCutting(2).of_call(flat, "forward") in (HALF, None)
    assert TensorCutting(2).of_call(Call("aten::mm", ()), "forward") is None


@pytest.mark.parametrize("category", ["optimizer", "moe", "attention"])
def test_categories_that_are_cut(category: str) -> None:
    assert TensorCutting(3).of_category(category) == BoundedFactor(1 / 3, 1 / 3, 1 / 3)
