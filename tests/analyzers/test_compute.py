# SPDX-License-Identifier: Apache-2.0
"""Compute: hand-made ranks whose answers can be worked out on paper."""

from __future__ import annotations

from typing import Any

import pytest
from helpers.hand_made import a_rank, an_accelerator, card, collective, comm, compute, event, window
from helpers.hand_values import main, parts, reason, rows_of, run_parts, told, values

from cclbench.analyzers.metric import Coverage
from cclbench.analyzers.view.rank_view import RankView

NS = 1e-9


@pytest.fixture(autouse=True)
def _chip(monkeypatch: pytest.MonkeyPatch) -> None:
    """The card's accelerator, made up: 1e12 FLOP/s in bf16, 100 multiprocessors; no other is known."""
    an_accelerator(monkeypatch, peak_flops_per_s={"bf16": 1e12}, sm_count=100)


def other(start: int, end: int, **columns: Any) -> dict[str, Any]:
    """A kernel of unknown category."""
    return event("kernel", start, end, **{"category": "other", **columns})


BUSY = [compute(0, 10), compute(5, 30, track=9), comm(20, 60)]
GEMM_AND_OTHER = [compute(0, 60), other(60, 80)]
TIED = [compute(0, 20, name="b"), compute(20, 40, name="a"), compute(40, 50, name="c")]
EXPERTS = [compute(0, 30), event("kernel", 20, 40, category="moe", track=9)]
EXPERT = card(workload__model__moe=True)
STATED = [compute(0, 10, flops=3e4), compute(10, 20, flops=5e4), compute(50, 53)]
GRIDS = [compute(0, 30, blocks=25), compute(30, 40, blocks=900), compute(40, 90)]
OCCUPIED = [compute(0, 30, occupancy=0.5), comm(30, 90, occupancy=1.0), compute(90, 100, occupancy=0.1)]
KERNELS = [*(compute(0, 40), compute(0, 40, track=9), other(40, 50)), *(comm(30, 80), event("copy", 80, 90))]
NAMED = [
    compute(0, 30, name="void gemm<float, 128>(float*)"),
    compute(30, 50, name="void gemm<float, 64>(float*)"),
    *(compute(50, 75, name="norm"), compute(100, 125, name="norm")),
    # A step of warm-up, more than twice as long as the median one.
    compute(200, 700, name="norm"),
]


@pytest.mark.parametrize(
    ("metric", "rows", "options", "expected"),
    [
        ("time", BUSY, {}, {None: 30 * NS}),
        ("busy", BUSY, {}, {None: 0.3}),
        # Over the window, not over the kernels; what begins behind it does not count.
        ("achieved_flops", [*STATED, compute(150, 160, flops=7e3)], {}, {None: 8e4 / 100e-9}),
        # The share of a category is of the union of kernels.
        (
            *("category_share", KERNELS, {}),
            {"communication": 50 / 80, "gemm": 40 / 80, "other": 10 / 80, "classified": 1},
        ),
        ("category_share", GEMM_AND_OTHER, {}, {"classified": 0.75, "gemm": 0.75, "other": 0.25}),
        ("moe_share", EXPERTS, {"card": EXPERT}, {None: (40 - 20) / 40}),
        # By duration, each kernel at most all multiprocessors: 50 by the trace, 100 by the catalog.
        ("sm_coverage", GRIDS, {"sm_count": 50}, {None: (30 * 0.5 + 10 * 1) / 40}),
        ("sm_coverage", GRIDS, {"card": card()}, {None: (30 * 0.25 + 10 * 1) / 40}),
        # By duration, without communication.
        ("occupancy", OCCUPIED, {}, {None: (30 * 0.5 + 10 * 0.1) / 40}),
        # Of kernels that take as long the first by name dominates.
        ("dominant_kernel", TIED, {}, {None: 0.4, "b": 0.4}),
    ],
)
def test_figures_of_a_window_of_100_ns(
    metric: str, rows: list[Any], options: dict[str, Any], expected: dict[Any, float]
) -> None:
    rank = a_rank(rows, [window(0, 100)], **options)
    assert parts(rank, f"compute.{metric}") == pytest.approx(expected)
    status = "partial" if metric in ("achieved_flops", "sm_coverage") else "ok"
    assert values(rank, f"compute.{metric}")[0].status == status


ONE, CPU = [compute(0, 1)], [event("op", 0, 10)]
UNSTATED = [compute(0, 9), comm(0, 9, occupancy=1.0)]


