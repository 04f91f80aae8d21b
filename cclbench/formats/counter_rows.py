# SPDX-License-Identifier: Apache-2.0
"""Shared by readers of hardware counters: exact numbers, rows, differences of cumulative counters.

A cumulative counter becomes its differences between samples, each over [earlier sample, later sample).  A
counter that decreases was reset or wrapped: the difference is left out and counted.  A counter sampled once
in a file becomes a row `_total`, which `cclbench.analyzers.counters` pairs with that of another file.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from decimal import Decimal
from itertools import chain
from pathlib import Path
from typing import Final

import pyarrow as pa

from cclbench.formats import Evidence
from cclbench.formats.texts import LONGEST_LINE, parse_decimal, raw_lines
from cclbench.ground.errors import InputError
from cclbench.ground.evidence_schema import COUNTER_UNITS, COUNTERS

MOST_BYTES: Final = 64 << 20
CUT: Final = "the last line, which has no end"
UNENDED: Final = "its last line has no end and may be cut: if it is whole, end it with a line feed"
NO_VALUE: Final = "values that are not available"
NO_COUNTER: Final = "values that are not read"
WENT_BACK: Final = "differences of a count that went back: reset or wrapped"
CLOCK_BACK: Final = "values over a clock that went back"
AGAIN: Final = "values that the file states twice"
CLOCK_LIMITS: Final = "reasons for lower clocks"
"""Stands for the counters of `add_clock_limits` in tables of fields."""
_NO_ZONE: Final = "its times state no zone, so they have no place on the traces' clocks: they are left null"

_MISSING = frozenset({"", "-", "N/A", "[N/A]", "[Not Supported]", "[Unknown Error]", "NaN", "+Inf", "-Inf"})
_MARK = re.compile(r"#\s*time_ns (\d{1,20})\s*")
_UNITS: Final = (b" KiB", b" %", b" W")
"""Ends of a complete last line without a line feed: a unit behind the number."""
_LIMITS: Final = {
    "power_limited": 0x4 | 0x80,
    "thermally_limited": 0x20 | 0x40,
    "hardware_limited": 0x8,
}
"""Bits of NVML's reasons for lower clocks (nvmlClocksEventReasons): the power cap in software and the power
brake, thermal slowdowns in software and hardware, and a slowdown in hardware of any cause."""
_INT64: Final = 1 << 63
_MOST_DEVICES: Final = 1 << 15


class CounterRows:
    """Builds rows of `COUNTERS`, and counts what is left out."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.line = 0
        """Number of the line being read."""
        self.left_out: Counter[str] = Counter()
        self.notes: list[str] = []
        self._columns: dict[str, list[object]] = {
            name: [] for name in COUNTERS.names if name not in ("source", "file", "rank")
        }
        self._last: dict[tuple[str, int | None, str | None], tuple[Decimal | int, int | None]] = {}
        self._twice: set[tuple[str, int | None, str | None]] = set()
        self._passed: set[tuple[str, int | None, str | None, Decimal | int, Decimal | int]] = set()
        """Differences of samples without times: counter, device, port, earlier and later value."""
        self._until: dict[tuple[str, int | None, str | None], tuple[int, int]] = {}
        """The latest period of which a counter has a row: begin and end."""
        self._devices: dict[int, str] = {}

    def text_lines(self) -> Iterator[str]:
        """The file's lines without their ends; `InputError` if it is not text, or too large."""
        for at, raw in raw_lines(self.path, MOST_BYTES):
            self.line = at
            if len(raw) >= LONGEST_LINE:
                raise self.error_at_line(f"more than {LONGEST_LINE} bytes a line")
            if not raw.endswith((b"\n", *_UNITS)):
                # Its last number may have lost digits.
                self.left_out[CUT] += 1
                self.notes.append(UNENDED)
                return
            try:
                line = raw.decode().rstrip("\r\n")
            except UnicodeDecodeError:
                raise self.error_at_line("not text") from None
            yield line

    def first_and_all(self) -> tuple[str, Iterator[str]]:
        """The first line that is not blank, and an iterator over all such lines, the first included."""
        lines = (line for line in self.text_lines() if line.strip())
        first = next(lines, "")
        return first, chain([first] if first else [], lines)

    def csv_cells(self, lines: Iterable[str]) -> Iterator[list[str]]:
        """The cells of each line; `InputError` if a line is no row of a table."""
        try:
            yield from csv.reader(lines, skipinitialspace=True)
        except csv.Error as error:
            raise self.error_at_line(f"no row of a table: {error}") from None

    def error_at_line(self, what: str, hint: str | None = None) -> InputError:
        """The error for the line being read."""
        return InputError(what, where=f"{self.path}: line {self.line}", hint=hint)

    def parse_number(self, text: str) -> Decimal | None:
        """The exact number; None, and counted, if the tool states that it is not available."""
        if text in _MISSING or text.startswith("N/A"):
            self.left_out[NO_VALUE] += 1
            return None
        value = parse_decimal(text.removeprefix("-"))
        if value is None:
            raise self.error_at_line(
                "text where a number belongs", "leave out lines that the tool did not write"
            )
        if text.startswith("-") or value >= _INT64:
            raise self.error_at_line(
                "a counter below 0 or beyond 2⁶³", "the file is damaged: capture it again"
            )
        return value

    def device_index(self, text: str, uuid: str = "") -> int:
        """The index of an accelerator; `InputError` if its UUID differs from an earlier one of that index."""
        if not re.fullmatch("[0-9]{1,9}", text) or int(text) >= _MOST_DEVICES:
            raise self.error_at_line("no index of a GPU where one belongs")
        if uuid and self._devices.setdefault(int(text), uuid) != uuid:
            raise self.error_at_line(
                f"GPU {int(text)} is another one than before", "give each host a file of its own"
            )
        return int(text)

    def note_no_zone(self) -> None:
        """Note, once, that times of the file state no zone."""
        if _NO_ZONE not in self.notes:
            self.notes.append(_NO_ZONE)

    def time_mark(self, line: str) -> int | None:
        """Nanoseconds since the epoch in a line `# time_ns N` of a capture script; None for other lines."""
        match = _MARK.fullmatch(line)
        if match is None:
            return None
        if int(match[1]) >= _INT64:
            raise self.error_at_line("a time beyond 2⁶³ ns")
        return int(match[1])

    def check_time(self, at_ns: int) -> int:
        """The time in ns since the epoch; `InputError` if no int64 holds it."""
        if not 0 <= at_ns < _INT64:
            raise self.error_at_line("a time before 1970 or beyond 2262")
        return at_ns

    def add_row(
        self,
        counter: str,
        value: Decimal | int,
        *,
        device: int | None = None,
        port: str | None = None,
        start_ns: int | None = None,
        end_ns: int | None = None,
    ) -> None:
        """Append a row; its unit is `unit_of` the counter.

        A row for a period that the counter already has is left out and counted: in a file concatenated with
        itself everything would count twice.
        """
        if start_ns is not None and end_ns is not None:
            key, period = (counter, device, port), (start_ns, end_ns)
            before = self._until.get(key)
            if before is not None and (start_ns < before[1] or period == before):
                self.left_out[AGAIN] += 1
                return
            self._until[key] = period
        row = (device, port, counter, unit_of(counter), start_ns, end_ns, float(value))
        for column, cell in zip(self._columns.values(), row, strict=True):
            column.append(cell)

    def add_clock_limits(
        self, reasons: int, *, device: int | None, start_ns: int | None = None, end_ns: int | None = None
    ) -> None:
        """Add for each cause in `_LIMITS` whether it holds, 1 or 0, from NVML's mask of reasons."""
        for counter, bits in _LIMITS.items():
            held = int(reasons & bits != 0)
            self.add_row(counter, held, device=device, start_ns=start_ns, end_ns=end_ns)

    def add_cumulative(
        self,
        counter: str,
        value: Decimal | int,
        *,
        device: int | None = None,
        port: str | None = None,
        at_ns: int | None = None,
    ) -> None:
        """Add a sample of a cumulative counter: appends the difference to the previous sample.

        A counter that only grows goes from one value to another once.  In a file without times, the same
        difference again means that the file was concatenated with itself.
        """
        key = (counter, device, port)
        earlier, since = self._last.get(key, (None, None))
        if since is not None and at_ns is not None and at_ns <= since:
            self.left_out[CLOCK_BACK if at_ns < since else AGAIN] += 1
            return
        self._last[key] = (value, at_ns)
        if earlier is None:
            return
        self._twice.add(key)
        if value < earlier:
            self.left_out[WENT_BACK] += 1
            return
        start, end = (None, None) if since is None or at_ns is None else (since, at_ns)
        if start is None and value > earlier:
            if (passed := (*key, earlier, value)) in self._passed:
                self.left_out[AGAIN] += 1
                return
            self._passed.add(passed)
        self.add_row(counter, value - earlier, device=device, port=port, start_ns=start, end_ns=end)

    def evidence(self) -> Evidence:
        """All rows, with a `_total` for each byte counter that was sampled once."""
        once = {key: sample for key, sample in self._last.items() if key not in self._twice}
        for (counter, device, port), (value, at) in once.items():
            if counter.endswith("_bytes"):
                total = counter.removesuffix("_bytes") + "_total"
                self.add_row(total, value, device=device, port=port, start_ns=at, end_ns=at)
            else:
                self.left_out["counts sampled once: their difference needs a second sample"] += 1
        if once:
            self.notes.append(
                "counts sampled once: two samples make a difference, in one file or in two that are named"
                " alike but for before and after"
            )
        rows = len(self._columns["value"])
        if not rows and not self.left_out:
            raise InputError("there is no counter in it", where=str(self.path), hint="capture it again")
        columns = [pa.array(self._columns.get(f.name, [None] * rows), f.type) for f in COUNTERS]
        table = pa.Table.from_arrays(columns, schema=COUNTERS)
        return Evidence(counters=table, left_out=dict(self.left_out), notes=self.notes)


def unit_of(counter: str) -> str | None:
    """The unit of a counter, by its suffix if it is not in `COUNTER_UNITS`; None if unknown."""
    if counter in COUNTER_UNITS:
        return COUNTER_UNITS[counter]
    if counter.endswith(("_bytes", "_total")):
        return "B"
    return "count" if counter.endswith("_count") else None
