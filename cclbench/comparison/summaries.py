# SPDX-License-Identifier: Apache-2.0
"""Sources without device steps compared: tables of figures joined by their keys, with ratios."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from statistics import median

import msgspec

from cclbench.comparison.subject import ComparisonSubject
from cclbench.ground.units import humanise
from cclbench.source_summaries.summary import Cell, FigureColumn, FigureTable


class RowComparison(msgspec.Struct, frozen=True, kw_only=True):
    """One row of both tables: its keys, and by column the two cells and their ratio."""

    keys: tuple[Cell, ...]
    before: tuple[Cell, ...]
    after: tuple[Cell, ...]
    ratios: tuple[float | None, ...]
    """`after` / `before`; None for texts, unknown figures and a base of 0."""


class TableComparison(msgspec.Struct, frozen=True, kw_only=True):
    """A table of one subject against the same of the first, by the rows that both have."""

    base: str
    other: str
    """Letters of subjects."""
    kind: str
    subject: str
    titles: tuple[str, str]
    """The table's title in the base and in the other: sweeps may be of different groups."""
    keys: tuple[FigureColumn, ...]
    columns: tuple[FigureColumn, ...]
    rows: list[RowComparison]
    unmatched: tuple[int, int]
    """Number of rows that only the base, and only the other has."""
    ascending: bool

    @property
    def title(self) -> str:
        """The title, or both where they differ."""
        before, after = self.titles
        return before if before == after else f"{self.base}: {before}; {self.other}: {after}"

    @property
    def lead(self) -> int | None:
        """Place of the column whose figures are shown beside their ratio; None without one."""
        return next((place for place, column in enumerate(self.columns) if column.lead), None)

    def ratios_of(self, place: int) -> list[float]:
        """The known ratios of a column."""
        return [ratio for row in self.rows if (ratio := row.ratios[place]) is not None]

    @property
    def ratio_words(self) -> str | None:
        """`B's busbw is 0.72× A's in the median of 32 rows, 0.305× to 1.02×`; None without a ratio."""
        if self.lead is None or not (ratios := self.ratios_of(self.lead)):
            return None
        name, middle = self.columns[self.lead].name, humanise(median(ratios), "ratio")
        text = f"{self.title}: {self.other}'s {name} is {middle} {self.base}'s"
        if len(ratios) > 1:
            low, high = (humanise(bound, "ratio") for bound in (min(ratios), max(ratios)))
            text += f" in the median of {len(ratios)} rows, {low} to {high}"
        return f"{text}."


def table_comparisons(subjects: Sequence[ComparisonSubject]) -> tuple[TableComparison, ...]:
    """Each further subject's tables against those of the first, where both are of one kind."""
    base, *others = subjects
    return tuple(
        _compare_tables(base.letter, other.letter, summary.kind, *pair)
        for other in others
        for summary in base.summaries
        for counterpart in other.summaries
        if counterpart.kind == summary.kind
        for pair in _paired_tables(summary.tables, counterpart.tables)
    )


def _paired_tables(
    before: Sequence[FigureTable], after: Sequence[FigureTable]
) -> Iterator[tuple[FigureTable, FigureTable]]:
    """Tables of one title; else of one subject, where each side has one of it."""
    by_title = {table.title: table for table in after}
    counts = [Counter(table.subject for table in tables) for tables in (before, after)]
    alone = {table.subject: table for table in after if counts[1][table.subject] == 1}
    for table in before:
        counterpart = by_title.get(table.title)
        if counterpart is None and counts[0][table.subject] == 1:
            counterpart = alone.get(table.subject)
        if counterpart is not None:
            yield table, counterpart


def _compare_tables(
    base: str, other: str, kind: str, before: FigureTable, after: FigureTable
) -> TableComparison:
    keys = tuple(column for column in before.columns if column.key)
    names = [column.name for column in after.columns]
    columns = tuple(column for column in before.columns if not column.key and column.name in names)
    rows_before, rows_after = (_cells_by_key(table, keys, columns) for table in (before, after))
    if len(rows_before) == len(rows_after) == 1:  # one row each is compared whatever its key
        (key,), (other_key,) = rows_before, rows_after
        both = tuple(a if a == b else f"{a} / {b}" for a, b in zip(key, other_key, strict=True))
        rows_before, rows_after = (
            {both: cells} for rows in (rows_before, rows_after) for cells in rows.values()
        )
    common = [key for key in rows_before if key in rows_after]
    return TableComparison(
        base=base,
        other=other,
        kind=kind,
        subject=before.subject,
        titles=(before.title, after.title),
        keys=keys,
        columns=columns,
        rows=[
            RowComparison(
                keys=key,
                before=rows_before[key],
                after=rows_after[key],
                ratios=tuple(map(_ratio, rows_before[key], rows_after[key])),
            )
            for key in common
        ],
        unmatched=(len(rows_before) - len(common), len(rows_after) - len(common)),
        ascending=before.ascending,
    )


def _cells_by_key(
    table: FigureTable, keys: Sequence[FigureColumn], columns: Sequence[FigureColumn]
) -> dict[tuple[Cell, ...], tuple[Cell, ...]]:
    """The cells of `columns` by those of `keys`; of rows with equal keys the first."""
    places = {column.name: place for place, column in enumerate(table.columns)}
    cells: dict[tuple[Cell, ...], tuple[Cell, ...]] = {}
    for row in table.rows:
        key = tuple(row[places[column.name]] if column.name in places else None for column in keys)
        cells.setdefault(key, tuple(row[places[column.name]] for column in columns))
    return cells


def _ratio(before: Cell, after: Cell) -> float | None:
    if isinstance(before, int | float) and isinstance(after, int | float) and before:
        return after / before
    return None
