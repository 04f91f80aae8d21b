# SPDX-License-Identifier: Apache-2.0
"""Times that cannot be true are counted with a reason, set aside where they can be; figures are partial."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import cclbench
from cclbench.analyzers.metric import METRICS
from cclbench.ground.errors import InputError
from cclbench.ingestion.plausible import (
    EARLY,
    NO_LAUNCH,
    TimedRows,
    broken_rules,
    capture_days,
    is_outside_days,
    without_oversized,
)

DAY = 86_400 * 10**9
FAR = "more than a day from most of the capture's"


def event(name: str, cat: str, ts: float, dur: float, tid: int, **args: Any) -> dict[str, Any]:
    """A row of Kineto's, times in µs."""
    device = cat in ("kernel", "gpu_memcpy")
    where = {"pid": 0, "tid": tid} if device else {"pid": 100, "tid": 100}
    more = {"device": 0, "stream": tid} if device else {}
    return {"ph": "X", "cat": cat, "name": name, "ts": ts, "dur": dur, **where, "args": {**args, **more}}


def steps(*more: dict[str, Any], since: float = 0) -> list[dict[str, Any]]:
    """Three steps of 1 ms from 333 ms on: each launches a kernel of 0.6 ms; and what comes on top."""
    found = list(more)
    for n in range(3):
        begin = since + 333_000 + 1000 * n
        found += [
            event(f"ProfilerStep#{n}", "user_annotation", begin, 1000, 100),
            event("cudaLaunchKernel", "cuda_runtime", begin + 10, 5, 100, correlation=n + 1),
            event("gemm", "kernel", begin + 100, 600, 7, correlation=n + 1),
        ]
    return found


@pytest.fixture
def figures(tmp_path: Path) -> Any:
    """From events to the run's own rows by metric, and the notes."""

    def compute(*more: dict[str, Any], since: float = 0) -> tuple[dict[str, Any], list[str]]:
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        folder.mkdir()
        document = {"schemaVersion": 1, "distributedInfo": {"rank": 0}}
        document["traceEvents"] = steps(*more, since=since)
        (folder / "rank0.json").write_text(json.dumps(document))
        run = cclbench.run(folder / "rank0.json", store=folder / "store")
        own = [r for r in run.figures if r.rank is None and r.step is None and not r.narrowed]
        return {r.metric: (r.value, r.status) for r in own}, run.record.ranks[0].notes

    return compute


def partial(figures: dict[str, Any]) -> dict[str, Any]:
    """The same values, those of steps partial."""
    return {
        metric: (value, "partial" if status == "ok" and "steps" in METRICS.get(metric).inputs else status)
        for metric, (value, status) in figures.items()
    }


def said(notes: list[str]) -> list[str]:
    """The notes on implausible times."""
    return [note for note in notes if "implausible" in note]


def step_figures(figures: dict[str, Any]) -> dict[str, Any]:
    """All but those of launches."""
    return {metric: one for metric, one in figures.items() if not metric.startswith("launch.")}


def test_a_row_that_stands_twice_is_one_row(figures: Any) -> None:
    """Of 3 + 20 kernels one once more, as where a buffer is written again: nothing changes but a note."""
    others = [event("norm", "kernel", 333_000 + 10 * n, 5, 8, correlation=50 + n) for n in range(20)]
    once, notes = figures(*others)
    twice, more = figures(*others, others[7])
    assert twice == once
    assert set(more) - set(notes) == {
        "1 rows equal an earlier one and count once: the same times, stream, launch and name"
    }
    with pytest.raises(InputError, match="3 of its 26 rows equal an earlier one"):
        figures(*others, *others[:3])


def test_a_kernel_before_its_call_makes_delays_partial(figures: Any) -> None:
    """By 2 µs, as clocks differ: of four calls three are left, and the delay of 90 µs is theirs."""
    early = event("norm", "kernel", 334_018, 20, 8, correlation=9)
    usual, _ = figures()
    assert usual["launch.delay"] == (pytest.approx(90e-6), "ok")
    assert figures(LAUNCH, early)[0]["launch.delay"] == (pytest.approx(90e-6), "partial")


