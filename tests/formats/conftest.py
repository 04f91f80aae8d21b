# SPDX-License-Identifier: Apache-2.0
"""Small Kineto files written on the spot, and their rows as plain dictionaries."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from helpers.plain_rows import plain_rows

from cclbench.formats import Part, Trace, trace_reader

Event = dict[str, Any]


@dataclass(frozen=True)
class Read:
    """A file read to its end."""

    trace: Trace
    rows: list[dict[str, Any]]

    def of(self, kind: str) -> list[dict[str, Any]]:
        """The rows of one kind."""
        return [row for row in self.rows if row["kind"] == kind]

    @property
    def stated_payloads(self) -> list[tuple[Any, int, int]]:
        """(payload, ordinal of its kernel or −1, sequence number or −1) of each entry."""
        told, payloads = self.trace.stated_payloads, list(self.trace.stated_payloads.payloads)
        return [(payloads[c], r, s) for c, r, s in zip(told.code, told.row, told.seq, strict=True)]


@pytest.fixture
def read() -> Callable[..., Read]:
    """Reads a file, or one of its parts, with the Kineto reader."""

    def read(path: Path, *, part: Part | None = None, allow_truncated: bool = False) -> Read:
        trace = trace_reader("kineto").read(path, part=part or Part(), allow_truncated=allow_truncated)
        rows = [row for batch in trace.batches for row in plain_rows(batch)]
        for row in rows:
            row["start_ns"] += trace.base_ns or 0
        return Read(trace, rows)

    return read


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Writes a trace: keyword arguments stand before its events, `after` behind them."""

    def write(
        events: list[Event] | list[str],
        *,
        name: str = "trace.json",
        after: dict[str, Any] | None = None,
        **before: Any,
    ) -> Path:
        listed = ", ".join(e if isinstance(e, str) else json.dumps(e) for e in events)
        keys = [f"{json.dumps(k)}: {json.dumps(v)}" for k, v in before.items()]
        keys.append(f'"traceEvents": [{listed}]')
        keys += [f"{json.dumps(k)}: {json.dumps(v)}" for k, v in (after or {}).items()]
        text = ("{" + ",\n".join(keys) + "}").encode()
        path = tmp_path / name
        path.write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
        return path

    return write


@pytest.fixture
def written(tmp_path: Path) -> Callable[..., Path]:
    """Writes a file of any text or bytes and returns its path."""

    def write(text: str | bytes, name: str = "counters.txt") -> Path:
        path = tmp_path / name
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path

    return write


@pytest.fixture
def event() -> Callable[..., Event]:
    """One complete event; keyword arguments beyond the usual ones are its `args`."""

    def event(
        cat: str, name: str, ts: float = 0, dur: float = 1, *, pid: Any = 0, tid: Any = 7, **args: Any
    ) -> Event:
        made = {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur}
        return {**made, "args": {k.replace("_", " ") if k[:1].isupper() else k: v for k, v in args.items()}}

    return event
