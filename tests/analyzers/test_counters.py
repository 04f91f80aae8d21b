# SPDX-License-Identifier: Apache-2.0
"""Bytes by hardware counters: sums by hand, which tool is preferred, and what counters cannot tell."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from helpers.hand_made import Evidence, a_rank, busy_steps, compute, of_run, window

from cclbench.analyzers.metric import Coverage, Value
from cclbench.analyzers.view.rank_view import RankView

Rows = Sequence[dict[str, Any]]


def counted(counter: str, value: float, start: int | None = None, end: int | None = None, **more: Any) -> Any:
    """A row of a port's counter."""
    given = {"source": "fabric_counters", "file": "ib.txt", "port": "mlx5_0/1", "unit": "B"}
    return {**given, "counter": counter, "value": value, "start_ns": start, "end_ns": end, **more}


def told(metric: str, rows: Rows, *ranks: RankView) -> list[Value]:
    """What the metric says of a run with those counters."""
    return of_run(metric, Evidence(counters=rows), *ranks)


def only(values: Sequence[Value], **key: Any) -> Value:
    """The one value whose keys are these and no others."""
    wanted = {"category": None, "stat": None, "rank": None, "step": None, **key}
    (found,) = [v for v in values if all(getattr(v, name) == value for name, value in wanted.items())]
    return found


IB = [
    counted("nic_tx_bytes", 100, 0, 10),
    counted("nic_rx_bytes", 7, 0, 10),
    counted("nic_tx_bytes", 300, 10, 20),
    counted("nic_tx_bytes", 1000, 0, 20, port="mlx5_1/1"),
    counted("rdma_read_bytes", 99, 0, 10),
    counted("nic_retransmits", 5, 0, 10, unit="count"),
]


def test_sent_and_received_over_all_ports() -> None:
    values = told("comm.nic_bytes", IB)
    assert only(values).value == 1400
    assert only(values).provenance == "measured"
    assert only(values).source == "fabric_counters"
    assert only(values).reason == "by fabric_counters: 3 intervals of 2 ports, covering 20.0 ns"
    assert only(values, category="tx").value == 1400
    assert only(values, category="rx").value == 7


def test_per_step_takes_whole_intervals_only() -> None:
    """Steps [8, 18) and [18, 28): of the intervals only [10, 20) lies within [8, 28), half of it."""
    values = told("comm.nic_bytes", IB, busy_steps((8, 18), (18, 28)))
    per_step = only(values, stat="per_step")
    assert per_step.value == 150
    assert per_step.provenance == "derived"
    assert per_step.reason == "complete intervals cover 50.0 % of the time of 2 steps, the rest is left out"


@pytest.mark.parametrize(
    ("rows", "ranks", "says"),
    [
        (IB, [], "the run has no trace with steps"),
        (IB, [busy_steps((3, 9))], "no counter interval lies entirely within the steps"),
        ([counted("nic_tx_bytes", 5)], [busy_steps((3, 9))], "the counters state no times"),
    ],
)
def test_per_step_says_why_there_is_none(rows: Rows, ranks: list[RankView], says: str) -> None:
    per_step = only(told("comm.nic_bytes", rows, *ranks), stat="per_step")
    assert (per_step.status, per_step.value, per_step.reason) == ("not_applicable", None, says)


def test_an_interval_that_fills_the_steps_counts_and_one_that_touches_them_has_no_part() -> None:
    """Steps of two ranks from 10 to 36, three on the second; of 24 - 60 nobody knows which part lies inside.

    A count of bytes at one instant lies within the steps and covers nothing of them: it is left out.
    """
    rows = [
        counted("nic_tx_bytes", 1 << at, start, end)
        for at, (start, end) in enumerate(
            ((10, 36), (0, 10), (36, 40), (24, 60), (5, 11), (15, 15), (20, 25))
        )
    ]
    unknown = counted("nic_tx_bytes", 1000)
    ranks = [
        a_rank(works_on=None, rank=3),
        busy_steps((10, 20), (20, 30)),
        busy_steps((12, 22), (22, 34), (34, 36), rank=1),
        a_rank([compute(0, 90)], [window(0, 90, source="whole_trace")], rank=2),
    ]
    per_step = only(told("comm.nic_bytes", [*rows, unknown], *ranks), stat="per_step")
    assert per_step.value == (1 + 64) / 3
    assert per_step.coverage == Coverage(2, 5, 26, 26)
    half = only(told("comm.nic_bytes", [rows[6]], *ranks), stat="per_step")
    assert (half.coverage, half.status) == (Coverage(1, 1, 5, 26), "partial")
    assert half.source == "fabric_counters"


