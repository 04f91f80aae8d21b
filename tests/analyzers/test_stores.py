# SPDX-License-Identifier: Apache-2.0
"""Figures of stores, by hand: jobs, devices and operations apart, requests as weights, percentiles kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from helpers.hand_made import Evidence, busy_steps, job_values

from cclbench.analyzers.metric import Value
from cclbench.ground.evidence_schema import IO_CALLS, STORAGE, STORE_UNITS

Row = tuple[str, str | None, int | None, str | None, float]


def stored(figure: str, *rows: Row, by: str = "fio") -> Evidence:
    return Evidence(storage=table(figure, rows, by))


def table(figure: str, rows: Sequence[Row], by: str) -> pa.Table:
    names = ("phase", "job", "sample", "stat", "value")
    common = {"source": by, "file": "a", "figure": figure, "unit": STORE_UNITS[figure]}
    listed: list[dict[str, Any]] = [common | dict(zip(names, row, strict=True)) for row in rows]
    return pa.Table.from_pylist(listed, schema=STORAGE)


def figures(metric: str, evidence: Evidence) -> dict[tuple[str | None, str | None], float | None]:
    return {(value.category, value.stat): value.value for value in job_values(metric, evidence)}


def test_jobs_and_operations_have_a_row_each_and_are_not_added_up() -> None:
    rates = stored("bytes_per_s", ("read", "a", None, None, 5.0), ("write", "b", None, None, 7.0))
    assert figures("storage.throughput", rates) == {("a: read", None): 5.0, ("b: write", None): 7.0}
    one_job = stored("operations_per_s", ("read", "a", None, None, 5.0), ("write", "a", None, None, 7.0))
    assert figures("storage.iops", one_job) == {("read", None): 5.0, ("write", None): 7.0}


def test_a_benchmarks_percentiles_stand_beside_its_mean() -> None:
    stated = {None: 2.0, "min": 1.0, "p50": 1.5, "p95": 2.5, "p99": 3.0, "p99.9": 4.0, "max": 5.0}
    evidence = stored("latency", *(("read", "a", None, stat, value) for stat, value in stated.items()))
    del stated["p95"]
    assert figures("storage.latency", evidence) == {("read", stat): value for stat, value in stated.items()}


def test_a_devices_latency_is_the_mean_over_requests() -> None:
    """90 requests of 1 ms, then 10 of 11 ms: 200 ms of 100 requests; an idle device has none, and no wait."""
    waits = [("read", "vda", 1, None, 0.001), ("read", "vda", 2, None, 0.011)]
    counts = [("read", "vda", 1, None, 90.0), ("read", "vda", 2, None, 10.0), ("read", "vda", 3, None, 0.0)]
    counts.append(("read", "vdb", 1, None, 0.0))
    both = pa.concat_tables([table("latency", waits, "iostat"), table("operations_per_s", counts, "iostat")])
    expected = {None: pytest.approx(0.002), "min": 0.001, "max": 0.011}
    found = figures("storage.latency", Evidence(storage=both))
    assert found == {("vda: read", stat): value for stat, value in expected.items()}
    expected = {None: pytest.approx(100 / 3), "min": 0.0, "max": 90.0}
    found = figures("storage.iops", Evidence(storage=both))
    assert found.pop(("vdb: read", None)) == 0.0
    assert found == {("vda: read", stat): value for stat, value in expected.items()}


def test_of_repeated_phases_least_and_most_are_over_all() -> None:
    rows = [
        ("read", None, n, stat, value) for n, stat, value in ((1, None, 2.0), (2, None, 4.0), (1, "min", 1.0))
    ]
    rows += [("read", None, 2, "min", 3.0), ("read", None, 1, "max", 6.0), ("read", None, 2, "max", 5.0)]
    expected = {("read", None): 3.0, ("read", "min"): 1.0, ("read", "max"): 6.0}
    assert figures("storage.latency", stored("latency", *rows, by="elbencho")) == expected


def test_a_training_benchmark_is_no_store_and_a_store_no_training_benchmark() -> None:
    both = pa.concat_tables(
        [table("bytes_per_s", [("train", None, None, None, 5.0)], "dlio"), table("utilization", [], "fio")]
    )
    (value,) = job_values("storage.throughput", Evidence(storage=both))
    assert value.reason == "needs results of FIO or elbencho, or reports of iostat"
    store = stored("bytes_per_s", ("read", "a", None, None, 5.0))
    (value,) = job_values("storage.read_rate", store)
    assert value.reason == "needs a result of DLIO or MLPerf Storage (summary.json)"
    (value,) = job_values("storage.latency", store)
    assert value.reason == "the store's files do not state it"


def floor(*reads: tuple[int, int], rates: pa.Table) -> Value:
    """`data.store_floor` of two steps, with reads of so many bytes at these times."""
    common = {"source": "dftracer", "process": 1, "layer": "POSIX", "function": "read", "kind": "read"}
    rows = [common | {"dur_ns": 5, "start_ns": at, "bytes": moved} for at, moved in reads]
    calls = pa.Table.from_pylist(rows, schema=IO_CALLS)
    (value,) = job_values(
        "data.store_floor", Evidence(storage=rates, io_calls=calls), busy_steps((100, 200), (200, 300))
    )
    return value


def test_a_step_takes_no_less_than_reading_its_bytes_does() -> None:
    """1,000 B within two steps, at 25 B/s, of two jobs the larger: 20 s a step; others are not within."""
    rows = [
        ("read", "a", None, None, 20.0),
        ("read", "b", None, None, 25.0),
        ("write", "b", None, None, 90.0),
    ]
    found = floor((99, 7), (100, 600), (299, 400), (300, 7), rates=table("bytes_per_s", rows, "fio"))
    assert (found.value, found.provenance) == (20.0, "derived")
    assert "500 B a step at 25.0 B/s, if the job reads from that store" in (found.reason or "")


@pytest.mark.parametrize(
    ("reads", "phase", "by", "says"),
    [
        ([(100, 5)], "read", "iostat", "needs a benchmark of the store that reads"),
        ([(100, 5)], "write", "fio", "needs a benchmark of the store that reads"),
        ([(99, 5)], "read", "fio", "no read begins within the steps"),
        ([], "read", "fio", "needs a trace of I/O calls"),
    ],
)
def test_no_limit_or_reads_no_floor(reads: list[tuple[int, int]], phase: str, by: str, says: str) -> None:
    """What iostat saw of a device is what was asked of it, not what it can do."""
    found = floor(*reads, rates=table("bytes_per_s", [(phase, "a", None, None, 20.0)], by))
    assert (found.status, found.value) == ("not_applicable", None)
    assert says in (found.reason or "")
