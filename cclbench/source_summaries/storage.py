# SPDX-License-Identifier: Apache-2.0
"""Storage by DLIO's results, stores by FIO, elbencho and iostat, and calls for files by DFTracer's traces."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from cclbench.ground.units import humanise
from cclbench.record.metric_name import metric_name, metric_names
from cclbench.record.rows import Row
from cclbench.source_summaries.summary import FigureColumn, FigureTable, SourceSummary, SummaryInputs

_METRICS: Final = metric_names(
    "storage.accelerator_utilization", "storage.samples", "storage.read_rate", "storage.checkpoint_time"
)
_COLUMNS: Final = (
    FigureColumn(name="result", key=True),
    FigureColumn(name="utilization", unit="1", lead=True),
    FigureColumn(name="samples", unit="1/s", lead=True),
    FigureColumn(name="rate", unit="B/s", lead=True),
    FigureColumn(name="time", unit="s"),
)
_MOST_RESULTS: Final = 8
_TRAINING: Final = "training"
_Figure = tuple[str, str | None]
_STORE_FIGURES: Final[tuple[_Figure, ...]] = (
    (metric_name("storage.throughput"), None),
    (metric_name("storage.iops"), None),
    (metric_name("storage.latency"), None),
    (metric_name("storage.latency"), "p99"),
    (metric_name("storage.utilization"), None),
)
_STORE_COLUMNS: Final = (
    FigureColumn(name="what", key=True),
    FigureColumn(name="rate", unit="B/s", lead=True),
    FigureColumn(name="operations", unit="1/s", lead=True),
    FigureColumn(name="latency", unit="s"),
    FigureColumn(name="p99", unit="s"),
    FigureColumn(name="utilization", unit="1"),
)
_IO_TIME: Final = metric_name("storage.io_time")
_IO_BYTES: Final = metric_name("storage.io_bytes")
_IO_RATE: Final = metric_name("storage.io_rate")
_LATENCY: Final = metric_name("storage.io_latency")
_CALL_STATS: Final = ("count", "sum", None, "p50", "p99", "max")
_CALL_COLUMNS: Final = (
    FigureColumn(name="function", key=True),
    *(
        FigureColumn(name=stat or "mean", unit="count" if stat == "count" else "s", lead=stat is None)
        for stat in _CALL_STATS
    ),
)


def summarise_storage(inputs: SummaryInputs) -> Iterator[SourceSummary]:
    """A row for each result and phase; sentences of the first ones."""
    rows_by_name: dict[str, dict[str, Row]] = {}
    for row in inputs.results.summary:
        if row.metric in _METRICS and row.rank is None and row.stat is None and row.value is not None:
            rows_by_name.setdefault(row.category or _TRAINING, {})[row.metric] = row
    if not rows_by_name:
        return
    yield SourceSummary(
        kind="storage",
        heading="Storage by DLIO",
        sentences=[_sentence(name, rows) for name, rows in list(rows_by_name.items())[:_MOST_RESULTS]],
        tables=[
            FigureTable(
                subject="storage",
                title="Storage",
                columns=_COLUMNS,
                rows=[
                    (name, *(rows[metric].value if metric in rows else None for metric in _METRICS))
                    for name, rows in rows_by_name.items()
                ],
                detail=True,
            )
        ],
        absent=["not stated: what the store itself delivered; rates are of samples, caches may serve some"],
    )


def _sentence(name: str, rows: Mapping[str, Row]) -> str:
    utilization, samples, rate, time = (rows.get(metric) for metric in _METRICS)
    parts = []
    if utilization is not None:
        parts.append(f"accelerators compute {humanise(utilization.number, '1')} of the time")
    if samples is not None:
        parts.append(f"{samples.number:,.4g} samples/s")
    if rate is not None:
        parts.append(humanise(rate.number, "B/s"))
    if time is not None:
        parts.append(f"{humanise(time.number, 's')} a checkpoint")
    return f"{name[:1].upper()}{name[1:]}: {', '.join(parts)}."


def summarise_stores(inputs: SummaryInputs) -> Iterator[SourceSummary]:
    """A row for each job or device and operation; sentences of the first ones."""
    rows_by_owner: dict[str, dict[_Figure, Row]] = {}
    for row in inputs.results.summary:
        figure = row.metric, row.stat
        if figure in _STORE_FIGURES and row.rank is None and row.category and row.value is not None:
            rows_by_owner.setdefault(row.category, {})[figure] = row
    if not rows_by_owner:
        return
    # Idle devices last.
    listed = sorted(rows_by_owner.items(), key=lambda item: not any(row.value for row in item[1].values()))
    yield SourceSummary(
        kind="stores",
        heading="What the store delivers",
        sentences=[_store_sentence(owner, rows) for owner, rows in listed[:_MOST_RESULTS]],
        tables=[
            FigureTable(
                subject="stores",
                title="Stores",
                columns=_STORE_COLUMNS,
                rows=[
                    (owner, *(rows[key].value if key in rows else None for key in _STORE_FIGURES))
                    for owner, rows in listed
                ],
            )
        ],
        absent=["not stated: how much of it caches of the host served"],
    )


def _store_sentence(owner: str, rows: Mapping[_Figure, Row]) -> str:
    rate, operations, latency, p99, utilization = (rows.get(figure) for figure in _STORE_FIGURES)
    parts = []
    if rate is not None:
        parts.append(humanise(rate.number, "B/s"))
    if operations is not None:
        parts.append(f"{operations.number:,.4g} operations/s")
    if latency is not None:
        worst = "" if p99 is None else f" (p99 {humanise(p99.number, 's')})"
        parts.append(f"{humanise(latency.number, 's')} each{worst}")
    if utilization is not None:
        parts.append(f"with a request {humanise(utilization.number, '1')} of the time")
    return f"{owner}: {', '.join(parts)}."


def summarise_io_calls(inputs: SummaryInputs) -> Iterator[SourceSummary]:
    """Time, bytes and rate of reads, writes and other calls; a row for each of the longest functions."""
    rows = {(row.metric, row.category, row.stat): row for row in inputs.results.summary if row.rank is None}
    time, share = rows.get((_IO_TIME, None, None)), rows.get((_IO_TIME, None, "share"))
    if time is None or time.value is None:
        return
    of_all = "" if share is None else f", {humanise(share.number, '1')} of their time"
    sentences = [f"{time.reason}: {humanise(time.number, 's')} in calls for files{of_all}."]
    for kind in ("read", "write", "metadata"):
        keys = ((_IO_TIME, "count"), (_IO_TIME, None), (_IO_BYTES, None), (_IO_RATE, None))
        kind_rows = [rows.get((metric, kind, stat)) for metric, stat in keys]
        if words := [_words(row) for row in kind_rows if row is not None]:
            sentences.append(f"{kind[:1].upper()}{kind[1:]}: {', '.join(words)}.")
    functions = [name for metric, name, stat in rows if (metric, stat) == (_LATENCY, None) and name]
    functions.sort(key=lambda name: -rows[_LATENCY, name, "sum"].number)
    yield SourceSummary(
        kind="io_calls",
        heading="Calls for files by DFTracer",
        sentences=sentences,
        tables=[
            FigureTable(
                subject="functions",
                title="Functions by time",
                columns=_CALL_COLUMNS,
                rows=[
                    (name, *(rows[_LATENCY, name, stat].value for stat in _CALL_STATS)) for name in functions
                ],
            )
        ],
        absent=["not in the trace: accesses through mmap, which are no calls"],
    )


def _words(row: Row) -> str:
    return f"{row.number:,.0f} calls" if row.unit == "count" else humanise(row.number, row.unit)
