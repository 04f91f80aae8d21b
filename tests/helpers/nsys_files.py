# SPDX-License-Identifier: Apache-2.0
"""Small exports of Nsight Systems written on the spot, and what the reader makes of them."""

from __future__ import annotations

import sqlite3
import struct
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from cclbench.formats import Payload, Trace, trace_reader
from cclbench.formats.nsys import reading
from helpers.plain_rows import plain_rows

Row = dict[str, Any]
KERNEL, COPY, MEMSET = (f"CUPTI_ACTIVITY_KIND_{name}" for name in ("KERNEL", "MEMCPY", "MEMSET"))
SYNC, GRAPH, CALL = (f"CUPTI_ACTIVITY_KIND_{name}" for name in ("SYNCHRONIZATION", "GRAPH_TRACE", "RUNTIME"))
EPOCH = 1_700_000_000_000_000_000
SESSION = [{"utcEpochNs": EPOCH, "utcTime": "", "localTime": ""}]


def process(pid: int) -> int:
    return 1 << 56 | pid << 24


def thread(pid: int, tid: int) -> int:
    return process(pid) | tid


def kernel(start: int, end: int, *, pid: int = 10, name: int = 1, **more: Any) -> Row:
    """A kernel of one block on device 0, stream 7."""
    row = {"start": start, "end": end, "deviceId": 0, "streamId": 7, "correlationId": 0}
    row |= {"globalPid": process(pid), "demangledName": name, "shortName": name}
    return row | {"gridX": 1, "gridY": 1, "gridZ": 1} | more


def call(
    start: int, end: int, correlation: int, *, pid: int = 10, tid: int = 3, name: int = 2, **more: Any
) -> Row:
    row = {"start": start, "end": end, "eventClass": 0, "globalTid": thread(pid, tid)}
    return row | {"correlationId": correlation, "nameId": name} | more


def nvtx(
    start: int, end: int | None, text: str | None = None, *, pid: int = 10, tid: int = 3, **more: Any
) -> Row:
    row = {"start": start, "end": end, "eventType": 59, "text": text, "textId": None, "domainId": 0}
    return row | {"globalTid": thread(pid, tid), "binaryData": None} | more


def strings(*values: str) -> list[Row]:
    return [{"id": i, "value": value} for i, value in enumerate(values, 1)]


def blob(schema: int, payload: bytes, domain: int = 1) -> bytes:
    """An NVTX payload behind its header."""
    return struct.pack("<QQQQ", domain, schema, len(payload), 32) + payload


def write(path: Path, /, **tables: list[Row] | str) -> Path:
    """A database of these tables, each of rows with the same columns, or of columns only."""
    with closing(sqlite3.connect(path)) as connection, connection:
        for table, rows in tables.items():
            columns = rows.split() if isinstance(rows, str) else list(rows[0])
            listed = ", ".join(f'"{name}"' for name in columns)
            connection.execute(f'CREATE TABLE "{table}" ({listed})')
            marks = ", ".join("?" * len(columns))
            if not isinstance(rows, str):
                values = [tuple(row[name] for name in columns) for row in rows]
                connection.executemany(f'INSERT INTO "{table}" VALUES ({marks})', values)  # noqa: S608
    return path


@dataclass(frozen=True)
class Read:
    """A member's part read to its end."""

    trace: Trace
    rows: list[Row] = field(default_factory=list)
    counters: list[Row] = field(default_factory=list)

    def of(self, kind: str, side: str | None = None) -> list[Row]:
        return [row for row in self.rows if row["kind"] == kind and side in (None, row["side"])]

    @property
    def stated_payloads(self) -> list[tuple[Payload, int, int, int]]:
        """(payload, thread, begin, end) of each entry, times since the session began."""
        told, payloads = self.trace.stated_payloads, list(self.trace.stated_payloads.payloads)
        return [
            (payloads[code], track, start - EPOCH, end - EPOCH)
            for code, track, start, end in zip(told.code, told.track, told.start_ns, told.end_ns, strict=True)
        ]


def read(path: Path, member: str | None = None) -> Read:
    """The part of a member, of the first where none is named."""
    reader = trace_reader("nsys")
    parts = reading.member_parts(path)
    part = parts[0] if member is None else next(p for p in parts if p.member == member)
    found = Read(reader.read(path, part=part, allow_truncated=False))
    for batch in found.trace.batches:
        if isinstance(batch, pa.Table):
            found.counters.extend(batch.to_pylist())
        else:
            found.rows.extend(plain_rows(batch))
    return found