def test_a_rank_whose_window_is_the_whole_trace_has_no_steps() -> None:
    rank = a_rank([compute(0, 90)], [window(0, 90, source="whole_trace")])
    per_step = only(told("comm.nic_bytes", IB, rank), stat="per_step")
    assert (per_step.value, per_step.reason) == (None, "the run has no trace with steps")


def test_unknown_times_are_said() -> None:
    values = told("comm.nic_bytes", [counted("nic_tx_bytes", 5), counted("nic_tx_bytes", 6, 1, 2)])
    assert only(values).value == 11
    assert only(values).reason == "by fabric_counters: 2 intervals of 1 port, at unknown times"


def test_the_trace_is_preferred_and_the_other_stands_beside_it() -> None:
    own = {"source": "nsys", "file": "a.sqlite", "port": "mlx5_0"}
    nsys = [
        counted("nic_tx_bytes", 40, 0, 5, **own, rank=0),
        counted("nic_tx_bytes", 60, 5, 10, **own, rank=0),
        counted("nic_tx_bytes", 3000, 0, 5, **{**own, "file": "b.sqlite"}, rank=1),
    ]
    values = told("comm.nic_bytes", [*IB, *nsys])
    assert only(values).value == 3100
    assert only(values).source == "nsys"
    assert (only(values).reason or "").endswith("; fabric_counters counted 1.40 kB")
    other = only(values, stat="fabric_counters")
    assert (other.value, other.source) == (1400, "fabric_counters")
    assert (other.reason or "").endswith("nsys is preferred")
    assert [only(values, rank=rank).value for rank in (0, 1)] == [100, 3000]
    assert {value.rank for value in values} == {None, 0, 1}


def test_what_no_rank_is_told_of_is_no_ranks() -> None:
    values = told("comm.nic_bytes", [*IB, counted("nic_tx_bytes", 8, 0, 10, rank=3)])
    assert only(values).value == 1408
    assert {value.rank: value.value for value in values if value.rank is not None} == {3: 8}


def test_what_was_counted_is_preferred_to_what_rates_suggest() -> None:
    """DCGM comes before nvidia-smi, but its instants of rates are an estimate: 2 B/s held for 3 s."""
    s = 10**9
    dcgm = {"source": "dcgm", "port": None, "device": 0, "unit": "B/s"}
    rates = [counted("nvlink_tx_rate", value, at * s, at * s, **dcgm) for value, at in ((9, 1), (2, 4))]
    alone = told("comm.nvlink_bytes", rates)
    assert (only(alone).value, only(alone).provenance) == (6, "derived")
    assert "by rates, each since the sample before" in (only(alone).reason or "")
    smi = {"source": "nvidia_smi", "port": "nvlink 0", "device": 0}
    both = told("comm.nvlink_bytes", [*rates, counted("nvlink_tx_bytes", 50, **smi)])
    assert (only(both).value, only(both).source) == (50, "nvidia_smi")
    assert only(both, stat="dcgm").value == 6


def test_rates_are_held_gpu_by_gpu() -> None:
    """GPU 0: 5 B/s for 2 s; GPU 1: 7 B/s for 1 s; a first sample has nothing before it."""
    s = 10**9
    samples = [(0, 100, 1), (1, 100, 2), (0, 5, 3), (1, 7, 3)]
    rows = [
        counted("nvlink_tx_rate", value, at * s, at * s, source="dcgm", port=None, device=gpu)
        for gpu, value, at in samples
    ]
    assert only(told("comm.nvlink_bytes", rows)).value == 17


