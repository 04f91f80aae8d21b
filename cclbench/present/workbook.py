# SPDX-License-Identifier: Apache-2.0
"""Rows as a workbook with one sheet (Office Open XML, .xlsx), with numbers and texts as such."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from io import BytesIO
from typing import Any, Final

from cclbench.ground.errors import UsageError

MOST_ROWS: Final = (1 << 20) - 1
"""Most rows of a sheet below its header."""
_MOST_CHARACTERS: Final = 32_767
"""Most characters of a cell."""
_EXACT: Final = 1 << 53
"""Largest range in which a sheet's numbers, which are doubles, are exact integers."""
_WIDEST: Final = 60
"""Largest width of a column, in characters."""


def workbook_bytes(
    rows: Iterable[Mapping[str, Any]], columns: Sequence[str], cell: Callable[[Any], object]
) -> bytes:
    """The rows below a header of the columns; `cell` converts other values to numbers or texts.

    Texts are never formulas, and integers that a sheet would round are texts.
    `UsageError` for more rows than fit a sheet.
    """
    from xlsxwriter import Workbook

    written = BytesIO()
    with Workbook(written, {"constant_memory": True}) as book:
        sheet, bold = book.add_worksheet(), book.add_format({"bold": True})
        widths = [len(column) for column in columns]
        for place, column in enumerate(columns):
            sheet.write_string(0, place, column, bold)
        number = 0
        for number, row in enumerate(rows, 1):
            if number > MOST_ROWS:
                raise UsageError(f"a sheet has at most {MOST_ROWS:,} rows", hint="use --format csv")
            for place, column in enumerate(columns):
                value = cell(row.get(column))
                if value is None:
                    continue
                if isinstance(value, bool):
                    sheet.write_boolean(number, place, value)
                elif isinstance(value, float) or (isinstance(value, int) and abs(value) <= _EXACT):
                    sheet.write_number(number, place, value)
                else:
                    sheet.write_string(number, place, _bound_text(str(value)))
                widths[place] = max(widths[place], len(str(value)))
        for place, width in enumerate(widths):
            sheet.set_column(place, place, min(width, _WIDEST) + 2)
        sheet.freeze_panes(1, 0)
        sheet.autofilter(0, 0, number, max(len(columns) - 1, 0))
    return written.getvalue()


def _bound_text(text: str) -> str:
    """The text, shortened to fit a cell."""
    return text if len(text) <= _MOST_CHARACTERS else f"{text[: _MOST_CHARACTERS - 1]}…"
