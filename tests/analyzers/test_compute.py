# SPDX-License-Identifier: Apache-2.0
"""Compute: hand-made ranks whose answers can be worked out on paper."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from helpers.hand_made import (
    a_rank,
    card,
    collective,
    comm,
    compute,
    event,
    main,
    reason,
    rows_of,
    values,
    window,
)

from cclbench.analyzers.metric import Coverage

NS = 1e-9


@pytest.fixture
def chip(monkeypatch: pytest.MonkeyPatch) -> None:
    """The card's accelerator, made up: 1e12 FLOP/s in bf16, 100 multiprocessors; no other is known."""
    made = SimpleNamespace(id="chip", peak_flops_per_s={"bf16": 1e12}, hbm_bytes_per_s=None, sm_count=100)
    monkeypatch.setattr("cclbench.hardware.catalog.accelerators", lambda: {"nvidia-a100-sxm-80gb": made})


def test_time_and_busy() -> None:
    rank = a_rank([compute(0, 10), compute(5, 30, track=9), comm(20, 60)], [window(0, 100)])
    assert main(rank, "compute.time") == pytest.approx(30 * NS)
    assert main(rank, "compute.busy") == pytest.approx(0.3)


# The card's model: 1000 parameters beside the embedding, 1 layer, 2 heads of 5, 10 tokens a sample:
# training 6·1000 + 12·1·2·5·10 = 7200 FLOPs a token, 4 samples: 288,000 FLOPs a step, on 2 devices of
# 1e12 FLOP/s. A step of 200 ns could do 400,000: MFU 0.72, however little of it kernels run.


@pytest.mark.usefixtures("chip")
def test_mfu_counts_idle_time() -> None:
    rank = a_rank([compute(0, 1)], [window(0, 200, 1)], card=card())
    run, step = rows_of("compute.mfu", rank)
    assert (run["value"], run["rank"], run["provenance"]) == (pytest.approx(0.72), None, "derived")
    assert step["value"] == pytest.approx(0.72)


def mfu(**changes: object) -> dict[str | None, float]:
    """The run's MFU with steps of 200 and 300 ns on two ranks, the second the slower in the first step."""
    steps = ([window(0, 200, 1), window(200, 500, 2)], [window(0, 240, 1), window(240, 500, 2)])
    ranks = [
        a_rank([compute(0, 1)], windows, card=card(**changes), rank=i) for i, windows in enumerate(steps)
    ]
    rows = rows_of("compute.mfu", *ranks)
    return {row["stat"]: row["value"] for row in rows if row["step"] is None}


@pytest.mark.usefixtures("chip")
def test_mfu_stands_beside_what_the_attention_that_the_card_states_computes() -> None:
    """The slowest rank's steps take 240 and 300 ns: 540,000 FLOPs a step on two devices.

    A causal sample of 10 tokens has 55 pairs of tokens rather than 100; in a window of 4 the first tokens
    have 1, 2, 3 and 4, the six others 4 each: 34.  A pair takes 12·1·2·5 = 120 FLOPs in training.
    """
    products, most = 4 * 6 * 1000 * 10, 540_000
    full = pytest.approx((products + 4 * 120 * 100) / most)
    assert mfu() == {None: full}
    assert mfu(workload__model__attention="full") == {None: full}
    causal = pytest.approx((products + 4 * 120 * 55) / most)
    assert mfu(workload__model__attention="causal") == {None: full, "causal": causal}
    windowed = {"workload__model__attention": "window", "workload__model__attention_window": 4}
    assert mfu(**windowed) == {None: full, "window": pytest.approx((products + 4 * 120 * 34) / most)}
    # A window that holds the whole sample is causal attention.
    wide = windowed | {"workload__model__attention_window": 11}
    assert mfu(**wide) == {None: full, "window": causal}


@pytest.mark.usefixtures("chip")
def test_mfu_above_one_is_a_failed_result_and_no_number() -> None:
    def failed(ns: int, **changes: object) -> str:
        (only,) = rows_of("compute.mfu", a_rank([compute(0, 1)], [window(0, ns, 1)], card=card(**changes)))
        assert (only["status"], only["value"]) == ("failed", None)
        return str(only["reason"])

    assert "1.44 of the devices' peak: card and trace disagree" in failed(100)
    # By causal attention 266,400 FLOPs: more than 200,000, and less than the 280,000 of a step of 140 ns.
    causal = {"workload__model__attention": "causal"}
    assert "1.44 of the devices' peak, 1.33 by causal attention: card and trace" in failed(100, **causal)
    assert "0.951 by causal attention: attention is not over all pairs" in failed(140, **causal)
    # 20 samples take 1,332,000 FLOPs then, all that two devices could do in 666 ns.
    just = failed(666, **causal, workload__batch={"global": 20, "sequence_length": 10})
    assert "1.08 of the devices' peak, 1 by causal attention: attention is not over all pairs" in just


