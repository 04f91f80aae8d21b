# SPDX-License-Identifier: Apache-2.0
"""A printed table's columns, and its rows, reassembled if other output interrupts them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from cclbench.formats.nccl_tests.rows import Figures, wrong_count
from cclbench.formats.texts import parse_decimal

CUT = "cut, or interrupted by other output"
MISFIT = "interrupted by other output, with pieces that do not fit together"
BEHEADED = "without a beginning"


@dataclass(frozen=True, slots=True)
class PrintedColumns:
    """Columns of a table: at most `lead` words that describe the row, then `figures`."""

    lead: int
    figures: tuple[str, ...]
    stamped: bool
    host_time: bool

    @classmethod
    def from_header(cls, words: list[str]) -> PrintedColumns:
        """From a table's header: `# size count type redop root time algbw busbw #wrong time ...`."""
        names = [word.lstrip("#") for word in words if word != "#"]
        stamped = names[-1] == "timestamp"
        names = names[:-1] if stamped else names
        names = ["time" if name == "cputime" else name for name in names]
        lead = names.index("time") if "time" in names else len(names)
        return cls(lead, tuple(names[lead:]), stamped, "cputime" in words)

    def __len__(self) -> int:
        return self.lead + len(self.figures) + (2 if self.stamped else 0)

    def split_row(self, words: Sequence[str]) -> tuple[Sequence[str], Sequence[str]] | None:
        """A row's description and figures; None if words are missing.  Description columns may be blank."""
        end = len(words) - (2 if self.stamped else 0)
        begin = end - len(self.figures)
        return (words[:begin], words[begin:end]) if 3 <= begin <= self.lead else None

    def parse_placements(self, words: Sequence[str]) -> list[Figures] | None:
        """The figures out of place and in place; None if one is not a number."""
        begins = [i for i, name in enumerate(self.figures) if name == "time"]
        placements = []
        for begin, end in pairwise([*begins, len(self.figures)]):
            values = dict(zip(self.figures[begin:end], words[begin:end], strict=True))
            time, algbw, busbw = (parse_decimal(values.get(name, "")) for name in ("time", "algbw", "busbw"))
            if time is None or algbw is None or busbw is None:
                return None
            # rccl-tests marks errors beyond its threshold with an asterisk.
            placements.append(
                Figures(time, algbw, busbw, wrong_count(parse_decimal(values.get("wrong", "").rstrip("*"))))
            )
        return placements[:2] or None


@dataclass(frozen=True, slots=True)
class PrintedRow:
    """A row as printed, the line where it begins, and whether it was reassembled."""

    words: tuple[str, ...]
    line: int
    joined: bool = False


@dataclass(slots=True)
class PrintedRows:
    """Collects the rows of one table, and counts what is left out by reason."""

    columns: PrintedColumns
    rows: list[PrintedRow] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)
    _pieces: tuple[str, ...] = ()
    _line: int = 0
    _torn: bool = False

    def add_words(self, words: Sequence[str], line: int, *, torn: bool) -> bool:
        """Add a line's words; returns whether they belong to a row.  `torn`: library output follows them.

        A row with missing columns is completed by the figures of later lines until it has exactly as many
        as the table.
        """
        if len(words) > 1 and words[0].isdecimal() and words[1].isdecimal():
            self.end_row()
            if not torn and self.columns.split_row(words) is not None:
                self.rows.append(PrintedRow(tuple(words), line))
            elif len(words) <= len(self.columns):
                self._pieces, self._line, self._torn = tuple(words), line, torn
                self._complete_row()
            else:
                self.left_out[CUT] += 1
            return True
        if not all(word == "N/A" or parse_decimal(word.rstrip("*")) is not None for word in words):
            return False
        if self._pieces:
            self._pieces, self._torn = (*self._pieces, *words), True
            self._complete_row()
        elif len(words) > 2:
            self.left_out[BEHEADED] += 1
        return True

    def end_row(self) -> None:
        """End the current row: no more pieces follow."""
        if self._pieces:
            self.left_out[MISFIT if self._torn else CUT] += 1
            self._pieces = ()

    def _complete_row(self) -> None:
        if len(self._pieces) == len(self.columns):
            self.rows.append(PrintedRow(self._pieces, self._line, joined=True))
            self._pieces = ()
        elif len(self._pieces) > len(self.columns):
            self.end_row()
