# SPDX-License-Identifier: Apache-2.0
"""Cells and rows of `FigureTable` and `TableComparison` as texts, for terminal, page and Markdown."""

from __future__ import annotations

from typing import TypeVar

from cclbench.comparison.summaries import RowComparison, TableComparison
from cclbench.ground.text import printable
from cclbench.ground.units import humanise, size_text
from cclbench.source_summaries.summary import Cell, FigureColumn, FigureTable

_Row = TypeVar("_Row")


def cell_text(column: FigureColumn, value: Cell) -> str | None:
    """A cell with its unit; sizes that name a row are written as in sweeps; None where unknown."""
    if value is None:
        return None
    if isinstance(value, str) or column.unit is None:
        return printable(str(value))
    return size_text(value) if column.key and column.unit == "B" else humanise(value, column.unit)


def used_columns(table: FigureTable, *, detail: bool) -> list[tuple[int, FigureColumn]]:
    """Place and column of those with any value, without details unless wanted."""
    return [
        (place, column)
        for place, column in enumerate(table.columns)
        if (detail or not column.detail) and any(row[place] is not None for row in table.rows)
    ]


def leading_rows(table: FigureTable, most: int) -> list[tuple[Cell, ...]]:
    """At most `most` rows: the first ones, or of a table that ascends evenly spaced ones with both ends."""
    return _leading(table.rows, most, ascending=table.ascending)


def _leading(rows: list[_Row], most: int, *, ascending: bool) -> list[_Row]:
    if len(rows) <= most or not ascending or most < 2:
        return rows[:most]
    return [rows[round(place * (len(rows) - 1) / (most - 1))] for place in range(most)]


def comparison_heads(table: TableComparison) -> list[tuple[str, bool]]:
    """Headings of `comparison_cells`, and whether the column is of numbers: ratios first."""
    ratio, letters = f"{table.other}/{table.base}", (table.base, table.other)
    heads = [(table.keys[at].name, table.keys[at].unit is not None) for at in _used_keys(table)]
    for place in _compared_columns(table):
        column = table.columns[place]
        number = column.unit is not None
        heads += [(f"{column.name} {ratio}", True)] if number else []
        heads += [(letter, number) for letter in letters] if place == table.lead else []
    return heads


def comparison_cells(table: TableComparison, most: int | None = None) -> list[list[str]]:
    """Rows of keys, ratios, and the leading figure of both; of texts only the rows that differ."""
    lead, columns = table.lead, _compared_columns(table)
    texts = all(table.columns[place].unit is None for place in columns)
    rows = [row for row in table.rows if not texts or row.before != row.after]
    if most is not None:
        rows = _leading(rows, most, ascending=table.ascending)
    return [
        [
            *(cell_text(table.keys[at], row.keys[at]) or "" for at in _used_keys(table)),
            *(cell for place in columns for cell in _column_cells(table, row, place, lead)),
        ]
        for row in rows
    ]


def unmatched_words(table: TableComparison) -> str:
    """`1 row only in A; 3 rows only in B`; empty where both have the same rows."""
    counts = zip((table.base, table.other), table.unmatched, strict=True)
    return "; ".join(
        f"{count:,} row{'s'[: count != 1]} only in {letter}" for letter, count in counts if count
    )


def _used_keys(table: TableComparison) -> list[int]:
    """Places of the keys that any row has: a single log or benchmark has no name."""
    return [at for at in range(len(table.keys)) if any(row.keys[at] is not None for row in table.rows)]


def _compared_columns(table: TableComparison) -> list[int]:
    """The leading column, then others with a ratio in any row; details are left out."""
    numbers = [
        place
        for place, column in enumerate(table.columns)
        if not column.detail and any(row.ratios[place] is not None for row in table.rows)
    ]
    lead = [] if table.lead is None else [table.lead]
    return [*lead, *(place for place in numbers if place not in lead)]


def _column_cells(table: TableComparison, row: RowComparison, place: int, lead: int | None) -> list[str]:
    column, ratio = table.columns[place], row.ratios[place]
    cells = ["" if ratio is None else humanise(ratio, "ratio")] if column.unit is not None else []
    if place == lead:
        cells += [cell_text(column, side[place]) or "" for side in (row.before, row.after)]
    return cells
