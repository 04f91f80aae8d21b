# SPDX-License-Identifier: Apache-2.0
"""Metrics of a serving engine: a request's time by part, latencies by its histograms."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from cclbench.ground.units import humanise
from cclbench.record.metric_name import metric_name
from cclbench.source_summaries.serving import FIGURE_WORDS
from cclbench.source_summaries.summary import Cell, FigureColumn, FigureTable, SourceSummary, SummaryInputs

_REQUEST: Final = metric_name("serving.request_time")
_LATENCY: Final = metric_name("serving.server_latency")
_PREFIX: Final = metric_name("serving.prefix_hit_rate")
_PARTS: Final = ("queue", "prefill", "decode", "outside")
_BOUNDS: Final = {"p50_low": "p50 from", "p50_high": "to", "p99_low": "p99 from", "p99_high": "to "}
_COLUMNS: Final = (
    FigureColumn(name="latency", key=True),
    FigureColumn(name="mean", unit="s", lead=True),
    *(FigureColumn(name=name, unit="s") for name in _BOUNDS.values()),
)


def summarise_server_metrics(inputs: SummaryInputs) -> Iterator[SourceSummary]:
    """The mean request by part, its latencies, and since when they count."""
    rows = {
        (row.metric, row.category, row.stat): row
        for row in inputs.results.summary
        if row.metric in (_REQUEST, _LATENCY, _PREFIX) and row.rank is None
    }
    if not inputs.view.table("server_metrics").num_rows or (_LATENCY, None, None) not in rows:
        return
    values = {key: row.value for key, row in rows.items()}
    sentences = []
    if (request_time := values.get((_REQUEST, None, None))) is not None:
        times = ((name, values.get((_REQUEST, name, None))) for name in _PARTS)
        parts = [f"{name} {humanise(time, 's')}" for name, time in times if time is not None]
        sentences.append(f"A request takes {humanise(request_time, 's')} in the mean: {', '.join(parts)}.")
    if (share := values.get((_PREFIX, None, None))) is not None:
        sentences.append(f"{humanise(share, '1')} of the tokens of prompts were in the prefix cache.")
    latencies: list[tuple[Cell, ...]] = [
        (FIGURE_WORDS.get(name, name), value, *(values.get((_LATENCY, name, stat)) for stat in _BOUNDS))
        for (metric, name, stat), value in values.items()
        if metric == _LATENCY and name and stat is None and value is not None
    ]
    table = FigureTable(
        subject="server latency", title="Latencies of requests", columns=_COLUMNS, rows=latencies
    )
    reason = rows[_LATENCY if request_time is None else _REQUEST, None, None].reason
    yield SourceSummary(
        kind="server_metrics",
        heading="Metrics of a serving engine",
        sentences=sentences,
        tables=[table] if latencies else [],
        absent=[] if reason is None else [reason],
    )
