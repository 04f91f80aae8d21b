# SPDX-License-Identifier: Apache-2.0
"""Roles of a reinforcement-learning job: how much of the time each is active."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from cclbench.ground.units import humanise
from cclbench.record.metric_name import metric_name
from cclbench.source_summaries.summary import Cell, FigureColumn, FigureTable, SourceSummary, SummaryInputs

_ACTIVE: Final = metric_name("rl.active")
_COLUMNS: Final = (
    FigureColumn(name="role", key=True),
    FigureColumn(name="active", unit="1", lead=True),
    FigureColumn(name="utilisation", unit="1"),
)


def summarise_roles(inputs: SummaryInputs) -> Iterator[SourceSummary]:
    """A row for each role; a sentence of the time in which roles wait for others."""
    rows = {
        (row.category, row.stat): row
        for row in inputs.results.summary
        if row.metric == _ACTIVE and row.rank is None and row.has_value
    }
    if (None, None) not in rows:
        return
    roles = [name for name, stat in rows if name not in (None, "all", "none") and stat is None]
    parts = [f"{name} is active {humanise(rows[name, None].number, '1')} of the time" for name in roles]
    both, neither = (rows.get((name, None)) for name in ("all", "none"))
    if both is not None and neither is not None:
        parts.append(f"all at once {humanise(both.number, '1')}, none {humanise(neither.number, '1')}")
    table: list[tuple[Cell, ...]] = []
    for name in roles:
        busy = rows.get((name, "utilization"))
        table.append((name, rows[name, None].value, None if busy is None else busy.value))
    yield SourceSummary(
        kind="roles",
        heading="Roles of the job",
        sentences=[f"{'; '.join(parts)}."],
        tables=[FigureTable(subject="roles", title="Activity of roles", columns=_COLUMNS, rows=table)],
    )
