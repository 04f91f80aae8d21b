# SPDX-License-Identifier: Apache-2.0
"""Kernels on another accelerator: by hand with a table of two families; a workload traced on two.

A100 80 GB: 271 TFLOP/s attained in bf16, 2.039 TB/s; H100: 794.5 and 3.35.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from helpers.machine_trace import BF16, Op, product, write_trace

import cclbench
from cclbench.ground.errors import InputError
from cclbench.hardware import catalog
from cclbench.hardware.kernel_rates import FamilyRate, FamilySpread, KernelRates, kernel_rates, pair_rates
from cclbench.replay import nodes as n
from cclbench.replay import other_accelerator
from cclbench.replay.answer import Replay
from cclbench.replay.other_accelerator import KernelRatios, kernel_ratios
from cclbench.replay.scenario import parse_scenario

A100, H100 = "nvidia-a100-sxm-80gb", "nvidia-h100-sxm"
ANY = {"any": FamilyRate(4, 5_000.0, 0.5), "nvidia": FamilyRate(2, 4_000.0, 0.5)}
PRODUCTS = {A100: FamilyRate(2, 10_000.0, 0.8), H100: FamilyRate(1, 2_000.0, 0.9)}
RATES = {"any": ANY, "gemm": PRODUCTS | {"any": FamilyRate(3, 6_000.0, 0.85)}}
SPREADS = {"any": FamilySpread(4, 0.5, 0.7), "gemm": FamilySpread(3, 0.3, 0.4)}
TABLE = KernelRates("2026-11-27", "0", RATES, SPREADS, 0.25, ())
GEMM = product(4096, "ampere_bf16_s16816gemm_bf16_128x256_ldg8_f2f_stages_64x3_tn", 1_000, BF16)
ADD = Op(
    "aten::add", "void at::native::vectorized_elementwise_kernel<4, add>()", 400, [[4096, 4096], [4096, 4096]]
)
GEMM_NS = (2 * 4096**3 / 271e12 * 1e9, 2 * 4096**3 / 794.5e12 * 1e9)
ADD_NS = (3 * 4096**2 * 4 / 2.039e12 * 1e9, 3 * 4096**2 * 4 / 3.35e12 * 1e9)
WIDTH = 1.2816 * math.sqrt(2)


@pytest.fixture
def by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(other_accelerator, "kernel_rates", lambda: TABLE)


def replay_of(folder: Path, ops: list[Op], device: str = "a100") -> Replay:
    write_trace(folder / "traces", ops, device=device)
    return Replay(cclbench.ingest(folder / "traces", store=folder / "store"))


def ratios_of(replay: Replay, target: str, precision: str | None = None) -> tuple[KernelRatios, list[int]]:
    """Ratios of all nodes, and which are kernels."""
    device = replay.machine.accelerator.value
    assert device is not None
    found = kernel_ratios(replay.graph, replay.costs, device, catalog.accelerator(target), precision)
    return found, np.flatnonzero(replay.graph.nodes.kind == n.COMPUTE).tolist()


@pytest.mark.usefixtures("by_hand")
def test_a_family_that_both_have(tmp_path: Path) -> None:
    """Small kernels 10 and 2 µs, 80 and 90 % of the roofline; four captures in five within e^(1.81 · 0.3)."""
    found, [kernel, *_] = ratios_of(replay_of(tmp_path, [GEMM]), H100)
    ratio = (2_000 + GEMM_NS[1] / 0.9) / (10_000 + GEMM_NS[0] / 0.8)
    assert found.expected[kernel] == pytest.approx(ratio, rel=1e-3)
    assert found.low[kernel] == pytest.approx(ratio / math.exp(0.3 * WIDTH), rel=1e-3)
    assert found.high[kernel] == pytest.approx(ratio * math.exp(0.3 * WIDTH), rel=1e-3)
    assert found.host_factor == pytest.approx(math.exp(0.25 * WIDTH), rel=1e-3)


@pytest.mark.usefixtures("by_hand")
def test_a_family_that_no_capture_on_the_target_has(tmp_path: Path) -> None:
    """The figures of all accelerators on both, the vendor's small kernels, and a wider spread."""
    found, [kernel, *_] = ratios_of(replay_of(tmp_path, [ADD]), H100)
    ratio = (4_000 + ADD_NS[1] / 0.5) / (4_000 + ADD_NS[0] / 0.5)
    assert found.expected[kernel] == pytest.approx(ratio, rel=1e-3)
    assert found.high[kernel] == pytest.approx(ratio * math.exp(0.7 * WIDTH), rel=1e-3)
    assert any(f"not known of {H100}" in note and "elementwise" in note for note in found.basis)


