# SPDX-License-Identifier: Apache-2.0
"""Results of elbencho, the storage benchmark: a row of CSV, or an object of JSON, for each phase.

A phase has figures up to the moment when its first thread has finished and up to its last one's end: the
latter are read.  CSV rounds rates down to MiB/s, JSON states bytes/s; latencies are µs (Statistics.cpp).  Of
phases that mix reads into writes, reads are columns `rwmix read` and objects `rwmix_read`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Final

from cclbench.formats import READERS, Evidence, EvidenceReader
from cclbench.formats.counter_rows import CUT, UNENDED
from cclbench.formats.files import open_output
from cclbench.formats.rewriting import COMMAND_LINE, UNREAD, Redactor
from cclbench.formats.serving.lines import written_results
from cclbench.formats.storage_rows import MOST, StorageRows
from cclbench.formats.texts import damaged_error, parse_decimal, raw_lines, read_beginning, strip_decoration
from cclbench.ground.units import MIB

_MOST_BYTES: Final = 64 << 20
_HEADING: Final = b"operation,time ms [first],time ms [last],"
_MICROSECOND: Final = Decimal("1e-6")
_OPERATION: Final = "operation"
_MIXED_READ: Final = "rwmix read "
_ONE: Final = Decimal(1)
_OF_PHASE: Final = {
    "MiB/s [last]": ("bytes_per_s", None, Decimal(MIB)),
    "IOPS [last]": ("operations_per_s", None, _ONE),
    "entries/s [last]": ("entries_per_s", None, _ONE),
    "IO lat us [avg]": ("latency", None, _MICROSECOND),
    "IO lat us [min]": ("latency", "min", _MICROSECOND),
    "IO lat us [max]": ("latency", "max", _MICROSECOND),
}
_COLUMNS: Final = _OF_PHASE | {_MIXED_READ + name: column for name, column in _OF_PHASE.items()}
_JSON_RATES: Final = {
    "bytes/s": ("bytes_per_s", None, _ONE),
    "iops": ("operations_per_s", None, _ONE),
    "entries/s": ("entries_per_s", None, _ONE),
}
_JSON_LATENCIES: Final = {
    "avg_us": ("latency", None, _MICROSECOND),
    "min_us": ("latency", "min", _MICROSECOND),
    "max_us": ("latency", "max", _MICROSECOND),
}
"""Figure, stat, and base units in one of elbencho's, by heading or key."""
_PUBLISHED: Final = frozenset((_OPERATION, "time ms [first]", "time ms [last]", *_COLUMNS))
_OPERATIONS: Final = frozenset(
    (
        *("READ", "WRITE", "STAT", "SYNC", "MKDIRS", "RMDIRS", "STATDIRS", "RMFILES", "DROPCACHE"),
        *("MKBUCKETS", "RMBUCKETS", "HEADOBJ", "RMOBJECTS", "LISTOBJ", "LISTOBJ_P", "MULTIDEL"),
    )
)
_UNKNOWN: Final = "phases of operations that are not known"
_NO_FIGURES: Final = "phases without bytes, operations and entries"
_AGAIN: Final = "run elbencho again with --csvfile or --jsonfile, and a new file"


class Elbencho(EvidenceReader):
    """Reader of elbencho's results."""

    name = "elbencho"
    description = "results of elbencho (CSV, JSON): bytes, operations, entries and latencies of each phase"
    extensions: tuple[str, ...] = (".csv", ".json")
    capture = "`elbencho --jsonfile results.json ...`, or `--csvfile results.csv`"
    versions = "elbencho 2 and 3"
    tested = "real: elbencho 3.0, a published table of 2.1"
    figures = re.compile("|".join(map(re.escape, (*_COLUMNS, *_JSON_RATES, *_JSON_LATENCIES))))
    withheld: Mapping[str, str] = {"command": COMMAND_LINE, "label": COMMAND_LINE}

    def sniff(self, head: bytes) -> float:
        """Sure of names of its columns, or of the keys of a phase."""
        head = strip_decoration(head)
        first = head.split(b"\n", 1)[0]
        is_json = first.startswith(b"{") and b'"phase_type"' in head and b'"first_done"' in head
        return 0.9 if _HEADING in first or is_json else 0.0

    def read(self, path: Path) -> Evidence:
        """Rows of each phase; phases of one operation are numbered."""
        rows, phase_counts, left_out = StorageRows(), Counter[str](), Counter[str]()
        is_json = read_beginning(path, 1) == b"{"
        for operation, figures in _json_phases(path) if is_json else _table_phases(path, left_out):
            phase = _phase(operation)
            left_out[_NO_FIGURES] += not figures
            if phase is None:
                left_out[_UNKNOWN] += 1
                continue
            phase_counts[phase] += 1
            for (is_mixed_read, figure, stat), value in figures.items():
                rows.add(
                    "read" if is_mixed_read else phase, figure, value, sample=phase_counts[phase], stat=stat
                )
        if not rows:
            raise damaged_error(path, "has no phase with figures", hint=_AGAIN)
        notes = [UNENDED] if left_out[CUT] else []
        return Evidence(storage=rows.table(), left_out=dict(+left_out), notes=notes)

    def rewrite(self, path: Path, target: Path | None, redactor: Redactor) -> bool:
        """Of a table the columns that are read; JSON as any."""
        if read_beginning(path, 1) == b"{":
            return super().rewrite(path, target, redactor)
        with open_output(path, target) as write:
            for _, names, cells in _table_lines(path, Counter()):
                pairs = zip(names, cells, strict=True)
                kept = [(name, cell) for name, cell in pairs if name in _PUBLISHED]
                redactor.count("columns", Counter({UNREAD: len(cells) - len(kept)}))
                write((",".join(_published(redactor, *pair) for pair in kept) + "\n").encode())
        return True


