# SPDX-License-Identifier: Apache-2.0
"""Bytes by hardware counters and storage: sums by hand, and what counters cannot tell."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from helpers.hand_made import Evidence, a_rank, busy_steps, compute, job_values, window

from cclbench.analyzers.metric import Coverage, Value
from cclbench.analyzers.view.rank_view import RankView
from cclbench.ground.evidence_schema import LOG_STEPS, STORAGE

Rows = Sequence[dict[str, Any]]


S = 10**9


def counted(counter: str, value: float, start: int | None = None, end: int | None = None, **more: Any) -> Any:
    """A row of a port's counter."""
    given = {"source": "fabric_counters", "file": "ib.txt", "port": "mlx5_0/1", "unit": "B"}
    return {**given, "counter": counter, "value": value, "start_ns": start, "end_ns": end, **more}


def rates(*samples: tuple[float, float | None], **place: Any) -> Rows:
    """DCGM's samples of a rate, each at an instant in s."""
    given = {"source": "dcgm", "port": None, "device": 0, "unit": "B/s", **place}
    instants = [(value, None if at is None else round(at * S)) for value, at in samples]
    return [counted("nvlink_tx_rate", value, at, at, **given) for value, at in instants]


SMI = {"source": "nvidia_smi", "device": 0}
NIC, NVLINK = "comm.nic_bytes", "comm.nvlink_bytes"
HELD = "by rates, each since the sample before"


def told(metric: str, rows: Rows, *ranks: RankView) -> list[Value]:
    """What the metric says of a run with those counters."""
    return job_values(metric, Evidence(counters=rows), *ranks)


def only(values: Sequence[Value], **key: Any) -> Value:
    """The one value whose keys are these and no others."""
    wanted = {"category": None, "stat": None, "rank": None, "step": None, **key}
    (found,) = [v for v in values if all(getattr(v, name) == value for name, value in wanted.items())]
    return found


IB = [counted("nic_tx_bytes", 100, 0, 10), counted("nic_rx_bytes", 7, 0, 10)]
IB += [counted("nic_tx_bytes", 300, 10, 20), counted("nic_tx_bytes", 1000, 0, 20, port="mlx5_1/1")]
IB += [counted("rdma_read_bytes", 99, 0, 10), counted("nic_retransmits", 5, 0, 10, unit="count")]


def test_sent_and_received_over_all_ports() -> None:
    values = told(NIC, IB)
    own = only(values)
    assert (own.value, own.provenance, own.source) == (1400, "measured", "fabric_counters")
    assert own.reason == "by fabric_counters: 3 intervals of 2 ports, covering 20.0 ns"
    assert (only(values, category="tx").value, only(values, category="rx").value) == (1400, 7)
    # Unknown times are said; zero bytes are an answer.
    own = only(told(NIC, [counted("nic_tx_bytes", 5), counted("nic_tx_bytes", 6, 1, 2)]))
    assert (own.value, own.reason) == (11, "by fabric_counters: 2 intervals of 1 port, at unknown times")
    assert only(told(NIC, [counted("nic_tx_bytes", 0, 0, 10)])).value == 0


def test_per_step_takes_whole_intervals_only() -> None:
    """Steps [8, 18) and [18, 28): of the intervals only [10, 20) lies within [8, 28), half of it."""
    per_step = only(told(NIC, IB, busy_steps((8, 18), (18, 28))), stat="per_step")
    assert (per_step.value, per_step.provenance) == (150, "derived")
    assert per_step.reason == "complete intervals cover 50.0 % of the time of 2 steps, the rest is left out"


WHOLE = a_rank([compute(0, 90)], [window(0, 90, source="whole_trace")], rank=2)


@pytest.mark.parametrize(
    ("rows", "ranks", "says"),
    [
        (IB, [], "the run has no trace with steps"),
        (IB, [WHOLE], "the run has no trace with steps"),
        (IB, [busy_steps((3, 9))], "no counter interval lies entirely within the steps"),
        ([counted("nic_tx_bytes", 5)], [busy_steps((3, 9))], "the counters state no times"),
    ],
)
def test_per_step_says_why_there_is_none(rows: Rows, ranks: list[RankView], says: str) -> None:
    per_step = only(told(NIC, rows, *ranks), stat="per_step")
    assert (per_step.status, per_step.value, per_step.reason) == ("not_applicable", None, says)