def test_a_rate_holds_from_the_sample_before_to_its_own() -> None:
    """5 B/s from 1 s to 3 s, in a step of as long; a sample of unknown time is none."""
    s = 10**9
    more = {"source": "dcgm", "port": None, "device": 0}
    rows = [counted("nvlink_tx_rate", value, at, at, **more) for value, at in ((9, s), (5, 3 * s), (7, None))]
    values = told("comm.nvlink_bytes", rows, busy_steps((s, 3 * s)))
    assert only(values, stat="per_step").value == 10
    assert only(values, stat="per_step").coverage == Coverage(1, 1, 2 * s, 2 * s)
    assert only(values).reason == (
        "by dcgm: 1 interval by rates, each since the sample before, of 1 port, covering 2.00 s"
    )


@pytest.mark.parametrize("key", ["file", "rank", "device", "port"])
def test_a_rate_is_not_held_from_another_places_sample(key: str) -> None:
    s = 10**9
    place = {"source": "dcgm", "file": "a", "rank": 1, "device": 1, "port": "nvlink 1"}
    other = place | {key: place[key] * 2}  # type: ignore[operator]
    rows = [
        counted("nvlink_tx_rate", rate, at * s, at * s, **of)
        for of, rate, at in ((place, 1, 1), (other, 1, 2), (place, 5, 3), (other, 7, 5))
    ]
    value = only(told("comm.nvlink_bytes", rows))
    assert value.value == 5 * 2 + 7 * 3
    assert "2 intervals by rates, each since the sample before, of 2 ports" in (value.reason or "")


def test_totals_without_a_pair_make_what_rates_suggest_partial() -> None:
    s = 10**9
    smi = {"source": "nvidia_smi", "device": 0, "port": "nvlink 0"}
    rates = [counted("nvlink_tx_rate", 4, at * s, at * s, **smi) for at in (1, 2)]
    value = only(told("comm.nvlink_bytes", [*rates, *links("a_before.txt", 7)]))
    assert (value.value, value.provenance, value.status) == (4, "derived", "partial")
    assert value.coverage == Coverage(1, 2)
    assert value.left_out == {"totals without one `before` and one `after`": 1}


def links(file: str, *totals: float, time: int | None = None) -> Rows:
    """One dump of a GPU's links: their totals sent."""
    more = {"source": "nvidia_smi", "file": file, "device": 0}
    return [
        counted("nvlink_tx_total", total, time, time, **{**more, "port": f"nvlink {link}"})
        for link, total in enumerate(totals)
    ]


def test_totals_of_two_files_are_subtracted() -> None:
    rows = [
        *links("n0/nvlink_before.txt", 10, 20, time=5),
        *links("n0/nvlink_after.txt", 15, 120, time=9),
        *links("n1/nvlink-start-77", 0),
        *links("n1/nvlink-end-77", 1000),
        *links("job/Before/n2.txt", 1),
        *links("job/After/n2.txt", 3),
    ]
    values = told("comm.nvlink_bytes", rows, busy_steps((5, 9)))
    assert only(values).value == 1107
    assert only(values).left_out == {}
    assert only(values, stat="per_step").value == 105


def test_totals_that_make_no_pair_are_counted() -> None:
    rows = [
        *links("a_before.txt", 10, 99),
        *links("a_after.txt", 15, 1),
        *links("b_after.txt", 7),
        *links("before/after.txt", 7),
        *links("pretext.txt", 7),
        *links("c_before.txt", 1),
        *links("c_start.txt", 1),
        *links("c_end.txt", 1),
    ]
    values = told("comm.nvlink_bytes", rows)
    assert only(values).value == 5
    assert only(values).left_out == {
        "totals without one `before` and one `after`": 6,
        "totals that were reset": 1,
    }
    assert (only(values).coverage, only(values).status) == (Coverage(1, 8), "partial")


def test_a_total_that_did_not_change_is_a_pair_of_no_bytes() -> None:
    value = only(told("comm.nvlink_bytes", [*links("a_before.txt", 7), *links("a_after.txt", 7)]))
    assert (value.value, value.left_out) == (0, {})