@pytest.mark.parametrize(
    ("metric", "rows", "options", "why"),
    [
        ("mfu", ONE, {"workload__model__heads": None}, "the workload card lacks workload.model.heads"),
        ("mfu", ONE, {"workload__model__moe": True}, "workload.model.active_parameters"),
        ("mfu", ONE, {"hardware__count": None}, "hardware.count"),
        ("mfu", ONE, {"workload__precision": "fp8"}, "the catalog has no dense fp8 peak of chip"),
        ("mfu", ONE, {"hardware__accelerator": None}, "card (hardware.accelerator)"),
        ("mfu", ONE, {"hardware__accelerator": "nvidia-a999"}, "no accelerator 'nvidia-a999'"),
        ("mfu", ONE, {"workload__phase": "serving"}, "decode"),
        ("mfu", ONE, {"workload__phase": "inference", "workload__batch__output_length": 128}, "decode"),
        ("mfu", CPU, {"works_on": "host"}, "the CPU is the device"),
        ("hfu", STATED, {"card": None}, "needs a workload card"),
        ("achieved_flops", ONE, {}, "states its FLOPs"),
        ("dominant_kernel", [compute(5, 5)], {}, "the kernels in the window have no duration"),
        ("category_share", [compute(5, 5)], {}, "there is no kernel time in the window"),
        ("moe_share", EXPERTS, {}, "moe: false"),
        ("moe_share", EXPERTS, {"card": None}, "workload.model.moe"),
        ("sm_coverage", GRIDS, {"card": None}, "accelerator"),
        ("sm_coverage", ONE, {"sm_count": 50}, "grid"),
        ("occupancy", UNSTATED, {}, "the trace states no occupancy"),
    ],
)
def test_why_there_is_no_figure(metric: str, rows: list[Any], options: dict[str, Any], why: str) -> None:
    facts = {name: options.pop(name) for name in ("card", "works_on", "sm_count") if name in options}
    rank = a_rank(rows, [window(0, 200, 1)], **{"card": card(**options), **facts})
    assert why in reason(rank, f"compute.{metric}")


# The card's model: 1000 parameters beside the embedding, 1 layer, 2 heads of 5, 10 tokens a sample:
# training 6·1000 + 12·1·2·5·10 = 7200 FLOPs a token, 4 samples: 288,000 FLOPs a step, on 2 devices of
# 1e12 FLOP/s. A step of 200 ns could do 400,000: MFU 0.72, however little of it kernels run.


def test_mfu_counts_idle_time() -> None:
    rank = a_rank([compute(0, 1)], [window(0, 200, 1)], card=card())
    run, step = rows_of("compute.mfu", rank)
    assert (run["value"], run["rank"], run["provenance"]) == (pytest.approx(0.72), None, "derived")
    assert step["value"] == pytest.approx(0.72)


def mfu(**changes: object) -> dict[Any, Any]:
    """The run's MFU with steps of 200 and 300 ns on two ranks, the second the slower in the first step."""
    ranks = [
        a_rank(ONE, [window(0, edge, 1), window(edge, 500, 2)], card=card(**changes), rank=i)
        for i, edge in enumerate((200, 240))
    ]
    return told(row for row in rows_of("compute.mfu", *ranks) if row["step"] is None)


CAUSAL = {"workload__model__attention": "causal"}


def test_mfu_stands_beside_what_the_attention_that_the_card_states_computes() -> None:
    """The slowest rank's steps take 240 and 300 ns: 540,000 FLOPs a step on two devices.

    A causal sample of 10 tokens has 55 pairs of tokens rather than 100; in a window of 4 the first tokens
    have 1, 2, 3 and 4, the six others 4 each: 34.  A pair takes 12·1·2·5 = 120 FLOPs in training.
    """
    products, most = 4 * 6 * 1000 * 10, 540_000
    full, causal, windowed = (pytest.approx((products + 4 * 120 * pairs) / most) for pairs in (100, 55, 34))
    assert mfu() == mfu(workload__model__attention="full") == {None: full}
    assert mfu(**CAUSAL) == {None: full, "causal": causal}
    # A window that holds the whole sample is causal attention.
    for tokens, expected in ((4, windowed), (11, causal)):
        own = {"workload__model__attention": "window", "workload__model__attention_window": tokens}
        assert mfu(**own) == {None: full, "window": expected}


