# SPDX-License-Identifier: Apache-2.0
"""Sessions of agents: how long the model and its tools take, and what a cache of tool results could save."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from cclbench.ground.units import humanise
from cclbench.record.metric_name import metric_name
from cclbench.record.rows import Row
from cclbench.source_summaries.summary import FigureColumn, FigureTable, SourceSummary, SummaryInputs

_TIME: Final = metric_name("agent.time")
_LATENCY: Final = metric_name("agent.tool_latency")
_STATS: Final = ("count", "sum", None, "p50", "max", "failed")
_UNITS: Final[Mapping[str | None, str]] = {"count": "count", "failed": "1"}
_COLUMNS: Final = (
    FigureColumn(name="tool", key=True),
    *(FigureColumn(name=stat or "mean", unit=_UNITS.get(stat, "s"), lead=stat is None) for stat in _STATS),
)


def summarise_agents(inputs: SummaryInputs) -> Iterator[SourceSummary]:
    """The partition of the sessions' time, and a row for each tool."""
    rows = {(row.metric, row.category, row.stat): row for row in inputs.results.summary if row.rank is None}
    total = rows.get((_TIME, None, None))
    if total is None or total.value is None:
        return
    parts = []
    for category in ("model", "tools", "waiting"):
        share = rows.get((_TIME, category, "share"))
        words = "neither" if category == "waiting" else category
        parts += [] if share is None else [f"{words} {humanise(share.number, '1')}"]
    tools = [name for metric, name, stat in rows if (metric, stat) == (_LATENCY, None) and name]
    tools.sort(key=lambda name: -rows[_LATENCY, name, "sum"].number)
    sentences = [f"{total.reason}: {humanise(total.number, 's')}, {', '.join(parts)}."]
    if (most := rows.get((_TIME, "tools", None))) is not None:
        sentences.append(f"A cache of tool results saves {humanise(most.number, 's')} at most.")
    table_rows = [(name, *(_cell(rows.get((_LATENCY, name, stat))) for stat in _STATS)) for name in tools]
    yield SourceSummary(
        kind="agents",
        heading="Sessions of agents",
        sentences=sentences,
        tables=[FigureTable(subject="tools", title="Tools by time", columns=_COLUMNS, rows=table_rows)],
        absent=["whether calls repeat earlier ones: sessions do not state what tools were asked"],
    )


def _cell(row: Row | None) -> float | None:
    return None if row is None else row.value