def test_a_files_own_name_says_its_moment_before_its_folders_does() -> None:
    rows = [*links("after/before_1.txt", 2), *links("after/after_1.txt", 7)]
    assert only(told("comm.nvlink_bytes", rows)).value == 5


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_file_of_no_moment_is_no_half_of_a_pair(moment: str) -> None:
    pair = [*links("a_before.txt", 1), *links("a_after.txt", 4)]
    value = only(told("comm.nvlink_bytes", [*pair, *links(f"{moment}_b.txt", 3), *links("_b.txt", 3)]))
    assert (value.value, value.left_out) == (3, {"totals without one `before` and one `after`": 2})


def test_devices_and_links_make_pairs_of_their_own() -> None:
    rows = [
        *links("before.txt", 1, 10),
        *links("after.txt", 3, 14),
        *(row | {"device": 1} for row in [*links("before.txt", 100), *links("after.txt", 1100)]),
    ]
    value = only(told("comm.nvlink_bytes", rows))
    assert (value.value, value.left_out) == (2 + 4 + 1000, {})
    assert "3 intervals of 3 ports" in (value.reason or "")


def test_all_links_together_are_not_added_to_each() -> None:
    smi = {"source": "nvidia_smi", "device": 0}
    rows = [
        counted("nvlink_tx_bytes", 10, **{**smi, "port": "nvlink 0"}),
        counted("nvlink_tx_bytes", 10, **{**smi, "port": "nvlink 1"}),
        counted("nvlink_tx_bytes", 21, **{**smi, "port": None}),
    ]
    value = only(told("comm.nvlink_bytes", rows))
    assert value.value == 20
    assert value.left_out == {"intervals of all ports together": 1}


def test_every_way_a_tool_counts_is_added_and_what_is_beside_is_counted() -> None:
    """A file of differences, two files of totals, a file with links and their sum, rates of a fourth."""
    smi = {"source": "nvidia_smi", "device": 0}
    counts = "nvlink_tx_bytes"
    rows = [
        counted(counts, 1, **smi, file="series.txt", port="nvlink 0"),
        counted(counts, 1, **smi, file="series.txt", port=None),
        counted(counts, 20, **smi, file="dmon.csv", port=None),
        counted("nvlink_tx_total", 100, file="before.txt", **smi),
        counted("nvlink_tx_total", 400, file="after.txt", **smi),
        counted("nvlink_tx_rate", 9, **smi, file="dmon.csv", port=None, unit="B/s"),
    ]
    value = only(told("comm.nvlink_bytes", rows))
    assert value.value == 321
    assert value.left_out == {"intervals of all ports together": 1, "rates, in favour of counted bytes": 1}


@pytest.mark.parametrize(
    ("metric", "rows", "says"),
    [
        ("comm.nic_bytes", [], "the run has no NIC counters: add snapshots of /sys/class/infiniband"),
        ("comm.nvlink_bytes", IB, "the run has no NVLink counters: add `nvidia-smi nvlink -gt d`"),
        (
            "comm.nvlink_bytes",
            [counted("nvlink_tx_utilization", 0.5, 0, 1, source="nsys", unit="1")],
            "the run's NVLink counters are shares of the links' peak, not bytes: add",
        ),
        (
            "comm.nvlink_bytes",
            [counted("nvlink_tx_rate", 5, source="dcgm", unit="B/s")],
            "the run's NVLink counters are rates without their times: add",
        ),
        (
            "comm.nvlink_bytes",
            [counted("nic_tx_rate", 5), counted("nvlinks_total", 5)],
            "the run has no NVLink counters: add",
        ),
        (
            "comm.nvlink_bytes",
            [counted("nvlink_rx_bytes", 5), counted("nvlink_tx_rate", 5), *links("dump.txt", 5)],
            "the run's NVLink counters are totals of a single time and rates without their times: add",
        ),
        ("comm.nvlink_bytes", links("dump.txt", 5), "the run's NVLink counters are totals of a single time"),
    ],
)
def test_no_bytes_say_why(metric: str, rows: Rows, says: str) -> None:
    (value,) = told(metric, rows)
    assert (value.status, value.value) == ("not_applicable", None)
    assert (value.reason or "").startswith(says)


def test_zero_bytes_are_an_answer() -> None:
    assert only(told("comm.nic_bytes", [counted("nic_tx_bytes", 0, 0, 10)])).value == 0