@pytest.mark.usefixtures("chip")
def test_mfu_of_one_is_a_number() -> None:
    """288,000 FLOPs on two devices take 144 ns at their peak."""
    assert main(a_rank([compute(0, 1)], [window(0, 144, 1)], card=card()), "compute.mfu") == 1
    (failed,) = rows_of("compute.mfu", a_rank([compute(0, 1)], [window(0, 143, 1)], card=card()))
    assert failed["status"] == "failed"


@pytest.mark.usefixtures("chip")
def test_mfu_names_what_is_missing() -> None:
    def why(**changes: object) -> str:
        return reason(a_rank([compute(0, 1)], [window(0, 200, 1)], card=card(**changes)), "compute.mfu")

    assert why(workload__model__heads=None) == "the workload card lacks workload.model.heads"
    assert "workload.model.active_parameters" in why(workload__model__moe=True)
    assert "hardware.count" in why(hardware__count=None)
    assert why(workload__precision="fp8") == "the catalog has no dense fp8 peak of chip"
    assert "card (hardware.accelerator)" in why(hardware__accelerator=None)
    assert "no accelerator 'nvidia-a999'" in why(hardware__accelerator="nvidia-a999")
    assert "decode" in why(workload__phase="serving")
    assert "decode" in why(workload__phase="inference", workload__batch__output_length=128)
    cpu = a_rank([event("op", 0, 10)], [window(0, 200, 1)], card=card(), works_on="host")
    assert "the CPU is the device" in reason(cpu, "compute.mfu")


@pytest.mark.usefixtures("chip")
def test_a_card_that_does_not_say_how_large_the_head_is_has_no_mfu() -> None:
    def why(**changes: object) -> str:
        return reason(a_rank([compute(0, 1)], [window(0, 200, 1)], card=card(**changes)), "compute.mfu")

    without = "the workload card lacks workload.model.{}, without which the output head's product"
    assert why(workload__model__tied_embeddings=None).startswith(without.format("tied_embeddings"))
    for size in ("vocabulary", "hidden"):
        unknown = {f"workload__model__{size}": None}
        assert why(workload__model__tied_embeddings=True, **unknown).startswith(without.format(size))
        assert why(workload__phase="inference", **unknown).startswith(without.format(size))
        # An own head's parameters are among those that training multiplies by.
        rank = a_rank([compute(0, 1)], [window(0, 200, 1)], card=card(**unknown))
        assert main(rank, "compute.mfu") == pytest.approx(0.72)


def test_achieved_flops_over_the_window_not_over_the_kernels() -> None:
    rows = [compute(0, 10, flops=3e3), compute(10, 20, flops=5e3), compute(150, 160, flops=7e3)]
    assert main(a_rank(rows, [window(0, 100)]), "compute.achieved_flops") == pytest.approx(8e3 / 100e-9)
    assert "states its FLOPs" in reason(a_rank([compute(0, 1)], [window(0, 9)]), "compute.achieved_flops")


def test_achieved_flops_leave_communication_out_and_count_what_is_silent() -> None:
    rows = [compute(0, 10, flops=3e3), comm(20, 40, flops=9e3), compute(50, 53)]
    own = values(a_rank(rows, [window(0, 100)]), "compute.achieved_flops")[0]
    assert own.value == pytest.approx(3e3 / 100e-9)
    assert (own.words, own.coverage) == ("left out: 1 kernels of unknown FLOPs", Coverage(1, 2, 10, 13))
    assert own.provenance == "measured"


@pytest.mark.usefixtures("chip")
def test_hfu_is_what_ran_over_the_peak() -> None:
    """80,000 FLOPs, of the 100,000 that 1e12 FLOP/s do in 100 ns, one kernel of unknown ones beside them."""
    rows = [compute(0, 10, flops=3e4), compute(10, 20, flops=5e4), compute(50, 53)]
    own = values(a_rank(rows, [window(0, 100)], card=card()), "compute.hfu")[0]
    assert own.value == pytest.approx(0.8)
    assert own.coverage == Coverage(2, 3, 20, 23)
    failed, *_ = rows_of("compute.hfu", a_rank(rows, [window(0, 79)], card=card()))
    assert (failed["status"], failed["value"]) == ("failed", None)
    assert "1.01 of the device's peak" in str(failed["reason"])
    assert "needs a workload card" in reason(a_rank(rows, [window(0, 100)]), "compute.hfu")


def occurrences(*lengths: int, **columns: object) -> list:
    """Ranks with one kernel of 10 ns each, in windows of those lengths."""
    return [
        a_rank([compute(0, 10, **columns)], [window(0, length)], rank=rank, sm_count=8)
        for rank, length in enumerate(lengths)
    ]