def test_an_interval_that_fills_the_steps_counts_and_one_that_touches_them_has_no_part() -> None:
    """Steps of two ranks from 10 to 36, three on the second; of 24 - 60 nobody knows which part lies inside.

    A count of bytes at one instant lies within the steps and covers nothing of them: it is left out.
    """
    spans = ((10, 36), (0, 10), (36, 40), (24, 60), (5, 11), (15, 15), (20, 25))
    rows = [counted("nic_tx_bytes", 1 << at, *span) for at, span in enumerate(spans)]
    ranks = [a_rank(works_on=None, rank=3), busy_steps((10, 20), (20, 30))]
    ranks += [busy_steps((12, 22), (22, 34), (34, 36), rank=1), WHOLE]
    per_step = only(told(NIC, [*rows, counted("nic_tx_bytes", 1000)], *ranks), stat="per_step")
    assert (per_step.value, per_step.coverage) == ((1 + 64) / 3, Coverage(2, 5, 26, 26))
    half = only(told(NIC, [rows[6]], *ranks), stat="per_step")
    assert (half.coverage, half.status) == (Coverage(1, 1, 5, 26), "partial")
    assert half.source == "fabric_counters"


def test_the_trace_is_preferred_and_the_other_stands_beside_it() -> None:
    own = {"source": "nsys", "file": "a.sqlite", "port": "mlx5_0"}
    nsys = [counted("nic_tx_bytes", value, at, at + 5, **own, rank=0) for value, at in ((40, 0), (60, 5))]
    nsys.append(counted("nic_tx_bytes", 3000, 0, 5, **{**own, "file": "b.sqlite"}, rank=1))
    values = told(NIC, [*IB, *nsys])
    assert (only(values).value, only(values).source) == (3100, "nsys")
    assert (only(values).reason or "").endswith("; fabric_counters counted 1.40 kB")
    other = only(values, stat="fabric_counters")
    assert (other.value, other.source) == (1400, "fabric_counters")
    assert (other.reason or "").endswith("nsys is preferred")
    assert [only(values, rank=rank).value for rank in (0, 1)] == [100, 3000]
    assert {value.rank for value in values} == {None, 0, 1}
    # What no rank is told of is no rank's.
    values = told(NIC, [*IB, counted("nic_tx_bytes", 8, 0, 10, rank=3)])
    assert only(values).value == 1408
    assert {value.rank: value.value for value in values if value.rank is not None} == {3: 8}


def test_what_was_counted_is_preferred_to_what_rates_suggest() -> None:
    """DCGM comes before nvidia-smi, but its instants of rates are an estimate: 2 B/s held for 3 s."""
    samples = rates((9, 1), (2, 4))
    alone = only(told(NVLINK, samples))
    assert (alone.value, alone.provenance) == (6, "derived")
    assert HELD in (alone.reason or "")
    both = told(NVLINK, [*samples, counted("nvlink_tx_bytes", 50, **SMI, port="nvlink 0")])
    assert (only(both).value, only(both).source) == (50, "nvidia_smi")
    assert only(both, stat="dcgm").value == 6


def test_a_rate_holds_from_the_sample_before_to_its_own() -> None:
    """5 B/s from 1 s to 3 s, in a step of as long; a sample of unknown time is none."""
    values = told(NVLINK, rates((9, 1), (5, 3), (7, None)), busy_steps((S, 3 * S)))
    per_step = only(values, stat="per_step")
    assert (per_step.value, per_step.coverage) == (10, Coverage(1, 1, 2 * S, 2 * S))
    assert only(values).reason == f"by dcgm: 1 interval {HELD}, of 1 port, covering 2.00 s"


@pytest.mark.parametrize("key", ["file", "rank", "device", "port"])
def test_a_rate_is_not_held_from_another_places_sample(key: str) -> None:
    place = {"file": "a", "rank": 1, "device": 1, "port": "nvlink 1"}
    other = place | {key: place[key] * 2}  # type: ignore[operator]
    value = only(told(NVLINK, [*rates((1, 1), (5, 3), **place), *rates((1, 2), (7, 5), **other)]))
    assert value.value == 5 * 2 + 7 * 3
    assert f"2 intervals {HELD}, of 2 ports" in (value.reason or "")


def test_totals_without_a_pair_make_what_rates_suggest_partial() -> None:
    value = only(told(NVLINK, [*rates((4, 1), (4, 2), **SMI, port="nvlink 0"), *links("a_before.txt", 7)]))
    assert (value.value, value.provenance, value.status) == (4, "derived", "partial")
    assert value.coverage == Coverage(1, 2)
    assert value.left_out == {NO_PAIR: 1}


