# SPDX-License-Identifier: Apache-2.0
"""Disaggregated serving: parts of the time to first token, and of the requests that wait longest for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from cclbench.analyzers.served_apart import SHOWN_PARTS, split_requests
from cclbench.analyzers.view.served_apart import FirstTokens
from cclbench.analyzers.view.values import NS_PER_S
from cclbench.ground.units import humanise
from cclbench.record.metric_name import metric_name
from cclbench.source_summaries.summary import Cell, FigureColumn, FigureTable, SourceSummary, SummaryInputs

_METRIC: Final = metric_name("serving.first_token")
_STATS: Final = (None, "p50", "p90", "p99")
_WORDS: Final = {"kv_wait": "wait for the KV cache", "first_token": "first token"}
_PARTS: Final = (
    FigureColumn(name="part", key=True),
    *(FigureColumn(name=stat or "mean", unit="s", lead=stat is None) for stat in _STATS),
)
_SLOWEST: Final = (
    FigureColumn(name="arrival", unit="s"),
    FigureColumn(name="TTFT", unit="s", lead=True),
    *(FigureColumn(name=_WORDS.get(part, part), unit="s") for part in SHOWN_PARTS),
)
_MOST_REQUESTS: Final = 10


def summarise_served_apart(inputs: SummaryInputs) -> Iterator[SourceSummary]:
    """The mean time to first token by part, percentiles, and the slowest requests by part."""
    split = split_requests(inputs.view)
    if split is None:
        return
    rows = {
        (row.category, row.stat): row.value
        for row in inputs.results.summary
        if row.metric == _METRIC and row.has_value
    }
    parts = [part for part in (None, *SHOWN_PARTS, "hidden_transfer") if rows.get((part, None))]
    table: list[tuple[Cell, ...]] = [
        (_words(part), *(rows.get((part, stat)) for stat in _STATS)) for part in parts
    ]
    tables = [FigureTable(subject="first token", title="Time to first token", columns=_PARTS, rows=table)]
    if len(split.ttft):
        slowest = _slowest_rows(split)
        title = "Requests that wait longest for their first token"
        tables.append(
            FigureTable(subject="requests", title=title, columns=_SLOWEST, rows=slowest, detail=True)
        )
    yield SourceSummary(
        kind="served_apart",
        heading=f"{split.joined:,} requests prefilled and decoded by two instances",
        sentences=[_sentence(rows)],
        tables=tables if table else [],
        absent=[f"{count:,} requests are not split: {reason}" for reason, count in split.unsplit.items()],
    )


def _words(part: str | None) -> str:
    return "in all" if part is None else _WORDS.get(part, part.replace("_", " "))


def _sentence(rows: dict[tuple[str | None, str | None], float | None]) -> str:
    if (ttft := rows.get((None, None))) is None:
        bound, prefill = rows.get(("transfer", "max_mean")), rows.get(("prefill", None))
        if bound is None or prefill is None:
            return "What their first token waits for is not known."
        limits = f"{humanise(prefill, 's')} of prefill, and at most {humanise(bound, 's')} of transfer alone"
        return f"A first token waits for {limits}, in the mean; the rest is not known."
    shares = [
        f"{_words(part)} {humanise(time, 's')}" for part in SHOWN_PARTS if (time := rows.get((part, None)))
    ]
    return f"Time to first token {humanise(ttft, 's')} in the mean: {', '.join(shares)}."


def _slowest_rows(split: FirstTokens) -> list[tuple[Cell, ...]]:
    first = int(split.arrival.min())
    return [
        (
            (int(split.arrival[place]) - first) / NS_PER_S,
            *(
                int(times[place]) / NS_PER_S
                for times in (split.ttft, *map(split.parts.__getitem__, SHOWN_PARTS))
            ),
        )
        for place in np.argsort(-split.ttft, kind="stable")[:_MOST_REQUESTS].tolist()
    ]