def test_ranks_flops_are_over_their_windows() -> None:
    (run, *_) = rows_of("compute.achieved_flops", *occurrences(100, 300, flops=6e3))
    assert run["value"] == pytest.approx(12e3 / 400e-9)


def test_ranks_shares_count_by_their_kernels_time() -> None:
    """Of 40 ns of kernels 10 are gemm on one rank, of 60 ns 50 on the other."""
    ranks = [
        a_rank(
            [compute(0, own), event("kernel", own, whole, category="other", name="zzz", blocks=4)],
            [window(0, 100)],
            rank=rank,
        )
        for rank, (own, whole) in enumerate(((10, 40), (50, 60)))
    ]
    run = {
        row["category"] or row["stat"]: row["value"]
        for row in rows_of("compute.category_share", *ranks)
        if row["rank"] is None
    }
    assert run == pytest.approx({"classified": 60 / 100, "gemm": 60 / 100, "other": 40 / 100})
    run = {
        row["category"]: row["value"]
        for row in rows_of("compute.dominant_kernel", *ranks)
        if row["rank"] is None
    }
    assert run == pytest.approx({None: (30 + 50) / 100, "gemm": 60 / 100, "zzz": 40 / 100})


def test_ranks_coverages_of_multiprocessors_count_by_their_kernels_time() -> None:
    ranks = [
        a_rank([compute(0, ns, blocks=blocks)], [window(0, 100)], sm_count=8, rank=rank)
        for rank, (ns, blocks) in enumerate(((10, 2), (30, 8)))
    ]
    assert rows_of("compute.sm_coverage", *ranks)[0]["value"] == pytest.approx((10 * 2 + 30 * 8) / (40 * 8))


def test_category_share_is_of_the_union_of_kernels() -> None:
    rows = [
        compute(0, 40),
        compute(0, 40, track=9),
        event("kernel", 40, 50, category="other"),
        comm(30, 80),
        event("copy", 80, 90),
    ]
    rank = a_rank(rows, [window(0, 100)])
    found = {v.category or v.stat: v.value for v in values(rank, "compute.category_share")}
    shares = {"communication": 50 / 80, "gemm": 40 / 80, "other": 10 / 80}
    assert found == pytest.approx(shares | {"classified": 1.0})
    without = a_rank([compute(0, 60), event("kernel", 60, 80, category="other")], [window(0, 80)])
    (classified, *_) = values(without, "compute.category_share")
    assert (classified.stat, classified.value) == ("classified", pytest.approx(0.75))


def test_dominant_kernel_by_base_name_in_steady_steps() -> None:
    rows = [
        compute(0, 30, name="void gemm<float, 128>(float*)"),
        compute(30, 50, name="void gemm<float, 64>(float*)"),
        compute(50, 75, name="norm"),
        compute(100, 125, name="norm"),
        # A step of warm-up, more than twice as long as the median one.
        compute(200, 700, name="norm"),
    ]
    rank = a_rank(rows, [window(0, 100, 1), window(100, 200, 2), window(200, 900, 3)])
    own, named = values(rank, "compute.dominant_kernel")
    assert (own.value, own.reason) == (0.5, "gemm")
    assert (named.value, named.category) == (0.5, "gemm")


def test_of_kernels_that_take_as_long_the_first_by_name_dominates() -> None:
    rank = a_rank(
        [compute(0, 20, name="b"), compute(20, 40, name="a"), compute(40, 50, name="c")], [window(0, 50)]
    )
    assert [(v.value, v.reason, v.category) for v in values(rank, "compute.dominant_kernel")] == [
        (0.4, "a", None),
        (0.4, None, "a"),
    ]


@pytest.mark.parametrize(("length", "dominant"), [(200, "late"), (201, "early")])
def test_a_step_of_twice_the_median_length_is_steady(length: int, dominant: str) -> None:
    rows = [compute(0, 30, name="early"), compute(200, 290, name="late")]
    rank = a_rank(rows, [window(0, 100, 1), window(100, 200, 2), window(200, 200 + length, 3)])
    assert values(rank, "compute.dominant_kernel")[0].reason == dominant


def test_kernels_without_duration_dominate_nothing() -> None:
    rank = a_rank([compute(5, 5)], [window(0, 50)])
    assert reason(rank, "compute.dominant_kernel") == "the kernels in the window have no duration"
    assert reason(rank, "compute.category_share") == "there is no kernel time in the window"


def test_moe_share_only_where_the_card_says_so() -> None:
    rows = [compute(0, 30), event("kernel", 20, 40, category="moe", track=9)]
    expert = card(workload__model__moe=True)
    assert main(a_rank(rows, [window(0, 50)], card=expert), "compute.moe_share") == pytest.approx(0.5)
    assert "moe: false" in reason(a_rank(rows, [window(0, 50)], card=card()), "compute.moe_share")
    assert "workload.model.moe" in reason(a_rank(rows, [window(0, 50)]), "compute.moe_share")