def _published(redactor: Redactor, name: str, cell: str) -> str:
    if not cell or name == cell or (name != _OPERATION and parse_decimal(cell) is not None):
        return cell
    text, counts = redactor.text(cell, name)
    redactor.count(name, counts)
    return text.replace(",", " ")


_Figures = Mapping[tuple[bool, str, str | None], Decimal]
"""Values by whether they are of mixed reads, their figure and stat."""


def _phase(operation: str) -> str | None:
    """`READ` as read, `WRITE` and `RWMIX30` as write, others in small letters; None for no operation."""
    if operation.startswith("RWMIX"):
        return "write"
    return operation.lower() if operation in _OPERATIONS else None


def _table_lines(path: Path, left_out: Counter[str]) -> Iterator[tuple[int, list[str], list[str]]]:
    """Number, headings and cells of each line, the headings included."""
    names = list[str]()
    for number, raw in raw_lines(path, _MOST_BYTES):
        if not raw.endswith(b"\n"):
            left_out[CUT] += 1
            return
        line = raw.decode(errors="replace").rstrip("\r\n")
        cells = line.split(",")
        names = names or cells
        if _OPERATION not in names:
            raise damaged_error(path, f"has no column {_OPERATION!r}", line=number, hint=_AGAIN)
        if len(cells) != len(names):
            raise damaged_error(path, f"{len(cells)} cells, not {len(names)}", line=number, hint=_AGAIN)
        yield number, names, cells


def _table_phases(path: Path, left_out: Counter[str]) -> Iterator[tuple[str, _Figures]]:
    """Operation and figures of each line but headings."""
    for number, names, cells in _table_lines(path, left_out):
        if cells == names:
            continue
        row = dict(zip(names, cells, strict=True))
        figures = dict[tuple[bool, str, str | None], Decimal]()
        for name, (figure, stat, factor) in _COLUMNS.items():
            if text := row.get(name):
                value = _number(path, f"line {number:,}", name, text)
                figures[name.startswith(_MIXED_READ), figure, stat] = value * factor
        yield row[_OPERATION], figures


def _json_phases(path: Path) -> Iterator[tuple[str, _Figures]]:
    """Operation and figures of each object; all its numbers are texts."""
    for phase in written_results(path):
        done = phase.object_of("last_done")
        latency = done.object_of("latency").object_of("IO")
        figures = dict[tuple[bool, str, str | None], Decimal]()
        for is_mixed_read in (False, True):
            for owner, keys in ((done, _JSON_RATES), (latency, _JSON_LATENCIES)):
                part = owner.object_of("rwmix_read") if is_mixed_read else owner
                for key, (figure, stat, factor) in keys.items():
                    if (stated := part.entries.get(key)) is not None:
                        value = _number(path, phase.where, key, stated)
                        figures[is_mixed_read, figure, stat] = value * factor
        operation = phase.entries.get("phase_type")
        if not isinstance(operation, str):
            raise phase.entry_error("phase_type is not a text")
        yield operation, figures


def _number(path: Path, place: str, name: str, text: object) -> Decimal:
    value = parse_decimal(text) if isinstance(text, str) else None
    if value is None or value > MOST:
        raise damaged_error(path, f"{place}: {name} is not a number from 0 to {MOST:.3g}", hint=_AGAIN)
    return value


READERS.add(Elbencho.name, Elbencho(), origin=__name__)
