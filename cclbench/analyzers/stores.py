# SPDX-License-Identifier: Apache-2.0
"""What a store delivers, by FIO and elbencho, and what devices delivered, by iostat."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, Final

import pyarrow as pa

from cclbench.analyzers.metric import NotApplicable, Value, run_metric
from cclbench.analyzers.storage import DLIO_PHASES
from cclbench.analyzers.view.columns import matching_rows, with_words
from cclbench.analyzers.view.run_view import RunView
from cclbench.ground.evidence_schema import STORE_UNITS

NO_STORE: Final = "needs results of FIO or elbencho, or reports of iostat"
_store_metric = partial(run_metric, inputs=("storage",), not_applicable=NO_STORE)
_STATS: Final = ("min", "p50", "p90", "p99", "p99.9", "max")
_OWNER: Final = ("file", "job", "phase")
_MOST_OWNERS: Final = 64
_EACH: Final = (
    " By operation, and by job or device and by file where there are several: nothing is added up, since"
    " jobs may run at once or one after the other. Of several reports or repetitions the mean, with min and"
    " max over them."
)


@_store_metric(
    "storage.throughput",
    definition="Bytes per second that a store moved: of a benchmark's job over its whole time (FIO) or to"
    " the end of its last thread (elbencho), of a device in the intervals of iostat." + _EACH,
    formula="bytes / time",
    unit="B/s",
    better="higher",
)
def throughput(run: RunView) -> Iterator[Value]:
    """Bytes a second."""
    yield from _values(run, "bytes_per_s")


@_store_metric(
    "storage.iops",
    definition="Operations per second of a store: reads and writes of a benchmark's blocks, requests to a"
    " device by iostat, which the kernel may have merged or split." + _EACH,
    formula="operations / time",
    unit="1/s",
    better="higher",
)
def iops(run: RunView) -> Iterator[Value]:
    """Operations a second."""
    yield from _values(run, "operations_per_s")


@_store_metric(
    "storage.latency",
    definition="Time of an operation of a store, the mean, with least, most and percentiles where a benchmark"
    " states them: FIO's from submission to completion (clat), elbencho's of a call; of iostat the time of a"
    " request in queue and device, the mean over requests of all reports (min and max over their means)."
    + _EACH,
    formula="Σ time / operations",
    unit="s",
    better="lower",
)
def latency(run: RunView) -> Iterator[Value]:
    """Time of an operation."""
    yield from _values(run, "latency")


@_store_metric(
    "storage.utilization",
    definition="Share of the time in which a device had a request (iostat's %util, FIO's disk_util). A device"
    " that serves many at once, as SSDs and arrays do, is not at its limit when it is 1." + _EACH,
    formula="time with a request / time",
    unit="1",
)
def utilization(run: RunView) -> Iterator[Value]:
    """Share of time with a request."""
    yield from _values(run, "utilization")


def store_rows(run: RunView, *figures: str) -> pa.Table:
    """Rows of figures of `STORE_UNITS` by benchmarks and monitors of stores."""
    rows = with_words(run.table("storage"), "figure", figures)
    return rows.filter(pa.array(matching_rows(rows, "phase", lambda phase: phase not in DLIO_PHASES)))


def _values(run: RunView, figure: str) -> Iterator[Value]:
    """A value for each file, job and operation, and its spread."""
    rows, stated = store_rows(run, figure), store_rows(run, *STORE_UNITS)
    if not len(rows):
        raise NotApplicable("the store's files do not state it" if len(stated) else NO_STORE)
    owners = dict[tuple[str, ...], dict[str | None, dict[str, Any]]]()
    for row in _aggregated(run, rows, figure).to_pylist():
        owner = tuple(row[name] or "" for name in _OWNER)
        owners.setdefault(owner, {})[row["stat"]] = row
    # Of all figures, so that an operation has one name: idle devices have no latency.
    has_several = [len(stated[name].unique()) > 1 for name in _OWNER[:2]]
    left_out = {"jobs, devices and operations that are not listed": max(len(owners) - _MOST_OWNERS, 0)}
    for owner, stats in sorted(owners.items())[:_MOST_OWNERS]:
        words = [word for word, is_shown in zip(owner, (*has_several, True), strict=True) if is_shown]
        yield from _owner_values(": ".join(filter(None, words)), stats, left_out)


def _owner_values(
    category: str, stats: dict[str | None, dict[str, Any]], left_out: dict[str, int]
) -> Iterator[Value]:
    mean = stats[None]
    value = partial(Value, category=category, source=mean["source_min"])
    count = mean["value_count"]
    yield value(
        value=mean["weighted_sum"] / mean["weight_sum"],
        reason=f"mean of {count:,} samples" if count > 1 else None,
        provenance="derived" if count > 1 else "measured",
        left_out=left_out,
    )
    for stat in _STATS:
        extreme = f"value_{stat}" if stat in ("min", "max") else None
        if extreme is not None and (stat in stats or count > 1):
            yield value(value=stats.get(stat, mean)[extreme], stat=stat)
        elif stat in stats and stats[stat]["value_count"] == 1:
            yield value(value=stats[stat]["value_max"], stat=stat)


def _aggregated(run: RunView, rows: pa.Table, figure: str) -> pa.Table:
    """Rows by file, job, operation and stat: weighted sum, weights, extremes and count."""
    import pyarrow.compute as pc  # imported late: metrics are listed without it

    rows = _plain(rows)
    weight = pa.array([1.0] * len(rows), pa.float64())
    if figure == "latency":
        rows, weight = _requests(rows, _plain(store_rows(run, "operations_per_s")))
    rows = rows.append_column("weight", weight)
    rows = rows.append_column("weighted", pc.multiply(rows["value"], rows["weight"]))
    aggregates = (("weighted", "sum"), ("weight", "sum"), ("source", "min"), ("value", "count"))
    extremes = (("value", "min"), ("value", "max"))
    return rows.group_by([*_OWNER, "stat"], use_threads=False).aggregate([*aggregates, *extremes])


def _requests(rows: pa.Table, operations: pa.Table) -> tuple[pa.Table, pa.ChunkedArray]:
    """The rows in another order, and the requests of iostat's intervals, which are of one length; else 1."""
    import pyarrow.compute as pc  # as above

    keys = [*_OWNER, "sample"]
    counts = operations.select([*keys, "value"]).rename_columns([*keys, "requests"])
    joined = rows.join(counts, keys, join_type="left outer", use_threads=False)
    return joined, pc.if_else(pc.equal(joined["source"], "iostat"), joined["requests"], 1.0)


def _plain(rows: pa.Table) -> pa.Table:
    """The rows with words as plain strings, by which tables are joined."""
    for name in ("source", "file", "job", "phase", "stat"):
        rows = rows.set_column(rows.schema.get_field_index(name), name, rows[name].cast(pa.string()))
    return rows