@pytest.mark.parametrize(
    ("ns", "changes", "why"),
    [
        (100, {}, "1.44 of the devices' peak: card and trace disagree"),
        (143, {}, "1.01 of the devices' peak: card and trace disagree"),
        # By causal attention 266,400 FLOPs: more than 200,000, and less than the 280,000 of 140 ns.
        (100, CAUSAL, "1.44 of the devices' peak, 1.33 by causal attention: card and trace"),
        (140, CAUSAL, "0.951 by causal attention: attention is not over all pairs"),
        # 20 samples take 1,332,000 FLOPs then, all that two devices could do in 666 ns.
        (
            *(666, {**CAUSAL, "workload__batch": {"global": 20, "sequence_length": 10}}),
            "1.08 of the devices' peak, 1 by causal attention: attention is not over all pairs",
        ),
    ],
)
def test_mfu_above_one_is_a_failed_result_and_no_number(ns: int, changes: dict[str, Any], why: str) -> None:
    (only,) = rows_of("compute.mfu", a_rank(ONE, [window(0, ns, 1)], card=card(**changes)))
    assert (only["status"], only["value"]) == ("failed", None)
    assert why in str(only["reason"])


def test_mfu_of_one_is_a_number() -> None:
    """288,000 FLOPs on two devices take 144 ns at their peak."""
    assert main(a_rank(ONE, [window(0, 144, 1)], card=card()), "compute.mfu") == 1


def test_a_card_that_does_not_say_how_large_the_head_is_has_no_mfu() -> None:
    def a_step(**changes: object) -> RankView:
        return a_rank(ONE, [window(0, 200, 1)], card=card(**changes))

    without = "the workload card lacks workload.model.{}, without which the output head's product"
    untied = a_step(workload__model__tied_embeddings=None)
    assert reason(untied, "compute.mfu").startswith(without.format("tied_embeddings"))
    for size in ("vocabulary", "hidden"):
        unknown = {f"workload__model__{size}": None}
        for more in ({"workload__model__tied_embeddings": True}, {"workload__phase": "inference"}):
            assert reason(a_step(**more, **unknown), "compute.mfu").startswith(without.format(size))
        # An own head's parameters are among those that training multiplies by.
        assert main(a_step(**unknown), "compute.mfu") == pytest.approx(0.72)


def test_achieved_flops_leave_communication_out_and_count_what_is_silent() -> None:
    rows = [compute(0, 10, flops=3e3), comm(20, 40, flops=9e3), compute(50, 53)]
    own = values(a_rank(rows, [window(0, 100)]), "compute.achieved_flops")[0]
    assert own.value == pytest.approx(3e3 / 100e-9)
    assert (own.words, own.coverage) == ("left out: 1 kernels of unknown FLOPs", Coverage(1, 2, 10, 13))
    assert own.provenance == "measured"


def test_hfu_is_what_ran_over_the_peak() -> None:
    """80,000 FLOPs, of the 100,000 that 1e12 FLOP/s do in 100 ns, one kernel of unknown ones beside them."""
    own = values(a_rank(STATED, [window(0, 100)], card=card()), "compute.hfu")[0]
    assert (own.value, own.coverage) == (pytest.approx(0.8), Coverage(2, 3, 20, 23))
    failed, *_ = rows_of("compute.hfu", a_rank(STATED, [window(0, 79)], card=card()))
    assert (failed["status"], failed["value"]) == ("failed", None)
    assert "1.01 of the device's peak" in str(failed["reason"])


def shared(gemm: int, whole: int) -> list[Any]:
    return [compute(0, gemm), other(gemm, whole, name="zzz", blocks=4)]


@pytest.mark.parametrize(
    ("metric", "rows", "lengths", "expected"),
    [
        # FLOPs are over the ranks' windows.
        ("achieved_flops", [[compute(0, 10, flops=6e3)]] * 2, (100, 300), {None: 12e3 / 400e-9}),
        # Shares count by the time of kernels: 10 of 40 ns are gemm on one rank, 50 of 60 on the other.
        (*("category_share", [shared(10, 40), shared(50, 60)], (100, 100)),
         {"classified": 60 / 100, "gemm": 60 / 100, "other": 40 / 100}),
        (*("dominant_kernel", [shared(10, 40), shared(50, 60)], (100, 100)),
         {None: (30 + 50) / 100, "gemm": 60 / 100, "zzz": 40 / 100}),
        (*("sm_coverage", [[compute(0, 10, blocks=2)], [compute(0, 30, blocks=8)]], (100, 100)),
         {None: (10 * 2 + 30 * 8) / (40 * 8)}),
    ],
)  # fmt: skip
def test_over_ranks_figures_are_ratios_of_sums(
    metric: str, rows: list[Any], lengths: tuple[int, int], expected: dict[Any, float]
) -> None:
    ranks = [
        a_rank(own, [window(0, length)], rank=rank, sm_count=8)
        for rank, (own, length) in enumerate(zip(rows, lengths, strict=True))
    ]
    assert run_parts(f"compute.{metric}", *ranks) == pytest.approx(expected)


