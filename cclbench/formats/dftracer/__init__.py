# SPDX-License-Identifier: Apache-2.0
"""DFTracer's traces: calls of a process for files, and what else of it is annotated, an object a line.

The file is Chrome JSON without commas, often gzip, one for each process: `cat` is the layer (POSIX, STDIO, or
an application's own), `ts` and `dur` are µs.  Since version 1 rows of phase M list hosts, files and
programs, to which calls refer by hashes; the last row counts all (src/dftracer/writer/chrome_writer.cpp).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa

from cclbench.formats import READERS, Evidence, EvidenceReader
from cclbench.formats.files import open_output
from cclbench.formats.rewriting import HOST, SOURCE_PATH, SYSTEM, Redactor
from cclbench.formats.texts import damaged_error, raw_lines, reason_of, strip_decoration
from cclbench.ground.evidence_schema import IO_CALLS

LAYERS: Final = ("POSIX", "STDIO")
"""Layers whose calls are for files; others, an application's, contain them."""
_ITSELF: Final = "dftracer"
_MOST_BYTES: Final = 1 << 36
_BLOCK_ROWS: Final = 1 << 16
_LATEST_US: Final = 1 << 53
_MOST: Final = 1 << 62
_MOST_RANKS: Final = 1 << 24
_READS: Final = re.compile(r"_*(?:p?readv?2?(?:64)?|fread(?:_unlocked)?|fgets|getline)")
_WRITES: Final = re.compile(r"_*(?:p?writev?2?(?:64)?|fwrite(?:_unlocked)?|fputs)")
_OF_ITEMS: Final = ("fread", "fwrite", "fread_unlocked", "fwrite_unlocked")
"""Calls that return a number of items of `size` bytes."""
_PUBLISHED: Final = ("ret", "count", "size", "num_events")
_NAMED: Final = (*LAYERS, _ITSELF, "FH", "PR", "end")
"""Names and layers of rows by which others are read."""
_ROW: Final = re.compile(rb'\s*\[\s*\{"id":"?\d+"?,"name":"[^"]*","cat":"[^"]*","pid":')


class _Row(msgspec.Struct, kw_only=True):
    id: int = 0
    name: str
    cat: str
    pid: int
    tid: int = 0
    ts: int = 0
    dur: int = 0
    ph: str
    args: dict[str, Any] = {}


@dataclass(slots=True)
class _FileFacts:
    """What the rows so far say besides calls."""

    rows: int = 0
    stated: int | None = None
    rank: int | None = None
    files: dict[str, str] = field(default_factory=dict)
    """Paths by their hash."""


class DfTracer(EvidenceReader):
    """Reader of DFTracer's files."""

    name = "dftracer"
    description = "DFTracer's traces of I/O (.pfw, JSON lines): calls of a process for files"
    extensions: tuple[str, ...] = (".pfw", ".pfw.gz")
    capture = "`DFTRACER_ENABLE=1 DFTRACER_LOG_FILE=trace` with `dftracer` in the job"
    versions = "DLIO Profiler, DFTracer 1"
    tested = "real: six of 48 processes of a simulation (DFTracer 1.0), one of DLIO Profiler"

    withheld: Mapping[str, str] = {
        "hostname": HOST,
        "fname": SOURCE_PATH,
        **dict.fromkeys(("cmd_hash", "exec_hash", "cwd", "date", "ppid"), SYSTEM),
    }

    def sniff(self, head: bytes) -> float:
        """Sure of rows without commas between them, of DFTracer's layers."""
        head = strip_decoration(head)
        is_own = any(b'"cat":"%b"' % layer.encode() in head for layer in (*LAYERS, _ITSELF))
        return 0.9 if is_own and _ROW.match(head) and re.search(rb"\}[ \t\r]*\n\s*\{", head) else 0.0

    def read(self, path: Path) -> Evidence:
        """A row for each call, in the order of the file."""
        facts = _FileFacts()
        calls = _calls(path, facts)
        batches = list[pa.RecordBatch]()
        while block := list(islice(calls, _BLOCK_ROWS)):
            batches.append(pa.RecordBatch.from_pylist(block, schema=IO_CALLS))
        if not batches:
            raise damaged_error(path, "has no call")
        table = pa.Table.from_batches(batches).unify_dictionaries()
        if facts.rank is not None:
            place = table.schema.get_field_index("rank")
            table = table.set_column(place, "rank", pa.repeat(pa.scalar(facts.rank, pa.int32()), len(table)))
        lost = 0 if facts.stated is None else facts.stated - facts.rows
        return Evidence(
            io_calls=table.cast(IO_CALLS),
            left_out={"rows that the file counts and does not have": lost} if lost > 0 else {},
        )

    def rewrite(self, path: Path, target: Path | None, redactor: Redactor) -> bool:
        """Calls without the paths of their files; of other rows the rank and the count of rows."""
        with open_output(path, target) as write:
            write(b"[\n")
            for _, row in _rows(path):
                write(msgspec.json.encode(_publish_row(row, redactor)) + b"\n")
            write(b"]\n")
        return True