NO_PAIR = "totals without one `before` and one `after`"


def links(file: str, *totals: float, time: int | None = None, **more: Any) -> Rows:
    """One dump of a GPU's links: their totals sent."""
    given = {**SMI, "file": file, **more}
    return [
        counted("nvlink_tx_total", total, time, time, **{**given, "port": f"nvlink {link}"})
        for link, total in enumerate(totals)
    ]


PAIR = [*links("a_before.txt", 1), *links("a_after.txt", 4)]
DUMPS = [*links("n0/nvlink_before.txt", 10, 20, time=5), *links("n0/nvlink_after.txt", 15, 120, time=9)]
DUMPS += [*links("n1/nvlink-start-77", 0), *links("n1/nvlink-end-77", 1000)]
DUMPS += [*links("job/Before/n2.txt", 1), *links("job/After/n2.txt", 3)]
ODD = [*links("a_before.txt", 10, 99), *links("a_after.txt", 15, 1), *links("b_after.txt", 7)]
ODD += [*links("before/after.txt", 7), *links("pretext.txt", 7)]
ODD += [*links("c_before.txt", 1), *links("c_start.txt", 1), *links("c_end.txt", 1)]
DEVICES = [*links("before.txt", 1, 10), *links("after.txt", 3, 14)]
DEVICES += [*links("before.txt", 100, device=1), *links("after.txt", 1100, device=1)]
SUMMED = [
    counted("nvlink_tx_bytes", value, **SMI, port=port)
    for value, port in ((10, "nvlink 0"), (10, "nvlink 1"), (21, None))
]
# A file of differences, two files of totals, a file with links and their sum, rates of a fourth.
SERIES = [
    counted("nvlink_tx_bytes", value, **SMI, file=file, port=port)
    for value, file, port in ((1, "series.txt", "nvlink 0"), (1, "series.txt", None), (20, "dmon.csv", None))
]
SERIES += [
    counted("nvlink_tx_total", n, file=file, **SMI) for n, file in ((100, "before.txt"), (400, "after.txt"))
]
SERIES.append(counted("nvlink_tx_rate", 9, **SMI, file="dmon.csv", port=None, unit="B/s"))


@pytest.mark.parametrize(
    ("rows", "value", "left_out"),
    [
        (DUMPS, 5 + 100 + 1000 + 2, {}),
        (ODD, 5, {NO_PAIR: 6, "totals that were reset": 1}),
        # A total that did not change is a pair of no bytes.
        ([*links("a_before.txt", 7), *links("a_after.txt", 7)], 0, {}),
        # A file's own name says its moment before its folder's does.
        ([*links("after/before_1.txt", 2), *links("after/after_1.txt", 7)], 5, {}),
        # A file of no moment is no half of a pair.
        *(
            ([*PAIR, *links(f"{moment}_b.txt", 3), *links("_b.txt", 3)], 3, {NO_PAIR: 2})
            for moment in ("before", "after")
        ),
        # Devices and links make pairs of their own; all links together are not added to each.
        (DEVICES, 2 + 4 + 1000, {}),
        (SUMMED, 20, {"intervals of all ports together": 1}),
        (SERIES, 321, {"intervals of all ports together": 1, "rates, in favour of counted bytes": 1}),
        # GPU 0: 5 B/s for 2 s; GPU 1: 7 B/s for 1 s; a first sample has nothing before it.
        ([*rates((100, 1), (5, 3)), *rates((100, 2), (7, 3), device=1)], 17, {}),
    ],
)
def test_bytes_of_links(rows: Rows, value: float, left_out: dict[str, int]) -> None:
    own = only(told(NVLINK, rows))
    assert (own.value, own.left_out) == (value, left_out)


def test_pairs_of_totals_are_intervals_and_what_makes_none_leaves_them_partial() -> None:
    assert only(told(NVLINK, DUMPS, busy_steps((5, 9))), stat="per_step").value == 105
    assert "3 intervals of 3 ports" in (only(told(NVLINK, DEVICES)).reason or "")
    odd = only(told(NVLINK, ODD))
    assert (odd.coverage, odd.status) == (Coverage(1, 8), "partial")