def test_a_capture_of_one_memset_says_what_it_lacks(tmp_path: Path) -> None:
    """It is no step of 5 µs to make faster."""
    rows = [event("Memset (Device)", "gpu_memset", 1000, 5, 7) | {"args": {"device": 0, "stream": 7}}]
    (tmp_path / "rank0.json").write_text(json.dumps({"schemaVersion": 1, "traceEvents": rows}))
    run = cclbench.run(tmp_path / "rank0.json", store=tmp_path / "store")
    step = next(row for row in run.figures if row.metric == "time.step" and row.rank is None)
    assert (step.value, step.status, step.coverage) == (5e-6, "partial", None)
    assert "1 devices ran no kernel" in step.reason
    note = "the device ran no kernel: 0 copies and 1 memsets are all that it did"
    assert note in run.record.ranks[0].notes
    assert "exposed_copies" not in {one.name for one in run.findings}


def test_what_the_host_does_before_an_only_steps_first_kernel_is_said(tmp_path: Path) -> None:
    """100 µs after its annotation begins; of three steps it is in the window before."""
    note = (
        "the annotation of the only step begins up to 100 µs (rank 0) before its first kernel: no window"
        " holds what the host does until then"
    )
    for count, expected in ((3, [note]), (9, [])):
        document = {"schemaVersion": 1, "distributedInfo": {"rank": 0}, "traceEvents": steps()[:count]}
        (tmp_path / "rank0.json").write_text(json.dumps(document))
        run = cclbench.ingest(tmp_path / "rank0.json", store=tmp_path / "store")
        assert [one for one in run.record.notes if "annotation" in one] == expected


NOW = 1.8e15
"""A time of 2027, µs since 1970."""
LAUNCH = event("cudaLaunchKernel", "cuda_runtime", 334_020, 5, 100, correlation=9)


@pytest.mark.parametrize(
    ("begin", "length", "words"),
    [
        (334_800, 950_400_000_000, "longer than a day"),
        (0, 100, "begun more than 100 ms before the call that launched them"),
        (334_800 + 30 * 365.25 * 86_400e6, 100, FAR),
    ],
    ids=["11 days", "at time 0", "after 30 years"],
)
def test_an_impossible_kernel_is_set_aside(figures: Any, begin: float, length: float, words: str) -> None:
    row = event("odd", "kernel", begin, length, 8, correlation=9)
    usual, notes = figures()
    assert said(notes) == []
    assert usual["compute.kernel_count"] == (1.0, "ok")
    found, notes = figures(LAUNCH, row)
    assert (found, found["compute.kernel_count"]) == (partial(usual), (1.0, "partial"))
    assert said(notes) == [f"set aside as implausible: 1 kernel rows {words}"]


def test_a_launch_whose_kernel_is_missing_makes_the_steps_partial(figures: Any) -> None:
    """Three kernels of four, by the launches before the last one that has a row; one after it may be cut."""
    usual, _ = figures()
    found, notes = figures(LAUNCH)
    assert step_figures(found) == step_figures(partial(usual))
    assert "1 kernels have a launch and no row: the capture dropped them" in notes
    later = event("cudaLaunchKernel", "cuda_runtime", 335_900, 5, 100, correlation=9)
    assert figures(later)[0]["time.step"] == usual["time.step"]
    host = event("cudaLaunchHostFunc", "cuda_runtime", 334_020, 5, 100, correlation=9)
    assert figures(host)[0]["time.step"] == usual["time.step"]
    # nor does run what a graph is captured from
    begin = event("cudaStreamBeginCapture", "cuda_runtime", 334_015, 2, 100)
    assert figures(LAUNCH, begin)[0]["time.step"] == usual["time.step"]


def test_rows_at_time_0_among_those_of_today(figures: Any) -> None:
    """A kernel is set aside; a call launches nothing then: its kernel has no launch record."""
    more = event("cudaLaunchKernel", "cuda_runtime", NOW + 334_020, 5, 100, correlation=8)
    row = event("gemm", "kernel", NOW + 334_800, 100, 7, correlation=9)
    usual, _ = figures(more, {**row, "args": {"device": 0, "stream": 7}}, since=NOW)
    kernel = event("zero", "kernel", 0, 100, 8, correlation=8)
    call = event("cudaLaunchKernel", "cuda_runtime", 0, 5, 100, correlation=9)
    found, notes = figures(more, row, kernel, call, since=NOW)
    assert step_figures(found) == step_figures(partial(usual))
    assert found["launch.delay"] == (usual["launch.delay"][0], "partial")
    aside = f"set aside as implausible: 1 kernel rows {FAR}"
    assert said(notes) == [aside, f"implausible: 1 launch rows {FAR}"]


@pytest.mark.parametrize(
    ("begin", "duration", "words"),
    [(333_500, 950_400_000_000, "longer than a day"), (333_500 + 950_400_000_000, 1000, FAR)],
)
def test_a_step_of_eleven_days_is_none(figures: Any, begin: float, duration: float, words: str) -> None:
    usual, _ = figures()
    found, notes = figures(event("ProfilerStep#3", "user_annotation", begin, duration, 100))
    assert found["time.step"] == (usual["time.step"][0], "partial")
    assert said(notes) == [f"implausible: 1 annotation rows {words}"]


