# SPDX-License-Identifier: Apache-2.0
"""Relations of whole runs under changes of their traces, for readers of traces and for simulated jobs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

import cclbench
from cclbench.formats import Names, Rows
from cclbench.selfcheck import check_source
from cclbench.selfcheck.changes import RepeatedRows, ReversedRows
from cclbench.selfcheck.outcome import Outcome
from cclbench.selfcheck.reading import CheckedReading
from cclbench.selfcheck.relation import Relation, compare_readings
from cclbench.selfcheck.relations import TimesScaled, TimesShifted
from cclbench.selftest.exam import ExamItem, simulate_item
from cclbench.selftest.traces import write_traces
from cclbench.workspace import source_at

SOURCES = [
    *("kineto/cuda_sync_a100", "nsys/synthetic", "graph_replay/sglang_decode_mi300x"),
    "xprof/mi300x_8gpu_jax_conv.xplane.pb",
]
"""Small ones; scripts/selfcheck_all.py takes any number."""


def broken(outcomes: list[Outcome]) -> list[Outcome]:
    """Those that do not hold."""
    return [one for one in outcomes if one.status == "broken"]


@pytest.mark.parametrize("source", SOURCES)
def test_real_traces(source: str, test_data: Path) -> None:
    outcomes = check_source(test_data / source).outcomes
    assert broken(outcomes) == []
    held = {one.check for one in outcomes if one.status == "holds"}
    assert {"shift of time", "scaling of time", "rows in another order", "files in other pieces"} <= held


@pytest.mark.parametrize("cause", ["slow_link_of_one_group"])
def test_simulated_jobs(cause: str, tmp_path: Path) -> None:
    job = simulate_item(ExamItem("planted", cause, 5_000))
    write_traces(job.planted.with_cause, job.truth.histories, tmp_path)
    outcomes = check_source(tmp_path).outcomes
    assert broken(outcomes) == []
    assert {"ranks renumbered", "a rank left out", "rows twice"} <= {
        one.check for one in outcomes if one.status == "holds"
    }


# ---------------------------------------------------------------------------- what is not as it has to be


@pytest.fixture
def later(test_data: Path, tmp_path: Path) -> Iterator[Relation]:
    """Of a run whose step is the capture, of 97 µs."""
    source = test_data / "kineto" / "cuda_sync_a100"
    with source_at(source) as found:
        yield TimesShifted(found, CheckedReading.from_run(cclbench.ingest(source, store=tmp_path)))


def changed(reading: CheckedReading, **changes: Any) -> CheckedReading:
    """The same with another `time.step` of the run."""
    rows = [
        msgspec.structs.replace(row, **changes) if row is reading.run_row("time.step") else row
        for row in reading.rows
    ]
    return replace(reading, rows=rows)


def test_a_figure_that_changed_is_named(later: Relation) -> None:
    value = later.reading.run_value("time.step")
    assert compare_readings(later, later.reading).differing == 0
    other = compare_readings(later, changed(later.reading, value=1.0))
    assert other.differences == [f"time.step: 1, expected {value:.12g} s"]
    assert (other.status, other.differing, other.compared) == (
        "broken",
        1,
        len(later.reading.rows) + len(later.reading.findings),
    )
    partial = compare_readings(later, changed(later.reading, status="partial", reason="why"))
    assert partial.differences == ["time.step: partial (why), expected ok"]


def test_rows_and_findings_that_come_or_go_are_named(later: Relation) -> None:
    own = later.reading
    assert own.findings
    fewer = replace(own, rows=own.rows[1:], findings=own.findings[1:])
    gone = compare_readings(later, fewer).differences
    assert [said.rsplit(": ", 1)[1] for said in gone] == ["not in the changed run", "not in the changed run"]
    back = compare_readings(TimesShifted(later.source, fewer), own).differences
    assert [said.rsplit(": ", 1)[1] for said in back] == [
        "only in the changed run",
        "only in the changed run",
    ]


def test_what_takes_twice_as_long_and_does_not_is_named(later: Relation) -> None:
    own = later.reading
    chosen = [row for row in own.rows if row.metric in ("time.step", "compute.kernel_count", "compute.busy")]
    short = replace(own, rows=chosen)
    outcome = compare_readings(TimesScaled(later.source, short), short)
    assert {said.split()[0].strip(":") for said in outcome.differences} == {"time.step"}


def kernels(*names: str) -> Rows:
    """Kernels one after another."""
    known = Names()
    at = np.arange(len(names), dtype=np.int64)
    codes = np.array([known[name] for name in names], np.int32)
    return Rows(kind="kernel", side="device", names=known, codes=codes, start_ns=at, dur_ns=at + 1, track=at)


def test_payloads_follow_their_kernels_to_other_places() -> None:
    """Batches of 3 and 2: the rows of each are reversed."""
    change = ReversedRows()
    batches = [kernels(*"abc"), kernels(*"de")]
    told = [
        list(rows.names)[code]
        for batch in batches
        for rows in change.change_rows(batch)
        for code in rows.codes
    ]
    assert told == list("cbaed")
    assert change.change_ordinals(np.arange(5)).tolist() == [2, 1, 0, 4, 3]


def test_payloads_follow_their_kernels_behind_repeated_ones() -> None:
    """Of batches of 40 and 20 every 20th row comes once more, behind its batch."""
    change = RepeatedRows()
    sizes = [len(rows) for batch in (40, 20) for rows in change.change_rows(kernels(*map(str, range(batch))))]
    assert sizes == [40, 2, 20, 1]
    assert change.change_ordinals(np.array([0, 39, 40, 59])).tolist() == [0, 39, 42, 61]
