# SPDX-License-Identifier: Apache-2.0
"""Output streams and formats: data on stdout, all else on stderr."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TextIO

import click

from cclbench.ground.errors import UsageError
from cclbench.ground.text import (
    as_markdown,
    cut_text,
    markdown_table,
    printable,
    printable_json,
    printable_lines,
)
from cclbench.present.terminal import BRIEF, RAW_CSV
from cclbench.present.terminal.streams import unescaped_stream

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table
    from rich.text import Text

Row = Mapping[str, Any]
_WHOLE: Final = 48
"""Longest name that is not folded in a table's first column."""
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
Progress = Callable[[str, int, int], None]
_ROW: Final = json.JSONEncoder(allow_nan=False, ensure_ascii=False)
_BLOCK: Final = 1 << 16
"""Characters written at once."""


def terminal_console(stream: TextIO | None = None) -> Console:
    """A console on stdout or `stream`, 80 columns of plain text if that is not a terminal.

    NO_COLOR and COLUMNS are honoured; characters that are not printable are written as escapes.
    """
    from rich.console import Console, ConsoleOptions
    from rich.segment import Segment

    class PrintableConsole(Console):
        _renders = False
        """Whether a part of something is rendered, whose segments are looked at with the whole."""

        def render(
            self, renderable: RenderableType, options: ConsoleOptions | None = None
        ) -> Iterable[Segment]:
            segments = super().render(renderable, options)
            return segments if self._renders else self._printable(segments)

        def _printable(self, segments: Iterable[Segment]) -> Iterator[Segment]:
            self._renders = True
            try:
                for segment in segments:
                    text, style, control = segment
                    clean = control or text.isprintable()
                    yield segment if clean else Segment(printable_lines(text), style)
            finally:
                self._renders = False

    file = unescaped_stream(sys.stdout if stream is None else stream)
    return PrintableConsole(file=file, highlight=False, markup=False, emoji=False, soft_wrap=False)


def writes_unicode() -> bool:
    """Whether stdout can encode Unicode."""
    return terminal_console().encoding.lower().startswith("utf")


def emit_answer(
    form: str,
    *,
    document: Mapping[str, Any],
    rows: Iterable[Row],
    columns: Sequence[str],
    table: Callable[[], Sequence[RenderableType]] | None = None,
) -> None:
    """Write the output: `document` as json, `rows` as csv, md or xlsx, or `table`, by default a grid.

    `BRIEF` is the document as `present.brief` projects it.

    In csv, texts that a spreadsheet would run as formulas get an apostrophe, and control characters are
    escaped; in `RAW_CSV`, which is not written to terminals, texts are unchanged.
    `rows` may be an iterator; if `document` contains it, json has one row a line.
    """
    if form == BRIEF:
        from cclbench.present.brief import brief_answer, brief_text

        click.echo(printable_json(brief_text(brief_answer(document))))
    elif form == "json":
        text = ""
        for piece in _json_pieces(document, rows):
            text += piece
            if len(text) > _BLOCK:
                click.echo(printable_json(text), nl=False)
                text = ""
        click.echo(printable_json(text))
    elif form in ("csv", RAW_CSV):
        kept = _cell_value if form == RAW_CSV else _inert_cell
        writer = csv.writer(_UnixLines(_raw_stdout() if form == RAW_CSV else sys.stdout))
        writer.writerow(map(kept, columns))
        writer.writerows([kept(row.get(column)) for column in columns] for row in rows)
    elif form == "xlsx":
        _write_workbook(rows, columns)
    elif form == "md":
        rows = list(rows)
        used = _used_columns(rows, columns)
        cells = ([as_markdown(" ".join(_cell_text(row, column).split())) for column in used] for row in rows)
        click.echo("\n".join(markdown_table([as_markdown(column) for column in used], cells)))
    else:
        out = terminal_console()
        with out.capture() as page:
            for part in grid_table(list(rows), columns) if table is None else table():
                out.print(part)
        # Without the padding of cells, which would be copied along.
        unescaped_stream(sys.stdout).write(
            "".join(f"{line.rstrip()}\n" for line in page.get().split("\n")[:-1])
        )


def _write_workbook(rows: Iterable[Row], columns: Sequence[str]) -> None:
    from cclbench.present.workbook import workbook_bytes

    if sys.stdout.isatty():
        raise UsageError("a workbook cannot be written to a terminal", hint="write to a file: > FILE.xlsx")
    sys.stdout.flush()
    sys.stdout.buffer.write(workbook_bytes(rows, columns, _cell_value))