def _publish_row(row: _Row, redactor: Redactor) -> _Row:
    """What is published of a row: its name and layer, redacted unless rows are read by them, and numbers."""
    texts = {key: text for key, text in row.args.items() if isinstance(text, str) and _count(text) is None}
    is_rank = row.ph == "M" and row.name == "PR"
    for key in texts:
        kind = HOST if key == "hostname" or row.name == "HH" else SOURCE_PATH
        if not is_rank:
            redactor.count(key, {kind: 1})
    stated = {key: row.args.get(key) for key in (*_PUBLISHED, *(("value",) if is_rank else ()))}
    numbers = {key: value if isinstance(value, int) else _count(value) for key, value in stated.items()}
    row.args = {key: number for key, number in numbers.items() if number is not None}
    if is_rank and texts.get("name") == "rank":
        row.args["name"] = "rank"
    for key in ("name", "cat", "ph"):
        text = getattr(row, key)
        if text not in _NAMED and not (key == "name" and _kind(row) in ("read", "write")):
            text, counts = redactor.text(text, key)
            redactor.count(key, counts)
            setattr(row, key, text)
    return row


def _rows(path: Path) -> Iterator[tuple[int, _Row]]:
    """The rows of the file, each with the number of its line."""
    decoder = msgspec.json.Decoder(_Row, strict=False)
    for number, line in raw_lines(path, _MOST_BYTES):
        text = line.strip().removeprefix(b"[").removesuffix(b",").strip()
        if text in (b"", b"]"):
            continue
        try:
            yield number, decoder.decode(text)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise damaged_error(path, f"is not a row: {reason_of(error)}", line=number) from None


def _calls(path: Path, facts: _FileFacts) -> Iterator[dict[str, Any]]:
    for number, row in _rows(path):
        facts.rows += 1
        if row.ph == "M":
            _learn(row, facts)
        elif row.cat == _ITSELF:
            facts.stated = _count(row.args.get("num_events")) if row.name == "end" else facts.stated
        elif row.ph == "X":
            if not (0 <= row.ts <= _LATEST_US and 0 <= row.dur <= _LATEST_US and abs(row.pid) < _MOST):
                raise damaged_error(path, "has a time or process that is out of range", line=number)
            yield _call(row, facts)


def _learn(row: _Row, facts: _FileFacts) -> None:
    """A row of phase M: the path of a hash, or the process's rank."""
    name, value = row.args.get("name"), row.args.get("value")
    if row.name == "FH" and isinstance(name, str):
        facts.files[str(value)] = name
    elif row.name == "PR" and name == "rank":
        rank = _count(value)
        facts.rank = rank if rank is not None and rank < _MOST_RANKS else None


def _call(row: _Row, facts: _FileFacts) -> dict[str, Any]:
    args = row.args
    path = args.get("fname") or facts.files.get(str(args.get("fhash")))
    kind = _kind(row)
    return {
        "process": row.pid,
        "thread": row.tid if abs(row.tid) < _MOST else None,
        "layer": row.cat,
        "function": row.name,
        "kind": kind,
        "path": path if isinstance(path, str) else None,
        "start_ns": row.ts * 1000,
        "dur_ns": row.dur * 1000,
        "bytes": _moved_bytes(row) if kind in ("read", "write") else None,
    }


def _kind(row: _Row) -> str:
    if row.cat not in LAYERS:
        return "application"
    if _READS.fullmatch(row.name):
        return "read"
    return "write" if _WRITES.fullmatch(row.name) else "metadata"


def _moved_bytes(row: _Row) -> int | None:
    """What the call returned: bytes, or items of a size; None where it failed or does not say."""
    returned = _count(row.args.get("ret"))
    if returned is None or row.name not in _OF_ITEMS:
        return returned
    size = _count(row.args.get("size"))
    return None if size is None or returned * size >= _MOST else returned * size


def _count(value: object) -> int | None:
    """A count, written as a number or a text; None for anything else, -1 included."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 20:
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _MOST else None


READERS.add(DfTracer.name, DfTracer(), origin=__name__)
