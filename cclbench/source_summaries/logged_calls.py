# SPDX-License-Identifier: Apache-2.0
"""Calls of collectives and transfers that logs list: by process group and kind, by pair of ranks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from cclbench.ground.schema import TOTAL
from cclbench.ground.units import humanise
from cclbench.record.metric_name import metric_name
from cclbench.record.rows import Row
from cclbench.source_summaries.summary import Cell, FigureColumn, FigureTable, SourceSummary, SummaryInputs

_CALL_COLUMNS: Final = (
    FigureColumn(name="group", key=True),
    FigureColumn(name="kind", key=True),
    FigureColumn(name="calls", unit="count"),
    FigureColumn(name="bytes", unit="B", lead=True),
    FigureColumn(name="most common size"),
)
_EDGE_COLUMNS: Final = (
    FigureColumn(name="from -> to", key=True),
    FigureColumn(name="sends", unit="count"),
    FigureColumn(name="receives", unit="count"),
    FigureColumn(name="bytes", unit="B", lead=True),
    FigureColumn(name="unmatched", unit="count"),
)
_COUNT: Final = metric_name("comm.count")
_VOLUME: Final = metric_name("comm.volume")
_EDGES: Final = metric_name("comm.edges")
_UNKNOWN_GROUP: Final = "unknown"
_Part = tuple[str | None, str | None, str | None]
"""Group, kind and size of calls; None for all."""


def summarise_calls(inputs: SummaryInputs) -> Iterator[SourceSummary]:
    """All calls in a sentence; by process group and kind, and transfers by pair of ranks."""
    rows = list(inputs.results.summary)
    calls = _rank_totals(rows, _COUNT).get((None, None, None))
    if calls is None:
        return
    carried = _rank_totals(rows, _VOLUME).get((None, None, None))
    text = f"{humanise(calls, 'count')} calls of collectives and transfers"
    tables = (
        ("calls", "Calls by group and kind", _CALL_COLUMNS, _call_rows(rows)),
        ("transfers", "Transfers by pair of ranks", _EDGE_COLUMNS, _edge_rows(rows)),
    )
    yield SourceSummary(
        kind="calls",
        heading="Calls in its logs",
        sentences=[
            f"{text}." if carried is None else f"{text} carry {humanise(carried, 'B')}, all ranks together."
        ],
        tables=[
            FigureTable(subject=subject, title=title, columns=columns, rows=table_rows)
            for subject, title, columns, table_rows in tables
            if table_rows
        ],
    )


def _call_rows(rows: Sequence[Row]) -> list[tuple[Cell, ...]]:
    """Calls of each process group and kind, all ranks together, most bytes first."""
    calls, volume = (_with_rest(_rank_totals(rows, metric)) for metric in (_COUNT, _VOLUME))
    sizes = _rank_totals(rows, _COUNT)
    keys = sorted(
        ((group, kind) for group, kind in calls if kind is not None),
        key=lambda key: (-volume.get(key, 0.0), -calls[key], key[0] or "", key[1] or ""),
    )
    return [
        (
            group or _UNKNOWN_GROUP,
            kind,
            calls[group, kind],
            volume.get((group, kind)),
            _common_sizes({size: n for (g, k, size), n in sizes.items() if size and (g, k) == (group, kind)}),
        )
        for group, kind in keys
    ]


def _edge_rows(rows: Sequence[Row]) -> list[tuple[Cell, ...]]:
    """Sends and receives of each pair of ranks, most bytes first."""
    by_pair: dict[str, dict[tuple[str | None, str | None], float]] = {}
    for row in rows:
        if row.metric == _EDGES and row.rank is None and row.category and row.has_value:
            pair, _, size = row.category.partition(" ")
            if not size:
                by_pair.setdefault(pair, {})[row.collective, row.stat] = row.number
    carried = {
        pair: max(amounts.get(("send", "bytes"), 0.0), amounts.get(("recv", "bytes"), 0.0))
        for pair, amounts in by_pair.items()
    }
    return [
        (
            pair,
            *(amounts.get((kind, None), 0.0) for kind in ("send", "recv")),
            carried[pair],
            amounts.get((None, "unmatched")),
        )
        for pair, amounts in sorted(by_pair.items(), key=lambda entry: (-carried[entry[0]], entry[0]))
    ]


def _rank_totals(rows: Sequence[Row], metric: str) -> dict[_Part, float]:
    """A metric's sums over all ranks."""
    return {
        (row.group, row.collective, row.category): row.number
        for row in rows
        if row.metric == metric and row.stat == TOTAL and row.rank is None and row.has_value
    }


def _with_rest(totals: dict[_Part, float]) -> dict[tuple[str | None, str | None], float]:
    """Sums by group and kind; with group None, the rest of a kind that is in no known group."""
    sums = {(group, kind): amount for (group, kind, size), amount in totals.items() if size is None}
    for (group, kind), amount in [*sums.items()]:
        if group is not None:
            sums[None, kind] -= amount
    return {key: amount for key, amount in sums.items() if key[0] is not None or amount}


def _common_sizes(sizes: dict[str, float]) -> str | None:
    """The most common range of sizes, and its share of the calls."""
    if not sizes:
        return None
    size = max(sizes, key=lambda size_range: (sizes[size_range], size_range))
    share = sizes[size] / sum(sizes.values())
    return size if share > 0.999 else f"{size}, {humanise(share, '1')}"