@pytest.mark.usefixtures("chip")
def test_sm_coverage_weighs_by_duration_and_stops_at_one() -> None:
    rows = [compute(0, 30, blocks=25), compute(30, 40, blocks=900), compute(40, 90)]
    own = values(a_rank(rows, [window(0, 100)], sm_count=50), "compute.sm_coverage")[0]
    assert own.value == pytest.approx((30 * 0.5 + 10 * 1) / 40)
    assert (own.status, own.words) == ("partial", "left out: 1 kernels of unknown grid")
    assert (own.coverage.by_count, own.coverage.by_time) == (2 / 3, 40 / 90)
    of_catalog = a_rank(rows, [window(0, 100)], card=card())
    assert main(of_catalog, "compute.sm_coverage", "partial") == pytest.approx((30 * 0.25 + 10 * 1) / 40)
    assert "accelerator" in reason(a_rank(rows, [window(0, 100)]), "compute.sm_coverage")
    assert "grid" in reason(a_rank([compute(0, 1)], [window(0, 9)], sm_count=50), "compute.sm_coverage")


def test_occupancy_is_weighed_by_duration_without_communication() -> None:
    rows = [compute(0, 30, occupancy=0.5), comm(30, 90, occupancy=1.0), compute(90, 100, occupancy=0.1)]
    own = values(a_rank(rows, [window(0, 100)]), "compute.occupancy")[0]
    assert (own.value, own.status) == (pytest.approx((30 * 0.5 + 10 * 0.1) / 40), "ok")
    rows += [compute(100, 160), compute(170, 180, occupancy=1.0)]
    own = values(a_rank(rows, [window(0, 170)]), "compute.occupancy")[0]
    assert (own.value, own.status) == (pytest.approx((30 * 0.5 + 10 * 0.1) / 40), "partial")
    assert (own.coverage.by_count, own.coverage.by_time) == (2 / 3, 40 / 100)
    assert own.words == "left out: 1 kernels of unknown occupancy"
    unstated = a_rank([compute(0, 9), comm(0, 9, occupancy=1.0)], [window(0, 9)])
    assert reason(unstated, "compute.occupancy").startswith("the trace states no occupancy")


def test_a_device_of_unknown_multiprocessors_has_no_coverage(monkeypatch: pytest.MonkeyPatch) -> None:
    made = SimpleNamespace(id="chip", peak_flops_per_s={}, hbm_bytes_per_s=None, sm_count=None)
    monkeypatch.setattr("cclbench.hardware.catalog.accelerators", lambda: {"nvidia-a100-sxm-80gb": made})
    rank = a_rank([compute(0, 10, blocks=4)], [window(0, 100)], card=card())
    assert reason(rank, "compute.sm_coverage") == (
        "neither the trace nor the catalog states the number of SMs of chip"
    )


def test_kernel_count_and_mean_per_step() -> None:
    rows = [compute(0, 10), comm(8, 28), compute(50, 56), compute(99, 130), event("copy", 60, 70)]
    rank = a_rank(rows, [window(0, 50, 1), window(50, 99, 2)])
    assert {v.step: v.value for v in values(rank, "compute.kernel_count")} == {None: 1.5, 1: 2, 2: 1}
    assert {v.step: v.value for v in values(rank, "compute.mean_kernel")} == pytest.approx(
        {None: 12 * NS, 1: 15 * NS, 2: 6 * NS}
    )


@pytest.mark.parametrize(
    "metric",
    [
        "compute.category_share",
        "compute.contention",
        "compute.dominant_kernel",
        "compute.kernel_count",
        "compute.mean_kernel",
        "compute.sm_coverage",
        "compute.occupancy",
        "memory.copy_bandwidth",
        "memory.copy_time",
        "memory.hbm_utilization",
        "memory.bound_share",
        "memory.transfer_overhead",
        "data.stall",
        "compute.moe_share",
        "compute.recompute_share",
        "time.module",
        "comm.bandwidth_utilization",
    ],
)
def test_a_cpu_only_rank_gets_a_reason(metric: str) -> None:
    rows = [event("op", 0, 10, name="aten::mm"), event("annotation", 0, 5, name="data_loader", side="host")]
    calls = [collective("all_reduce", 0, 5, in_bytes=8, group="0-1", group_size=2)]
    experts = card(workload__model__moe=True, hardware__system="aws-p4de")
    rank = a_rank(rows, [window(0, 20)], calls, card=experts, works_on="host")
    assert reason(rank, metric).startswith("the CPU is the device: ")