@pytest.mark.usefixtures("by_hand")
def test_families_deviate_independently(tmp_path: Path) -> None:
    """Widths of all kernels together add as squares, each weighted with its family's new time."""
    found, [gemm, add, *_] = ratios_of(replay_of(tmp_path, [GEMM, ADD]), H100)
    widths = [found.expected[gemm] * 1_000 * 0.3, found.expected[add] * 400 * 0.7]
    kept = math.hypot(*widths) / sum(widths)
    assert found.high[gemm] / found.expected[gemm] == pytest.approx(math.exp(0.3 * WIDTH * kept), rel=1e-3)
    assert found.high[add] / found.expected[add] == pytest.approx(math.exp(0.7 * WIDTH * kept), rel=1e-3)


@pytest.mark.usefixtures("by_hand")
def test_a_product_without_shapes_is_of_arithmetic_or_memory(tmp_path: Path) -> None:
    """80 % of what a kernel takes beyond a small one is its roofline time."""
    unshaped = Op("aten::mm", GEMM.kernel, 1_000, [])
    found, [kernel, *_] = ratios_of(replay_of(tmp_path, [unshaped]), H100, "bf16")
    assumed = (1_000_000 - 10_000) * 0.8
    ratio = (2_000 + assumed * 271 / 794.5 / 0.9) / 1_000_000
    assert found.expected[kernel] == pytest.approx(ratio, rel=1e-3)
    found, [kernel, *_] = ratios_of(replay_of(tmp_path, [unshaped]), H100)
    assert np.isnan(found.expected[kernel])  # of which precision, or memory, is unknown
    most = (2_000 + assumed * 2.039 / 3.35 / 0.9) / 1_000_000
    assert found.high[kernel] == pytest.approx(most * math.exp(0.3 * WIDTH), rel=1e-3)


def test_a_precision_that_the_target_lacks_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nvidia-v100-sxm2-16gb has no bf16 rate"):
        ratios_of(replay_of(tmp_path, [GEMM]), "nvidia-v100-sxm2-16gb")


def test_the_same_processors_run_the_same_kernels(tmp_path: Path) -> None:
    """H100 and H200 differ in memory: no spread of captures, and the host stays."""
    found, [kernel, *_] = ratios_of(replay_of(tmp_path, [GEMM], "h100"), "nvidia-h200-sxm")
    assert (found.expected[kernel], found.high[kernel], found.host_factor) == (1.0, 1.0, 1.0)
    assert found.low[kernel] == pytest.approx(3.35 / 4.8, rel=1e-2)


def test_the_scopes_of_a_pair() -> None:
    """Both have products; of an A100 and an MI300X both figures are those of all."""
    a100, h100, amd = (catalog.accelerator(name) for name in (A100, H100, "amd-mi300x"))
    assert pair_rates(TABLE, "gemm", a100, h100)[:2] == ((10_000, 2_000), (0.8, 0.9))
    assert pair_rates(TABLE, "gemm", a100, amd)[:2] == ((6_000, 6_000), (0.85, 0.85))
    assert pair_rates(TABLE, "attention", a100, h100)[:2] == ((4_000, 4_000), (0.5, 0.5))


def test_the_shipped_table() -> None:
    """Every figure is a share or a time, and every spread has its captures."""
    table = kernel_rates()
    assert len(table.captures) >= 15
    assert len({capture.accelerator for capture in table.captures}) >= 4
    for family, scopes in table.rates.items():
        assert scopes["any"].captures == table.spread[family].captures
        assert all(rate.share is None or 0 < rate.share <= 1 for rate in scopes.values())
        assert all(rate.small_ns is None or 500 < rate.small_ns < 50_000 for rate in scopes.values())
    assert all((spread.seen or 0) <= spread.unseen for spread in table.spread.values())


def test_a_workload_that_was_traced_on_both(test_data: Path, evidence_store: Path) -> None:
    """Qwen1.5-0.5B on an H100; on an MI300X a step took 33.1 ms, its kernels 29.7 ms (TraceLens,
    tests/traces/mi300, the trace of the same name)."""
    replay = Replay(cclbench.ingest(test_data / "kineto" / "h100_qwen", store=evidence_store))
    outcome = replay.predict(parse_scenario(["accelerator=amd-mi300x"]))
    assert outcome.low_ns < 33.13e6 < outcome.high_ns
    found, kernels = ratios_of(replay, "amd-mi300x")
    low, high = ((replay.graph.nodes.dur * bound)[kernels].sum() for bound in (found.low, found.high))
    assert low < 29.74e6 < high < 2.5 * low


def test_a_host_bound_step_says_so(tmp_path: Path) -> None:
    """Ops of 1 µs, launched one after the other."""
    small = [Op("aten::add", ADD.kernel, 1, [[16], [16]])] * 20
    outcome = replay_of(tmp_path, small).predict(parse_scenario([f"accelerator={H100}"]))
    assert any("the host bounds the step" in note for note in outcome.basis)
    assert outcome.low_ns < outcome.high_ns