def _json_pieces(document: Mapping[str, Any], rows: Iterable[Row]) -> Iterator[str]:
    """The document's text in pieces, `rows` one a line."""
    between = "{\n"
    for key, value in document.items():
        yield f"{between}  {json.dumps(key)}: "
        if value is rows:
            before = "["
            for row in rows:
                yield f"{before}\n    {_ROW.encode(row)}"
                before = ","
            yield "[]" if before == "[" else "\n  ]"
        else:
            yield json.dumps(value, indent=2, allow_nan=False, ensure_ascii=False).replace("\n", "\n  ")
        between = ",\n"
    yield "\n}"


def _raw_stdout() -> TextIO:
    if sys.stdout.isatty():
        what = "--raw does not escape control characters, and stdout is a terminal"
        raise UsageError(what, hint="write to a file: > FILE.csv")
    return unescaped_stream(sys.stdout)


class _UnixLines:
    """Converts line ends of a csv writer; with CRLF (RFC 4180) the writer quotes all line ends in cells."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, row: str) -> None:
        self._stream.write(row.removesuffix("\r\n") + "\n")


def _cell_value(value: object) -> object:
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    if isinstance(value, dict):
        return json.dumps(value, ensure_ascii=False)
    return value


def _cell_text(row: Row, column: str) -> str:
    """The cell as text, empty without a value."""
    return "" if row.get(column) is None else str(_cell_value(row[column]))


def _inert_cell(value: object) -> object:
    """The cell on one line; a text that begins like a formula gets an apostrophe (OWASP, CSV injection)."""
    cell = _cell_value(value)
    if not isinstance(cell, str):
        return cell
    return printable(f"'{cell}" if cell.startswith(_FORMULA) else cell)


def _used_columns(rows: Sequence[Row], columns: Sequence[str]) -> Sequence[str]:
    """The columns with a value in any row; all columns without rows."""
    return [column for column in columns if any(row.get(column) is not None for row in rows)] or columns


def grid_table(rows: Sequence[Row], columns: Sequence[str]) -> list[RenderableType]:
    """Rows as a plain table for the terminal; an empty cell is a missing value."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    columns = _used_columns(rows, columns)
    for index, column in enumerate(columns):
        numeric = bool(rows) and all(isinstance(row.get(column), int | float) for row in rows)
        no_wrap = index == 0 and all(len(str(row.get(column))) <= _WHOLE for row in rows)
        table.add_column(
            Text(cut_text(column)), justify="right" if numeric else "left", overflow="fold", no_wrap=no_wrap
        )
    for row in rows:
        table.add_row(*(Text(cut_text(_cell_text(row, column))) for column in columns))
    return [table]


def bullet_lines(lines: Sequence[str | Text]) -> RenderableType:
    """Lines as bullets with hanging indent; a `Text` is unchanged."""
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 1))
    for line in lines:
        table.add_row("-", Text(printable(line), overflow="fold") if isinstance(line, str) else line)
    return table


def titled_bullets(title: str, lines: Sequence[str | Text]) -> list[RenderableType]:
    """An empty line, the title and the lines as bullets; empty without lines."""
    from rich.text import Text

    return [Text(), Text(title, "bold"), bullet_lines(lines)] if lines else []


def labelled_table(rows: Iterable[tuple[str | Text, str | Text]], style: str = "bold") -> Table:
    """Label and text in two columns, with folded texts."""
    from rich.table import Table

    table = Table.grid(padding=(0, 2))
    table.add_column(style=style, no_wrap=True)
    table.add_column(overflow="fold")
    for row in rows:
        table.add_row(*row)
    return table


def named_fields(name: str, fields: Iterable[tuple[str, str]]) -> list[RenderableType]:
    """A name, and below it a line for each field."""
    from rich.padding import Padding
    from rich.text import Text

    lines = labelled_table(((label, Text(text)) for label, text in fields), "dim")
    return [Text(name, "bold"), Padding(lines, (0, 0, 1, 2))]


def number_table(rows: Sequence[dict[str, str | None]], *, texts: Collection[str]) -> Table:
    """The rows as a table of numbers, except the columns `texts`; empty columns are left out."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    used = [column for column in rows[0] if any(row[column] is not None for row in rows)]
    for column in used:
        text = column in texts
        table.add_column(column, justify="left" if text else "right", no_wrap=not text, overflow="fold")
    for row in rows:
        table.add_row(*(Text(printable(row[column] or "")) for column in used))
    return table


@contextmanager
def progress_bar(verbosity: int) -> Iterator[Progress | None]:
    """A progress bar on stderr if that is a terminal and not quiet."""
    if verbosity < 0 or not sys.stderr.isatty():
        yield None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=terminal_console(sys.stderr), transient=True) as bars:
        tasks: dict[str, Any] = {}

        def update_bar(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = bars.add_task(what, total=total)
            bars.update(tasks[what], completed=done, total=total)

        yield update_bar
