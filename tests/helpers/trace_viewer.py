# SPDX-License-Identifier: Apache-2.0
"""What a viewer makes of a Chrome trace, by the format's rules, in plain Python and exact decimals.

Slices of a thread must nest; of equal begins the longer is the outer one.  A flow event is tied to the
innermost slice open on its thread when it comes; events are taken by time, and where times are equal slices
come first and the file's order decides among flow events.
"""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any


def ns(micros: Any) -> int:
    """Microseconds as written, which must be whole nanoseconds."""
    value = Decimal(micros) * 1000
    assert value == int(value)
    return int(value)


@dataclass(frozen=True)
class Slice:
    """A complete event."""

    rank: int
    thread: str
    begin: int
    end: int
    kind: str
    name: str
    args: dict[str, Any]


@dataclass
class Viewer:
    """A trace as it is shown."""

    document: dict[str, Any]
    processes: dict[int, str] = field(default_factory=dict)
    threads: dict[int, str] = field(default_factory=dict)
    slices: list[Slice] = field(default_factory=list)
    crossing: list[Slice] = field(default_factory=list)
    """Slices that begin within another of their thread and end after it: viewers drop or bend them."""
    flows: dict[int, list[tuple[str, Slice | None]]] = field(default_factory=dict)
    """By id: the phase, and the slice it is tied to."""

    @classmethod
    def of(cls, path: Path) -> Viewer:
        raw = path.read_bytes()
        text = gzip.decompress(raw) if raw.startswith(b"\x1f\x8b") else raw
        viewer = cls(json.loads(text, parse_float=Decimal, parse_int=Decimal))
        events = viewer.document["traceEvents"]
        for event in events:
            viewer._named(event) if event["ph"] == "M" else None
        timed = [event for event in events if event["ph"] != "M"]
        timed.sort(key=lambda event: (ns(event["ts"]), event["ph"] != "X", -ns(event.get("dur", 0))))
        stacks: dict[int, list[Slice]] = {}
        for event in timed:
            viewer._take(event, stacks.setdefault(int(event["tid"]), []))
        return viewer

    def _named(self, event: dict[str, Any]) -> None:
        if event["name"] == "process_name":
            self.processes[int(event["pid"])] = event["args"]["name"]
        if event["name"] == "thread_name":
            assert int(event["tid"]) not in self.threads
            self.threads[int(event["tid"])] = event["args"]["name"]

    def _take(self, event: dict[str, Any], stack: list[Slice]) -> None:
        begin = ns(event["ts"])
        if event["ph"] != "X":
            assert event["ph"] != "f" or event["bp"] == "e"
            flow = self.flows.setdefault(int(event["id"]), [])
            flow.append((event["ph"], stack[-1] if stack and begin < stack[-1].end else None))
            return
        end = begin + ns(event["dur"])
        thread = self.threads[int(event["tid"])]
        one = Slice(int(event["pid"]), thread, begin, end, event["cat"], event["name"], event["args"])
        self.slices.append(one)
        while stack and stack[-1].end <= begin:
            stack.pop()
        if any(end > outer.end for outer in stack):
            self.crossing.append(one)
        else:
            stack.append(one)