RATE = counted("nvlink_tx_rate", 5, source="dcgm", unit="B/s")
SHARE = counted("nvlink_tx_utilization", 0.5, 0, 1, source="nsys", unit="1")
ONE_DUMP = links("dump.txt", 5)
ARE = "the run's NVLink counters are"


@pytest.mark.parametrize(
    ("metric", "rows", "says"),
    [
        (NIC, [], "the run has no NIC counters: add snapshots of /sys/class/infiniband"),
        (NVLINK, IB, "the run has no NVLink counters: add `nvidia-smi nvlink -gt d`"),
        (NVLINK, [SHARE], f"{ARE} shares of the links' peak, not bytes: add"),
        (NVLINK, [RATE], f"{ARE} rates without their times: add"),
        (NVLINK, [counted("nic_tx_rate", 5), counted("nvlinks_total", 5)], "the run has no NVLink counters"),
        (
            *(NVLINK, [counted("nvlink_rx_bytes", 5), counted("nvlink_tx_rate", 5), *ONE_DUMP]),
            f"{ARE} totals of a single time and rates without their times: add",
        ),
        (NVLINK, ONE_DUMP, f"{ARE} totals of a single time"),
    ],
)
def test_no_bytes_say_why(metric: str, rows: Rows, says: str) -> None:
    (value,) = told(metric, rows)
    assert (value.status, value.value) == ("not_applicable", None)
    assert (value.reason or "").startswith(says)


EPOCHS = [("train", 1, 0.9), ("train", 2, 0.98), ("train", 3, 0.94), ("eval", 1, 0.5)]


def stored(figure: str, rows: list[tuple[str, int | None, float]], *files: str) -> Evidence:
    names = ("file", "phase", "epoch", "value")
    named = [(file, *row) for file in files or ("summary.json",) for row in rows]
    common = {"source": "dlio", "figure": figure, "unit": "1"}
    table = [common | dict(zip(names, row, strict=True)) for row in named]
    return Evidence(storage=pa.Table.from_pylist(table, schema=STORAGE))


def figures(metric: str, evidence: Evidence) -> dict[tuple[str | None, str | None], float | None]:
    return {(value.category, value.stat): value.value for value in job_values(metric, evidence)}


def test_the_mean_over_epochs_stands_beside_the_first_the_least_and_the_most() -> None:
    found = figures("storage.accelerator_utilization", stored("accelerator_utilization", EPOCHS))
    expected = {(None, None): pytest.approx(2.82 / 3), (None, "min"): 0.9, (None, "max"): 0.98}
    expected |= {(None, "first"): 0.9, ("evaluation", None): 0.5}
    assert found == expected


def test_checkpoints_are_apart() -> None:
    rows = [("save", None, 3.0), ("load", None, 2.0)]
    expected = {("checkpoint saved", None): 3.0, ("checkpoint loaded", None): 2.0}
    assert figures("storage.checkpoint_time", stored("time", rows)) == expected


def test_several_results_have_a_row_each() -> None:
    found = figures("storage.samples", stored("samples_per_s", [("train", None, 7.0)], "b.json", "a.json"))
    assert found == {(None, None): None, ("a.json", None): 7.0, ("b.json", None): 7.0}


def test_what_is_not_stated_has_a_reason() -> None:
    evidence = stored("time", [("save", None, 3.0)])
    (value,) = job_values("storage.samples", evidence)
    assert (value.status, value.reason) == ("not_applicable", "the benchmark's files do not state it")


def test_steps_wait_for_their_batches() -> None:
    """Steps 2 to 4 take 2 s, 2 s and 4 s, and wait 1 s, 0 s and 3 s: 4 of 8 s; the first does not count."""
    times = [(9, 8), (2, 1), (2, 0), (4, 3)]
    rows: list[dict[str, Any]] = [
        {
            "source": "dlio", "file": "0_output.json", "restart": 0, "step": step, "steps": 1,
            "dur_ns": whole * 10**9, "data_ns": wait * 10**9, "timed_by": "stated",
        }
        for step, (whole, wait) in enumerate(times, 1)
    ]  # fmt: skip
    evidence = Evidence(log_steps=pa.Table.from_pylist(rows, schema=LOG_STEPS))
    assert figures("log.data_wait", evidence) == {(None, None): 0.5, (None, "max"): 0.75}
    for row in rows:
        del row["data_ns"]
    (value,) = job_values("log.data_wait", Evidence(log_steps=pa.Table.from_pylist(rows, schema=LOG_STEPS)))
    assert value.reason == "no line states how long its step waits for its batch"