def test_dominant_kernel_by_base_name_in_steady_steps() -> None:
    rank = a_rank(NAMED, [window(0, 100, 1), window(100, 200, 2), window(200, 900, 3)])
    own, named = values(rank, "compute.dominant_kernel")
    assert (own.value, own.reason, own.category) == (0.5, "gemm", None)
    assert (named.value, named.reason, named.category) == (0.5, None, "gemm")


@pytest.mark.parametrize(("length", "dominant"), [(200, "late"), (201, "early")])
def test_a_step_of_twice_the_median_length_is_steady(length: int, dominant: str) -> None:
    rows = [compute(0, 30, name="early"), compute(200, 290, name="late")]
    rank = a_rank(rows, [window(0, 100, 1), window(100, 200, 2), window(200, 200 + length, 3)])
    assert values(rank, "compute.dominant_kernel")[0].reason == dominant


def test_kernels_of_unknown_grid_or_occupancy_leave_a_figure_partial() -> None:
    own = values(a_rank(GRIDS, [window(0, 100)], sm_count=50), "compute.sm_coverage")[0]
    assert (own.status, own.words) == ("partial", "left out: 1 kernels of unknown grid")
    assert (own.coverage.by_count, own.coverage.by_time) == (2 / 3, 40 / 90)
    rows = [*OCCUPIED, compute(100, 160), compute(170, 180, occupancy=1.0)]
    own = values(a_rank(rows, [window(0, 170)]), "compute.occupancy")[0]
    assert (own.value, own.status) == (pytest.approx((30 * 0.5 + 10 * 0.1) / 40), "partial")
    assert (own.coverage.by_count, own.coverage.by_time) == (2 / 3, 40 / 100)
    assert own.words == "left out: 1 kernels of unknown occupancy"


def test_a_device_of_unknown_multiprocessors_has_no_coverage(monkeypatch: pytest.MonkeyPatch) -> None:
    an_accelerator(monkeypatch)
    rank = a_rank([compute(0, 10, blocks=4)], [window(0, 100)], card=card())
    assert reason(rank, "compute.sm_coverage") == (
        "neither the trace nor the catalog states the number of SMs of chip"
    )


def test_kernel_count_and_mean_per_step() -> None:
    rows = [compute(0, 10), comm(8, 28), compute(50, 56), compute(99, 130), event("copy", 60, 70)]
    rank = a_rank(rows, [window(0, 50, 1), window(50, 99, 2)])
    assert parts(rank, "compute.kernel_count") == {None: 1.5, 1: 2, 2: 1}
    assert parts(rank, "compute.mean_kernel") == pytest.approx({None: 12 * NS, 1: 15 * NS, 2: 6 * NS})


OF_DEVICES = [
    "compute.category_share", "compute.contention", "compute.dominant_kernel", "compute.kernel_count",
    "compute.mean_kernel", "compute.sm_coverage", "compute.occupancy", "compute.moe_share",
    "compute.recompute_share", "memory.copy_bandwidth", "memory.copy_time", "memory.hbm_utilization",
    "memory.bound_share", "memory.transfer_overhead", "data.stall", "time.module",
    "comm.bandwidth_utilization",
]  # fmt: skip


@pytest.mark.parametrize("metric", OF_DEVICES)
def test_a_cpu_only_rank_gets_a_reason(metric: str) -> None:
    rows = [event("op", 0, 10, name="aten::mm"), event("annotation", 0, 5, name="data_loader", side="host")]
    calls = [collective("all_reduce", 0, 5, in_bytes=8, group="0-1", group_size=2)]
    experts = card(workload__model__moe=True, hardware__system="aws-p4de")
    rank = a_rank(rows, [window(0, 20)], calls, card=experts, works_on="host")
    assert reason(rank, metric).startswith("the CPU is the device: ")
