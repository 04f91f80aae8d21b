# SPDX-License-Identifier: Apache-2.0
"""Delay one rank in real DDP traces over gloo, and move all rows as they would have been recorded.

A rank's rows move by the delays inserted before them.  The time from a call to the begin of its collective
and the time from the last arrival to its end are kept; work after a step's last collective waits for it.
Times are integers, ns, so that the change of each step is known exactly.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np

Event = dict[str, Any]
Insertion = Callable[["RankTrace", int], tuple[list[int], list[int]]]
"""Returns, for a step of a rank, times and the total delay inserted up to each, ns."""
_COLLECTIVE: Final = "gloo:"


@dataclass(frozen=True)
class RankTrace:
    """One rank's Kineto document, with times of rows in ns."""

    document: dict[str, Any]

    @classmethod
    def read(cls, path: Path) -> RankTrace:
        """Read a compressed trace, with times as written."""
        document = json.loads(gzip.decompress(path.read_bytes()), parse_float=Decimal)
        for event in document["traceEvents"]:
            event["begin"] = int(Decimal(event.get("ts", 0)) * 1000)
            event["end"] = event["begin"] + int(Decimal(event.get("dur", 0)) * 1000)
        return cls(document)

    def write(self, path: Path) -> None:
        """Write a compressed trace, as Kineto does."""
        events = []
        for event in self.document["traceEvents"]:
            kept = {key: value for key, value in event.items() if key not in ("begin", "end")}
            kept["ts"] = event["begin"] / 1000
            events.append(kept | ({"dur": (event["end"] - event["begin"]) / 1000} if "dur" in event else {}))
        text = json.dumps(self.document | {"traceEvents": events}, default=float)
        path.write_bytes(gzip.compress(text.encode(), 1))

    @cached_property
    def steps(self) -> list[Event]:
        """The steps' annotations."""
        found = [e for e in self.document["traceEvents"] if e["name"].startswith("ProfilerStep#")]
        return sorted(found, key=lambda event: event["begin"])

    @cached_property
    def main(self) -> list[list[Event]]:
        """Rows of the training thread, by step."""
        thread, begins = self.steps[0]["tid"], [step["begin"] for step in self.steps]
        rows: list[list[Event]] = [[] for _ in begins]
        for event in sorted(self.document["traceEvents"], key=lambda event: event["begin"]):
            if event.get("tid") == thread and event["ph"] != "M":
                rows[max(int(np.searchsorted(begins, event["begin"], "right")) - 1, 0)].append(event)
        return rows

    @cached_property
    def collectives(self) -> list[dict[str, Event]]:
        """Rows of the communication library, by step and size."""
        begins = [step["begin"] for step in self.steps]
        found: list[dict[str, Event]] = [{} for _ in begins]
        for event in self.document["traceEvents"]:
            if event["name"].startswith(_COLLECTIVE) and event.get("cat") == "user_annotation":
                step = int(np.searchsorted(begins, event["begin"], "right")) - 1
                found[step][str(event["args"]["Input Dims"])] = event
        return found


def idle(length_ns: int) -> Insertion:
    """Insert idle time before each forward pass."""

    def insert_idle(trace: RankTrace, step: int) -> tuple[list[int], list[int]]:
        begin = next(event["begin"] for event in trace.main[step] if event["name"] == "forward")
        return [begin - 1, begin], [0, length_ns]

    return insert_idle


def doubled_forward(trace: RankTrace, step: int) -> tuple[list[int], list[int]]:
    """Double the duration of the forward pass's operators."""
    forward = next(event for event in trace.main[step] if event["name"] == "forward")
    at, total = [forward["begin"]], [0]
    for event in trace.main[step]:
        inside = forward["begin"] <= event["begin"] and event["end"] <= forward["end"]
        if event.get("cat") == "cpu_op" and inside and event["end"] > at[-1]:
            at += [max(event["begin"], at[-1]), event["end"]]
            total += [total[-1], total[-1] + at[-1] - at[-2]]
    return at, total


def intervene(traces: Mapping[int, RankTrace], rank: int, insertion: Insertion) -> list[int]:
    """Apply a change to each step of one rank and move dependent rows; returns the delay of rank 0, ns."""
    late, delays = dict.fromkeys(traces, 0), []
    for step in range(len(traces[rank].steps)):
        put = insertion(traces[rank], step)
        inserted = {member: put if member == rank else ([0], [0]) for member in traces}
        calls = {member: traces[member].collectives[step] for member in traces}
        last_ends = {member: max(row["end"] for row in calls[member].values()) for member in traces}
        free: dict[tuple[int, int], int] = {}
        for size in sorted(
            calls[rank], key=lambda size: max(calls[member][size]["begin"] for member in traces)
        ):
            rows = {member: calls[member][size] for member in traces}
            arrival = max(row["begin"] for row in rows.values())
            for member, row in rows.items():
                begin = row["begin"] + late[member] + int(np.interp(row["begin"], *inserted[member]))
                row["begin"] = max(begin, free.get((member, row["tid"]), 0))
            new_arrival = max(row["begin"] for row in rows.values())
            for member, row in rows.items():
                row["end"] = free[member, row["tid"]] = new_arrival + row["end"] - arrival
        for member, trace in traces.items():
            waited = max(row["end"] for row in calls[member].values()) - last_ends[member]
            before, late[member] = (
                late[member],
                _move_rows(trace.main[step], last_ends[member], late[member], inserted[member], waited),
            )
            if member == 0:
                delays.append(late[member] - before)
    return delays


def _move_rows(
    rows: list[Event], ended: int, late: int, put: tuple[list[int], list[int]], waited: int
) -> int:
    """Move a step's rows on the training thread; returns the delay after its last collective, ns.

    `ended`: end of that collective; `late`: delay of the step's begin; `waited`: delay of that end.
    """
    called = max(event["end"] for event in rows if event["name"].startswith("c10d::"))
    busy = max(event["end"] for event in rows if event["ph"] == "X" and event["end"] <= ended)
    whole = late + put[1][-1]
    after = max(waited, whole - (ended - busy))

    def move_time(at: int) -> int:
        if at <= called:
            return at + late + int(np.interp(at, *put))
        return at + (max(whole, waited) if at < ended else after)

    for event in rows:
        event["begin"], event["end"] = move_time(event["begin"]), move_time(event["end"])
    return after