def test_work_that_begins_before_its_launch_stays_and_is_counted(figures: Any) -> None:
    """1 ms early is what clocks differ by, 2 ms is not; both kernels count."""
    early = event("early", "kernel", 333_020, 10, 8, correlation=9)
    usual, notes = figures(LAUNCH, early)
    assert said(notes) == []
    assert usual["compute.kernel_count"][1] == "ok"
    launch = event("cudaLaunchKernel", "cuda_runtime", 335_020, 5, 100, correlation=9)
    found, notes = figures(launch, early)
    assert found["compute.time"][1] == "partial"
    assert said(notes) == [f"implausible: 1 kernel rows {EARLY}"]


def test_a_host_on_another_clock_launches_nothing(tmp_path: Path) -> None:
    """All calls and annotations at 1970, the kernels today: a window is the device's whole trace."""
    rows = [{**row, "ts": row["ts"] + NOW} if row["cat"] == "kernel" else row for row in steps()]
    document = {"schemaVersion": 1, "distributedInfo": {"rank": 0}, "traceEvents": rows}
    (tmp_path / "rank0.json").write_text(json.dumps(document))
    run = cclbench.run(tmp_path / "rank0.json", store=tmp_path / "store")
    assert run.window == "trace"
    known = {f"{kind} rows {FAR}": 3 for kind in ("annotation", "launch")}
    assert run.record.ranks[0].implausible == known
    (row,) = [r for r in run.figures if r.metric == "compute.time" and r.rank is None and not r.narrowed]
    assert (row.value, row.status, row.coverage) == (pytest.approx(1.8e-3), "partial", 9 / 15)


def test_days_of_a_capture() -> None:
    """Three rows on days 10 and 11, two on day 13, one on day 0: days 9 to 12, the neighbours with them."""
    days = [np.array([10, 11, 11, 13]) * DAY, np.array([0, 13]) * DAY + 5]
    assert capture_days(days) == range(9, 13)
    assert not capture_days([])
    at = np.array([9 * DAY - 1, 9 * DAY, 13 * DAY - 1, 13 * DAY])
    assert is_outside_days(at, range(9, 13)).tolist() == [True, False, False, True]


def test_a_size_that_nothing_moves_is_none(figures: Any) -> None:
    copy = {"ts": 334_850, "dur": 100, "tid": 8, "correlation": 9}
    (usual, _), (found, notes) = (
        figures(LAUNCH, event("Memcpy HtoD", "gpu_memcpy", **copy, bytes=size)) for size in (10**7, 1 << 60)
    )
    assert usual["memory.copy_bandwidth"] == (10**7 / 100e-6, "ok")
    assert found["memory.copy_bandwidth"][0] is None
    assert found["time.step"] == usual["time.step"]
    assert [note for note in notes if "implausible" in note] == [
        "set aside as implausible: 1 sizes that no memory or link moves in that time: over 100 TB/s"
    ]


def test_a_trace_of_nothing_plausible_is_refused(tmp_path: Path) -> None:
    document = {"schemaVersion": 1, "traceEvents": [event("late", "kernel", 1, 950_400_000_000, 8)]}
    (tmp_path / "rank0.json").write_text(json.dumps(document))
    with pytest.raises(InputError, match="no plausible row of its device: 1 kernel rows longer than a day"):
        cclbench.run(tmp_path / "rank0.json", store=tmp_path / "store")


def test_rules_hold_to_the_nanosecond_and_the_byte() -> None:
    duration = np.array([DAY, DAY + 1, 5, 5])
    launch = np.array([NO_LAUNCH, NO_LAUNCH, 10**8, 10**8 + 1])
    kept, counts = broken_rules(TimedRows(np.zeros(4, np.int64), duration, launch, range(2)))
    assert kept.tolist() == [True, False, True, False]
    early = "begun more than 100 ms before the call that launched them"
    assert counts == {"longer than a day": 1, early: 1}
    table = pa.table({"a": pa.array([10**8, 10**8 + 1, None, 2 * 10**8]), "b": pa.array([1, 2, 3, 4])})
    found, count = without_oversized(table, np.array([0, 1000, 1, 2000]), "a", "b")
    assert found.to_pydict() == {"a": [10**8, None, None, 2 * 10**8], "b": [1, None, 3, 4]}
    assert count == 1