GFLOP = 2 * 4096**3 / 1e9
MB = 3 * 4096**2 * 4 / 1e6
SGEMM = product(4096, "ampere_sgemm_128x128_tn", 8_000)


def gains_us(folder: Path, ops: list[Op], *settings: str, device: str = "a100") -> tuple[float, float]:
    """What a step is shorter, at least and at most, µs."""
    write_trace(folder / "traces", ops, device=device)
    run = cclbench.ingest(folder / "traces", store=folder / "store")
    found = cclbench.whatif(run, *settings)
    only = found.single_outcome
    return tuple((found.unchanged.step_ns - ns) / 1e3 for ns in (only.high_ns, only.low_ns))  # type: ignore[return-value]


def test_a_product_of_fp32_on_tensor_cores(tmp_path: Path) -> None:
    """At most 271 TFLOP/s; at least what lies beyond its arithmetic, 7,048 µs, and that at 124.8 TFLOP/s."""
    least, most = gains_us(tmp_path, [SGEMM], "kernels.time=tensor_cores")
    assert most == pytest.approx(8_000 - GFLOP / 271e3 * 1e6, rel=1e-3)
    assert least == pytest.approx(GFLOP / 19.5e3 * 1e6 - GFLOP / (0.8 * 156e3) * 1e6, rel=1e-3)


def test_a_v100_has_fp16_alone(tmp_path: Path) -> None:
    """125 TFLOP/s instead of 15.7: 1,099 to 1,374 µs instead of 8,754 and what lies beyond."""
    ops = [product(4096, "volta_sgemm_128x128_tn", 9_000)]
    least, most = gains_us(tmp_path, ops, "kernels.time=tensor_cores", device="v100")
    assert most == pytest.approx(9_000 - GFLOP / 125e3 * 1e6, rel=1e-3)
    assert least == pytest.approx(GFLOP * 1e6 * (1 / 15.7e3 - 1 / 100e3), rel=1e-3)


def test_what_is_at_the_roofline(tmp_path: Path) -> None:
    """A product of bf16 of 1,000 µs takes 507 at 271 TFLOP/s, 564 at 0.9 of that; a copy-like one of 201 MB
    99 µs, 123 at 80 % of the bandwidth."""
    ops = [GEMM, ADD]
    least, most = gains_us(tmp_path, ops, "kernels[gemm].time=roofline")
    assert most == pytest.approx(1_000 - GFLOP / 271e3 * 1e6, rel=1e-3)
    assert least == pytest.approx(1_000 - GFLOP / (0.9 * 271e3) * 1e6, rel=1e-3)
    least, most = gains_us(tmp_path / "2", ops, "kernels[elementwise].time=roofline")
    assert most == pytest.approx(400 - MB / 2.039, rel=1e-3)
    assert least == pytest.approx(400 - MB / 2.039 / 0.8, rel=1e-3)


def test_no_kernel_is_bounded_twice(tmp_path: Path) -> None:
    """What a product without tensor cores takes on them counts, not its roofline in fp32 as well."""
    settings = ("kernels[gemm].time=roofline", "kernels.time=tensor_cores")
    least, most = gains_us(tmp_path, [SGEMM], *settings)
    alone = gains_us(tmp_path / "2", [SGEMM], settings[1])
    assert (least, most) == alone


def test_a_kernel_gains_no_less_than_an_empty_one_takes(tmp_path: Path) -> None:
    """64³ take 0.02 µs at the roofline; that 3 µs become less than 2 is not counted on."""
    small = product(64, "ampere_bf16_s16816gemm_bf16_64x64_tn", 3, BF16)
    least, most = gains_us(tmp_path, [SGEMM] + [small] * 20, "kernels[name~bf16].time=roofline")
    assert least == pytest.approx(20 * 1, rel=0.01)
    assert most == pytest.approx(20 * (3 - 3 * 64 * 64 * 2 / 2.039e6), rel=0.01)


def test_without_shapes_no_roofline_is_known_and_peaks_bound_what_tensor_cores_gain(tmp_path: Path) -> None:
    op = Op("aten::mm", "ampere_sgemm_128x128_tn", 8_000)
    with pytest.raises(InputError, match="are unknown"):
        gains_us(tmp_path, [op], "kernels.time=roofline")
    least, most = gains_us(tmp_path / "2", [op], "kernels.time=tensor_cores")
    assert (least, most) == pytest.approx((8_000 * (1 - 19.5 / 124.8), 8_000 * (1 - 19.5 / 271)), rel=1e-3)


def test_what_is_on_tensor_cores_already_stays(tmp_path: Path) -> None:
    op = product(4096, "ampere_bf16_s16816gemm_bf16_128x64_tn", 800, BF16)
    assert gains_us(tmp_path, [op], "kernels.time=tensor_cores") == (0, 0)
