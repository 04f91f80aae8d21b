# SPDX-License-Identifier: Apache-2.0
"""Summary of one kind of source as data, from which screen, page, JSON and comparison are rendered."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from cclbench.analyzers.view.run_view import RunView
from cclbench.record.results import Results
from cclbench.record.run import Run

Cell = str | float | None


class FigureColumn(msgspec.Struct, frozen=True, kw_only=True):
    """A column of a `FigureTable`."""

    name: str
    unit: str | None = None
    """Base SI unit of its numbers; None: texts."""
    key: bool = False
    """Whether it says what a row is about: rows of two sources with equal keys are compared."""
    lead: bool = False
    """Whether its figures are shown beside their ratio where two sources are compared."""
    detail: bool = False
    """Whether it is left out on a terminal, unless verbose."""


class FigureTable(msgspec.Struct, frozen=True, kw_only=True):
    """Figures of a source by row; None is unknown."""

    subject: str
    """What it is about, such as `all_reduce`: tables of two sources with equal subjects are compared."""
    title: str
    columns: tuple[FigureColumn, ...]
    rows: list[tuple[Cell, ...]]
    detail: bool = False
    """Whether the sentences say the same: it is left out on a terminal, unless verbose."""

    ascending: bool = False
    """Whether rows ascend by size or load: a terminal with few lines shows evenly spaced ones."""

    def values_of(self, name: str) -> list[Any]:
        """The cells of the column with that name."""
        place = [column.name for column in self.columns].index(name)
        return [row[place] for row in self.rows]


class SourceSummary(msgspec.Struct, frozen=True, kw_only=True):
    """What a source of one kind says: what is wrong first, then sentences and tables."""

    kind: str
    """`sweep`, `serving`, `memory`, ...: summaries of two sources of one kind are compared."""
    heading: str
    warnings: list[str] = []
    """Failures: wrong results, failed requests, refused memory."""
    sentences: list[str] = []
    tables: list[FigureTable] = []
    absent: list[str] = []
    """What people look for that is not in the source, and what would state it."""


@dataclass(frozen=True, slots=True)
class SummaryInputs:
    """What summaries are made of: a run, the view of its tables, and its result rows."""

    run: Run
    view: RunView
    results: Results


Summarise = Callable[[SummaryInputs], Iterator[SourceSummary]]
"""The summaries of one kind; none where the source has nothing of it."""


def summary_document(summary: SourceSummary) -> dict[str, Any]:
    """The summary as JSON, with the document of each table."""
    return {
        "kind": summary.kind,
        "heading": summary.heading,
        "warnings": summary.warnings,
        "sentences": summary.sentences,
        "tables": list(map(_table_document, summary.tables)),
        "absent": summary.absent,
    }


def _table_document(table: FigureTable) -> dict[str, Any]:
    """Rows as objects by column, without what only steers a terminal."""
    names = [column.name for column in table.columns]
    return {
        "subject": table.subject,
        "title": table.title,
        "columns": list(map(column_document, table.columns)),
        "rows": [dict(zip(names, row, strict=True)) for row in table.rows],
    }


def column_document(column: FigureColumn) -> dict[str, Any]:
    """A column as JSON."""
    return {"name": column.name, "unit": column.unit, "key": column.key}
