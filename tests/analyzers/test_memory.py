# SPDX-License-Identifier: Apache-2.0
"""Memory and data loading: hand-made ranks whose answers can be worked out on paper."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from helpers.hand_made import a_rank, an_accelerator, card, comm, compute, event, window
from helpers.hand_values import main, parts, reason, run_parts, values

from cclbench.analyzers.metric import Coverage

NS = 1e-9


def copy(start: int, end: int, size: int | None = None, direction: str | None = None) -> dict[str, Any]:
    return event("copy", start, end, bytes=size, copy_direction=direction, track=3)


def loading(start: int, end: int, kind: str = "annotation", **columns: Any) -> dict[str, Any]:
    return event(kind, start, end, **{"track": 1, "name": "data_loader", **columns})


def test_copy_bandwidth_by_direction_counts_what_states_no_bytes() -> None:
    rows = [copy(0, 10, 1000, "h2d"), copy(10, 20, 500, "h2d"), copy(20, 70, 1500, "d2d")]
    rows += [copy(70, 90, None, "d2h")]
    rows += [event("memset", 90, 95, bytes=4096), copy(100, 110, 9999, "h2d")]
    rank = a_rank(rows, [window(0, 100)])
    assert parts(rank, "memory.copy_bandwidth") == pytest.approx(
        {None: 3000 / 70e-9, "h2d": 1500 / 20e-9, "d2d": 1500 / 50e-9}
    )
    own = values(rank, "memory.copy_bandwidth")[0]
    assert (own.status, own.words) == ("partial", "left out: 1 of unknown bytes")
    assert (own.coverage.by_count, own.coverage.by_time) == (3 / 4, 70 / 90)
    # One in no stated direction counts in all, one without duration in none.
    rows = [copy(0, 10, 1000, "h2d"), copy(10, 11, 700), copy(20, 20, 5000, "d2h"), copy(30, 30, None, "d2h")]
    rank = a_rank(rows, [window(0, 100)])
    assert parts(rank, "memory.copy_bandwidth") == pytest.approx({None: 1700 / 11e-9, "h2d": 1000 / 10e-9})
    own = values(rank, "memory.copy_bandwidth")[0]
    assert (own.status, own.words) == ("ok", None)


LOADED = [compute(0, 30), loading(30, 50)]


@pytest.mark.parametrize(
    ("metric", "rows", "lengths", "expected"),
    [
        (*("memory.copy_bandwidth", [[copy(0, ns, 1000, "h2d")] for ns in (10, 40)], (100, 100)),
         {None: 2000 / 50e-9, "h2d": 2000 / 50e-9}),
        # Traffic counts by what the ranks' memory could move.
        (*("memory.hbm_utilization", [[compute(0, 10, hbm_bytes=size)] for size in (2000, 9000)]),
         *((100, 300), {None: 11_000 / 40_000})),
        ("data.stall", [LOADED, LOADED], (50, 150), {None: 40 / 200}),
    ],
)  # fmt: skip
def test_over_ranks_figures_are_ratios_of_sums(
    metric: str, rows: list[Any], lengths: tuple[int, int], expected: dict[Any, float]
) -> None:
    ranks = [
        a_rank(own, [window(0, length)], card=card(), rank=rank)
        for rank, (own, length) in enumerate(zip(rows, lengths, strict=True))
    ]
    assert run_parts(metric, *ranks) == pytest.approx(expected)


KERNEL = [compute(0, 10)]


@pytest.mark.parametrize(
    ("metric", "rows", "why"),
    [
        ("memory.copy_bandwidth", [copy(0, 10)], "none of the 1 copies in the window states its size"),
        ("memory.copy_bandwidth", KERNEL, "no copies"),
        ("memory.hbm_utilization", KERNEL, "states no device-memory traffic"),
        ("memory.bound_share", KERNEL, "states both"),
        ("memory.peak_allocated", KERNEL, "allocator"),
        ("data.stall", [*KERNEL, loading(0, 9, name="forward")], "no annotation"),
    ],
)
def test_why_there_is_no_figure(metric: str, rows: list[Any], why: str) -> None:
    assert why in reason(a_rank(rows, [window(0, 100)], card=card()), metric)


def test_real_copies_count_as_transfer_overhead_and_copying_kernels_do_not() -> None:
    rows = [compute(0, 20), event("copy", 10, 30, track=3), event("memset", 25, 35, track=4), comm(34, 50)]
    rows += [event("kernel", 50, 60, category="copy", name="direct_copy_kernel")]
    rank = a_rank(rows, [window(0, 100)])
    assert main(rank, "memory.copy_time") == pytest.approx(25 * NS)
    assert main(rank, "memory.transfer_overhead") == pytest.approx(0.14)


@pytest.fixture(autouse=True)
def _chip(monkeypatch: pytest.MonkeyPatch) -> None:
    """An accelerator of 1e12 FLOP/s and 1e11 B/s: its ridge is at 10 FLOP/B."""
    an_accelerator(monkeypatch, peak_flops_per_s={"bf16": 1e12}, hbm_bytes_per_s=1e11)


def test_hbm_utilization_from_stated_traffic() -> None:
    rank = a_rank([compute(0, 10, hbm_bytes=2000), compute(10, 20)], [window(0, 100)], card=card())
    assert main(rank, "memory.hbm_utilization", "partial") == pytest.approx(0.2)
    rank = a_rank([compute(0, 10, hbm_bytes=20_000)], [window(0, 100)], card=card())
    (impossible,) = values(rank, "memory.hbm_utilization")
    assert impossible.status == "failed"
    assert impossible.reason == "the traffic is 2 of the peak of the accelerator's memory"


def test_traffic_of_all_device_rows_up_to_all_that_memory_can_carry() -> None:
    """100 ns at 100 B/ns; of five rows, one of which ends outside, one states nothing."""
    rows = [compute(0, 10, hbm_bytes=4000), event("copy", 10, 20, hbm_bytes=3000)]
    rows += [event("memset", 20, 30, hbm_bytes=2000), comm(90, 120, hbm_bytes=1000), compute(40, 45)]
    rows += [compute(100, 110, hbm_bytes=99_999)]
    own = values(a_rank(rows, [window(0, 100)], card=card()), "memory.hbm_utilization")[0]
    assert own.value == pytest.approx(1)
    assert own.coverage == Coverage(4, 5, 10 + 10 + 10 + 30, 65)
    assert (own.words, own.provenance) == ("left out: 1 device rows of unknown traffic", "measured")


def test_bound_share_is_left_of_the_ridge() -> None:
    rows = [compute(0, 30, flops=900.0, hbm_bytes=100), compute(30, 90, flops=1100.0, hbm_bytes=100)]
    own = values(a_rank([*rows, compute(90, 100)], [window(0, 200)], card=card()), "memory.bound_share")[0]
    assert (own.value, own.status) == (pytest.approx(0.3), "partial")
    assert own.words == "left out: 1 kernels of unknown FLOPs or traffic"
    # A kernel on the ridge is not bound by memory.
    rows = [compute(0, 10, flops=1000.0, hbm_bytes=100), compute(10, 40, flops=999.0, hbm_bytes=100)]
    rows += [comm(40, 60, flops=1.0, hbm_bytes=100), compute(150, 160, flops=1.0, hbm_bytes=100)]
    rank = a_rank(rows, [window(0, 20, 1), window(20, 100, 2)], card=card())
    assert parts(rank, "memory.bound_share") == pytest.approx({None: 30 / 40, 1: 10 / 20, 2: 1})
    found = values(rank, "memory.bound_share")
    assert [(v.status, v.words, v.provenance) for v in found] == [("ok", None, "derived")] * 3


def test_peak_allocated_is_of_the_device_and_of_the_window() -> None:
    held = [(5, 700, 0), (6, 900, 0), (7, 5000, None), (200, 8000, 0)]
    rows = [event("other", at, at, name="[memory]", bytes=size, device=of) for at, size, of in held]
    rows.append(event("other", 8, 8, name="else", bytes=9999, device=0))
    assert main(a_rank(rows, [window(0, 100)]), "memory.peak_allocated") == 900
    assert main(a_rank(rows, [window(0, 100)], works_on="host"), "memory.peak_allocated") == 5000


LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


def test_data_stall_is_loading_while_the_device_is_idle_or_waiting_for_an_infeed() -> None:
    rows = [compute(0, 30), loading(20, 50, name=LOADER), loading(45, 60, "op", name="save_checkpoint")]
    rows += [event("copy", 55, 70, track=3), event("annotation", 70, 99, side="device", name=LOADER)]
    rows += [loading(70, 99, name="activation_checkpoint")]
    assert main(a_rank(rows, [window(0, 100)]), "data.stall") == pytest.approx(0.25)
    # A TPU waits for input for 20 ns, of which a copy runs in 5; other waits are for no input.
    rows = [
        *(compute(0, 30), event("sync", 30, 50, side="device", name="infeed"),
          event("copy", 45, 55, track=3)),
        event("sync", 60, 90, side="device", name="outfeed"),
        *(event("sync", 60, 90, side="host", name="infeed"), compute(90, 100)),
    ]  # fmt: skip
    assert main(a_rank(rows, [window(0, 100)]), "data.stall") == pytest.approx(0.15)


def marks(*edges: int) -> list[dict[str, Any]]:
    """Steps that the host annotates, from each instant to the next."""
    return [window(start, end, n, "annotation") for n, (start, end) in enumerate(pairwise(edges), start=1)]


# Loads 0-20 and 50-70, then kernels, 25 ns after their host steps of 50 ns.
LATER = [loading(0, 20), compute(25, 35), loading(50, 70), compute(75, 85)]
OPEN = window(75, 85, 2, still_open=True)
# Loading 30-50 and 95-105, kernels 0-30 and 60-90.
UNMARKED = [compute(0, 30), loading(20, 50), compute(60, 90), loading(95, 105, "op"), loading(150, 170)]
EDGES = [compute(0, 10), loading(20, 30), loading(40, 45), compute(60, 70), loading(80, 85)]
GAP = [*marks(0, 30), window(60, 90, 2, "annotation"), window(10, 65, 1), window(65, 110, 2)]


@pytest.mark.parametrize(
    ("rows", "windows", "policy", "expected"),
    [
        # Step 1's 20 ns of loading lie before its window of 50 ns; step 2 is open and in no mean.
        (LATER, [*marks(0, 50, 100), window(25, 75, 1), OPEN], "steps", {None: 20 / 70, 1: 20 / 70}),
        (LATER[:2], [*marks(0, 50), window(25, 35, 1, still_open=True)], "steps",
         {None: 20 / 30, 1: 20 / 30}),
        # By the host's own windows each step's loading lies in its own.
        (LATER, marks(0, 50, 100), "steps", {None: 40 / 100, 1: 20 / 50, 2: 20 / 50}),
        # Loading between two annotations is the next step's.
        (*([compute(10, 20), loading(40, 50), compute(65, 70)], GAP),
         *("steps", {None: 10 / 100, 1: 0, 2: 10 / 55})),
        # Loading without marks is the window's that holds it: 20 ns in the first, 5 in the second.
        (UNMARKED, [window(0, 50, 1), window(50, 100, 2)], "steps", {None: 30 / 105, 1: 20 / 50, 2: 10 / 55}),
        (UNMARKED, [window(0, 110, source="whole_trace")], "trace", {None: 30 / 110}),
        (UNMARKED, [*marks(0, 40, 110), window(0, 100, source="whole_trace")], "trace", {None: 30 / 105}),
        # What ends as a step ends is the step's, what begins then the next's, and behind the last nobody's.
        (*(EDGES, [*marks(0, 40, 80), window(0, 60, 1), window(60, 100, 2)]),
         *("steps", {None: 15 / 100, 1: 10 / 60, 2: 5 / 45})),
    ],
)  # fmt: skip
def test_the_step_that_loading_counts_for(
    rows: list[Any], windows: list[Any], policy: str, expected: dict[Any, float]
) -> None:
    assert parts(a_rank(rows, windows, policy=policy), "data.stall") == pytest.approx(expected)


def test_a_step_of_no_time_stalls_in_none() -> None:
    assert list(parts(a_rank(UNMARKED, [window(0, 50, 1), window(50, 50, 2)]), "data.stall")) == [None, 1]
    idle = a_rank([compute(0, 30), loading(0, 20)], [window(50, 50, 1)])
    assert reason(idle, "data.stall") == "there is no time in the window"
