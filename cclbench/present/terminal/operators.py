# SPDX-License-Identifier: Apache-2.0
"""Operators and their costs on a terminal."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.table import Table
from rich.text import Text

from cclbench.analyzers.view.operator_rows import SEPARATOR, OperatorRow
from cclbench.analyzers.view.operator_sums import SEVERAL_KERNELS
from cclbench.classify.kernel_labels import shorten_name
from cclbench.ground.text import printable, shorten_middle
from cclbench.ground.units import humanise
from cclbench.operator_table import OperatorTable
from cclbench.present.operator_columns import (
    FIRST,
    OWN,
    PARTLY,
    SEVERAL,
    SHOWN,
    OperatorColumn,
    percent,
    roofline_words,
    shown_keys,
    shown_words,
)
from cclbench.present.operators import assumption_lines, linked_shares, unmodelled_lines
from cclbench.present.terminal.output import titled_bullets

SHOWN_ROWS: Final = 20
"""Rows of a table by default."""
_LEAST_NAME: Final = 24
_SHORTEST_NAME: Final = 16
"""So that the columns of `FIRST` fit 80 characters, or the narrowest name if they do not."""
_LINES: Final = 3
"""Lines of a name by default."""
_NAME: Final = 200


def operators_page(table: OperatorTable, *, verbose: bool = False) -> list[RenderableType]:
    """A row for each key, and what has no cost; `verbose`: all rows, all columns, in further tables."""
    ranks, windows = len(table.ranks), table.windows
    span = "the whole trace" if table.window == "trace" else f"{windows:,} step{'s'[: windows != 1]}"
    head = [
        f"{table.run}: {ranks:,} rank{'s'[: ranks != 1]}, {span}, {humanise(table.time_s, 's')} of device"
        " time",
    ]
    if table.where:
        share = _share(table, table.chosen_s)
        head += [f"{' and '.join(table.where)}: {humanise(table.chosen_s, 's')}, {share} of it"]
    head += [linked_shares(table), *_lost_time(table)]
    rows = table.rows if verbose else _fitting_rows(table)
    parts: list[RenderableType] = [*(Text(printable(line)) for line in head), Text()]
    parts += [_OperatorGrid(table, rows, verbose)]
    if len(rows) < table.all_rows:
        parts += [Text(f"{table.all_rows - len(rows):,} more rows: -v, --top or --json")]
    parts += map(Text, _legend(table, rows, verbose=verbose))
    most = None if verbose else 4
    unmodelled = list(unmodelled_lines(table))
    return [
        *parts,
        *titled_bullets("Without a model", unmodelled[:most]),
        *titled_bullets("Assumptions", list(assumption_lines(rows))[:most]),
        *titled_bullets("Notes", list(table.notes)),
    ]


def _lost_time(table: OperatorTable) -> Iterator[str]:
    """Time above the roofline, time that no model covers, and the row with most to gain."""
    parts = []
    if table.gap_s is not None:
        parts += [f"above the roofline {humanise(table.gap_s, 's')}, {_share(table, table.gap_s)}"]
    if table.unmodelled_ns:
        share = _share(table, table.unmodelled_s)
        parts += [f"without a model {humanise(table.unmodelled_s, 's')}, {share}"]
    if parts:
        yield "; ".join(parts)
    if (row := table.largest_gap) is not None and row.gap_s:
        words = zip(shown_words(row, table.keys), table.keys, strict=True)
        name = SEPARATOR.join(_shortened(word, key, _NAME // 2) for word, key in words)
        yield f"largest gap: row {row.row}, {name}: {humanise(row.gap_s, 's')}, {_share(table, row.gap_s)}"


def _share(table: OperatorTable, seconds: float) -> str:
    return percent(seconds / table.time_s)


def _legend(table: OperatorTable, rows: Sequence[OperatorRow], *, verbose: bool) -> Iterator[str]:
    if any(row.bound != "unknown" for row in rows):
        yield "roofline: roofline time over time; C: bound by compute, M: by memory"
    if any(PARTLY in roofline_words(row) for row in rows):
        yield f"{PARTLY}: a part has no model; rate, roofline and gap are of the rest"
    if SEVERAL in map(roofline_words, rows):
        yield f"{SEVERAL}: {SEVERAL_KERNELS}, whose costs are of the call: --by op"
    if any(row.mark for row in rows):
        yield "*: faster than the memory, as a cache may explain; !: above the roofline (see Notes)"
    if verbose and any(row.wasted_flops for row in rows):
        yield "wasted: FLOPs that the peak allows in the time, less those done; of peak: share of those done"
    if table.tree and len(table.keys) == 1:
        yield "time: with all modules within it; own: of no module within it"
    elif {"module", "class"} & set(table.keys) and len(table.keys) == 1:
        yield "--tree: with all modules within each; --by class: instances of a module together"


def _fitting_rows(table: OperatorTable) -> Sequence[OperatorRow]:
    """The first rows; of a tree without the levels below those that fit."""
    if not table.tree or len(table.rows) <= SHOWN_ROWS:
        return table.rows[:SHOWN_ROWS] if table.tree else table.rows
    counts = [0] * (1 + max(row.depth or 0 for row in table.rows))
    for row in table.rows:
        counts[row.depth or 0] += 1
    depth = 1
    while depth + 1 < len(counts) and sum(counts[: depth + 2]) <= SHOWN_ROWS:
        depth += 1
    return [row for row in table.rows if (row.depth or 0) <= depth][:SHOWN_ROWS]


@dataclass(frozen=True, slots=True)
class _OperatorGrid:
    """The rows as a table of as many columns as fit; if `verbose` the others follow in further tables."""

    table: OperatorTable
    rows: Sequence[OperatorRow]
    verbose: bool

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        columns = [*SHOWN[:2], OWN, *SHOWN[2:]] if self.table.tree else list(SHOWN)
        texts = {column.heading: [column.text(row) for row in self.rows] for column in columns}
        columns = [column for column in columns if any(texts[column.heading])]
        names = [list(shown_words(row, self.table.keys)) for row in self.rows]
        longest = max((cell_len(line) for lines in names for line in lines), default=0)
        number = max([3, *(len(str(row.row)) for row in self.rows)])
        least = min(max(longest, len(self.table.by)), max(_LEAST_NAME, options.max_width // 3))
        widths = {
            column.heading: 1 + max(map(cell_len, [column.heading, *texts[column.heading]]))
            for column in columns
        }
        first = sum(widths[column.heading] for column in columns if column in (*FIRST, OWN))
        least = min(least, max(_SHORTEST_NAME, options.max_width - number - 1 - first))
        while columns:
            free = options.max_width - number - 1 - least
            page: list[OperatorColumn] = []
            for column in columns:
                if page and widths[column.heading] > free:
                    break
                page.append(column)
                free -= widths[column.heading]
            columns = columns[len(page) :]
            yield self._table(page, texts, names, least + max(free, 0), number)
            if not self.verbose:
                return
            if columns:
                yield Text()

    def _table(
        self,
        columns: Sequence[OperatorColumn],
        texts: dict[str, list[str]],
        names: Sequence[Sequence[str]],
        width: int,
        number: int,
    ) -> Table:
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=0)
        table.add_column("row", justify="right", no_wrap=True, min_width=number)
        table.add_column("\n".join(self.table.keys), overflow="fold", max_width=width)
        for column in columns:
            table.add_column(column.heading, justify="right", no_wrap=True)
        most = _NAME if self.verbose else _LINES * width - 2
        for place, row in enumerate(self.rows):
            short = (
                _shortened(line, key, most)
                for key, line in zip(shown_keys(row, self.table.keys), names[place], strict=True)
            )
            name = "\n".join(_folded(line, width) for line in short)
            cells = (texts[column.heading][place] for column in columns)
            table.add_row(f"{row.row}", Text(name), *map(Text, cells))
        return table


def _shortened(text: str, key: str, most: int) -> str:
    """A kernel's name without words, shapes without the last operands, another text without its middle."""
    if key in ("op", "kernel"):
        return shorten_name(text, most)
    if key == "shape" and len(text) > most:
        return text[: most - 3] + "..."
    return shorten_middle(text, most)


def _folded(text: str, width: int) -> str:
    """The text in as few lines of `width` as possible, which end behind an argument or a word if they can."""
    least = -(-len(text) // width)
    for ends in (r"(?<=[ (</])|(?<=_)(?!\*)|(?<=[>\]a-z],)", r"(?<=[ (</,])|(?<=_)(?!\*)"):
        lines = re.findall(rf".{{1,{width}}}(?:{ends}|$)", text)
        if len("".join(lines)) == len(text) and len(lines) <= least:
            return "\n".join(lines)
    return text
