# SPDX-License-Identifier: Apache-2.0
"""Summaries of sources without device steps on a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from textwrap import wrap
from typing import Final, Literal

from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from cclbench.comparison.summaries import TableComparison
from cclbench.ground.text import printable, shorten_middle
from cclbench.present.figure_tables import (
    cell_text,
    comparison_cells,
    comparison_heads,
    leading_rows,
    unmatched_words,
    used_columns,
)
from cclbench.source_summaries.summary import FigureTable, SourceSummary

_MOST_WARNINGS: Final = 4
"""Most failures on the first screen."""
_WIDTH: Final = 80
_GAP: Final = 2
"""Characters between two columns of a table."""
_LEAST_HEAD: Final = 8
"""Least width of a heading before it is wrapped."""
_LEAST_TEXT: Final = 20
"""Least width to which a column of texts is shortened."""
_MOST_TABLES: Final = 3
"""Most tables of a summary on the first screen."""


def summary_lines(summaries: Sequence[SourceSummary], *, most: int | None = None) -> Iterator[RenderableType]:
    """Failures, sentences and tables; with `most`, tables have at most so many rows, without details."""
    for place, summary in enumerate(summaries):
        if place:
            yield Text()
        yield Text(summary.heading, "bold")
        for words in _limited(summary.warnings, most and _MOST_WARNINGS):
            yield Text(printable(words), "red")
        yield from map(Text, map(printable, summary.sentences))
        tables = [table for table in summary.tables if most is None or not table.detail]
        for table in tables[: most and _MOST_TABLES]:
            yield Text()
            yield from _table_lines(table, most, titled=table.title not in summary.heading)
        if more := len(tables[most and _MOST_TABLES :]) if most else 0:
            yield Text(f"{more} more table{'s'[: more != 1]}: report, -v, --json", "dim")
        yield from (
            Text(printable(words), "dim") for words in _limited(summary.absent, most and _MOST_WARNINGS)
        )


def _limited(lines: Sequence[str], most: int | None) -> list[str]:
    more = [] if most is None or len(lines) <= most else [f"{len(lines) - most} more: report, -v, --json"]
    return [*lines[:most], *more]


def _table_lines(table: FigureTable, most: int | None, *, titled: bool) -> Iterator[RenderableType]:
    rows = table.rows if most is None else leading_rows(table, most)
    columns = used_columns(table, detail=most is None)
    heads = [(column.name, column.unit is not None) for _, column in columns]
    cells = [[cell_text(column, row[place]) or "" for place, column in columns] for row in rows]
    title = table.title if titled else ""
    yield from _drawn_table(title, heads, cells, len(table.rows), short=most is not None)


def compared_table_lines(table: TableComparison, most: int | None) -> Iterator[RenderableType]:
    """Ratios of two sources by row; at most `most` rows, or all."""
    cells = comparison_cells(table, most)
    if not cells:
        return
    yield Text()
    row_count = len(comparison_cells(table))
    yield from _drawn_table(table.title, comparison_heads(table), cells, row_count, short=most is not None)
    if only := unmatched_words(table):
        yield Text(only, "dim")


def _drawn_table(
    title: str, heads: Sequence[tuple[str, bool]], cells: list[list[str]], row_count: int, *, short: bool
) -> Iterator[RenderableType]:
    """Title and table of `heads` (name, whether numeric), and how many of `row_count` rows are left out."""
    names = [_wrapped_head(name, [row[at] for row in cells]) for at, (name, _) in enumerate(heads)]
    if short:
        texts = [at for at, (_, number) in enumerate(heads) if not number]
        cells = _with_short_texts(names, cells, texts)
    if title:
        yield Text(printable(title))
    blocks = _column_blocks(_widths(names, cells))
    for block in blocks[:1] if short else blocks:
        drawn = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, collapse_padding=True)
        for at in block:
            number = heads[at][1]
            justify: Literal["right", "left"] = "right" if number else "left"
            drawn.add_column(Text(names[at]), justify=justify, no_wrap=number, overflow="fold")
        for row in cells:
            drawn.add_row(*(Text(row[at]) for at in block))
        yield drawn
    if more := row_count - len(cells):
        yield Text(f"{more} more row{'s'[: more != 1]}: report, -v, --json", "dim")


def _wrapped_head(name: str, cells: Sequence[str]) -> str:
    """A heading on as many lines as the width of the cells asks for."""
    return "\n".join(wrap(name, max([_LEAST_HEAD, *map(len, cells)]), break_long_words=False))


def _widths(heads: Sequence[str], cells: Sequence[Sequence[str]]) -> list[int]:
    return [
        max(map(len, [*head.split("\n"), *(row[place] for row in cells)])) for place, head in enumerate(heads)
    ]


def _column_blocks(widths: Sequence[int]) -> list[list[int]]:
    """The columns in blocks that fit the screen, each beginning with the first column."""
    blocks, end = [[0]], widths[0]
    for at, width in enumerate(widths[1:], 1):
        if end + _GAP + width > _WIDTH and blocks[-1] != [0]:
            blocks.append([0])
            end = widths[0]
        blocks[-1].append(at)
        end += _GAP + width
    return blocks


def _with_short_texts(heads: Sequence[str], cells: list[list[str]], texts: Sequence[int]) -> list[list[str]]:
    """The cells with the texts of the widest column of texts shortened until the table fits the screen."""
    widths = _widths(heads, cells)
    widest = max(texts, key=lambda place: widths[place], default=None)
    if widest is None:
        return cells
    room = max(_WIDTH - _GAP * (len(heads) - 1) - sum(widths) + widths[widest], _LEAST_TEXT)
    return [
        [shorten_middle(cell, room) if place == widest else cell for place, cell in enumerate(row)]
        for row in cells
    ]
