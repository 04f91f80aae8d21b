# SPDX-License-Identifier: Apache-2.0
"""Summary of a job's calls from logs, if there is no trace: a sentence and two tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from cclbench.ground.schema import TOTAL
from cclbench.ground.units import humanise
from cclbench.record.metric_name import metric_name
from cclbench.record.rows import Row

_CALL_COLUMNS: Final = ("group", "kind", "calls", "bytes", "most common size")
_EDGE_COLUMNS: Final = ("from -> to", "sends", "receives", "bytes", "unmatched")
_COUNT: Final = metric_name("comm.count")
_VOLUME: Final = metric_name("comm.volume")
_EDGES: Final = metric_name("comm.edges")
_UNKNOWN_GROUP: Final = "unknown"
_Part = tuple[str | None, str | None, str | None]
"""Group, kind and size of calls; None for all."""


def summary_of_calls(rows: Sequence[Row]) -> str | None:
    """All calls in a sentence; None without a log."""
    calls = _rank_totals(rows, _COUNT).get((None, None, None))
    if calls is None:
        return None
    carried = _rank_totals(rows, _VOLUME).get((None, None, None))
    text = f"{humanise(calls, 'count')} calls of collectives and transfers"
    return (
        f"{text} carry {humanise(carried, 'B')}, all ranks together." if carried is not None else f"{text}."
    )


@dataclass(frozen=True, slots=True)
class CallTable:
    """A table of calls by `of`; `more` is the number of rows left out."""

    of: str
    columns: tuple[str, ...]
    rows: list[dict[str, str]]
    more: int


def tables_of_calls(rows: Sequence[Row], most: int) -> list[CallTable]:
    """Calls by process group and kind, and transfers by pair of ranks, at most `most` rows of each."""
    tables = (
        ("groups and kinds", _CALL_COLUMNS, _call_rows(rows)),
        ("pairs of ranks", _EDGE_COLUMNS, _edge_rows(rows)),
    )
    return [
        CallTable(of, columns, found[:most], max(0, len(found) - most))
        for of, columns, found in tables
        if found
    ]


def _call_rows(rows: Sequence[Row]) -> list[dict[str, str]]:
    """Calls of each process group and kind, all ranks together, most bytes first."""
    calls, volume = (_with_rest(_rank_totals(rows, metric)) for metric in (_COUNT, _VOLUME))
    sizes = _rank_totals(rows, _COUNT)
    keys = sorted(
        ((group, kind) for group, kind in calls if kind is not None),
        key=lambda key: (-volume.get(key, 0.0), -calls[key], key[0] or "", key[1] or ""),
    )
    return [
        dict(
            zip(
                _CALL_COLUMNS,
                (
                    group or _UNKNOWN_GROUP,
                    kind or "",
                    humanise(calls[group, kind], "count"),
                    humanise(volume[group, kind], "B") if (group, kind) in volume else "",
                    _common_sizes(
                        {size: n for (g, k, size), n in sizes.items() if size and (g, k) == (group, kind)}
                    ),
                ),
                strict=True,
            )
        )
        for group, kind in keys
    ]


def _edge_rows(rows: Sequence[Row]) -> list[dict[str, str]]:
    """Sends and receives of each pair of ranks, most bytes first."""
    found: dict[str, dict[tuple[str | None, str | None], float]] = {}
    for row in rows:
        if row.metric == _EDGES and row.rank is None and row.category and row.has_value:
            pair, _, size = row.category.partition(" ")
            if not size:
                found.setdefault(pair, {})[row.collective, row.stat] = row.number
    carried = {
        pair: max(own.get(("send", "bytes"), 0.0), own.get(("recv", "bytes"), 0.0))
        for pair, own in found.items()
    }
    return [
        dict(
            zip(
                _EDGE_COLUMNS,
                (
                    pair,
                    *(humanise(own.get((kind, None), 0.0), "count") for kind in ("send", "recv")),
                    humanise(carried[pair], "B"),
                    humanise(own[None, "unmatched"], "count") if (None, "unmatched") in own else "",
                ),
                strict=True,
            )
        )
        for pair, own in sorted(found.items(), key=lambda one: (-carried[one[0]], one[0]))
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
    found = {(group, kind): amount for (group, kind, size), amount in totals.items() if size is None}
    for (group, kind), amount in [*found.items()]:
        if group is not None:
            found[None, kind] -= amount
    return {key: amount for key, amount in found.items() if key[0] is not None or amount}


def _common_sizes(sizes: dict[str, float]) -> str:
    """The most common range of sizes, and its share of the calls."""
    if not sizes:
        return ""
    size = max(sizes, key=lambda one: (sizes[one], one))
    share = sizes[size] / sum(sizes.values())
    return size if share > 0.999 else f"{size}, {humanise(share, '1')}"
