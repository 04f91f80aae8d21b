# SPDX-License-Identifier: Apache-2.0
"""Kineto events to rows: grouped by kind, with exact times and the payloads of collectives."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from cclbench.classify.python_rows import is_informative
from cclbench.formats import Names, Part, Rows, Trace, several_processes
from cclbench.formats.json_events import CHUNK, END, JsonEvents
from cclbench.formats.kineto.events import (
    DECODER,
    EXACT_CALL_DECODER,
    EXACT_DECODER,
    NO_ARGS,
    PYTHON,
    Args,
    CallDecoder,
    PythonEvent,
    argument_columns,
    autograd_columns,
    kernel_occupancy,
    operator_ids,
    whole_numbers,
)
from cclbench.formats.kineto.facts import trace_facts
from cclbench.formats.kineto.kinds import (
    WORK,
    Groups,
    copy_direction,
    device_index,
    sort_into_kinds,
    stream_of_event,
    track_number,
    valid_link,
)
from cclbench.formats.kineto.payloads import StatedCollectives, speaks_of_collectives
from cclbench.formats.trace import ALLOCATOR_EVENT, LATEST_NS, NO_GRID, grid_columns, impossible_value
from cclbench.ground.errors import InputError
from cclbench.ground.intervals import Int64

_PHASES: Final = {
    **dict.fromkeys("stf", "flow arrow"),
    **dict.fromkeys("iI", "instant"),
    "M": "label",
    "C": "counter",
}
_CALLS: Final = {(kind, "host") for kind in ("op", "launch", "annotation", "python", "other")}
"""Kinds and sides of the rows of a part with `calls_only`."""
_EXACT_BELOW: Final = float(1 << 43)
"""µs; below it float64 resolves nanoseconds, above it (epoch times) it does not."""
_BACKWARD_ONE_IN: Final = 1000
"""One in this many rows of a category may have a negative duration, an artefact of the profiler's clock
conversion: it is left out and counted.  With more of them the category's other times are not reliable."""
_BASE: Final = re.compile(rb'"baseTimeNanoseconds"\s*:\s*(-?\d+)')


class KinetoFile:
    """Reads a file, or a part of it, into `trace`."""

    def __init__(self, path: Path, trace: Trace, part: Part, allow_truncated: bool) -> None:
        self.path, self.trace = path, trace
        self.calls_only = part.calls_only
        decoder: Any = CallDecoder() if part.calls_only else DECODER
        self.stream = JsonEvents(path, decoder, part=part, allow_truncated=allow_truncated)
        self.names: dict[str, Names] = defaultdict(Names)
        self.dropped: Counter[str] = Counter()
        self.kernels = 0
        self.last_device_start: Any = -math.inf
        self.collectives = StatedCollectives(path)
        self.ranks_of_ops: set[int] = set()
        self.processes: set[int | str] = set()
        self.process_of_device: dict[Any, int | str] = {}
        self.rows: Counter[str | None] = Counter()
        self.backward: Counter[str | None] = Counter()
        """Number of rows by category, and of rows with a negative duration."""
        self.first_backward: dict[str | None, InputError] = {}
        self.base_ns = 0
        self.exact = False

    def read_batches(self) -> Iterator[Rows]:
        """All rows; `trace` is complete after the last batch."""
        for index, (chunk, decoded) in enumerate(self.stream):
            events = self._needed_events(decoded)
            if index == 0:
                self.base_ns = 0 if self.stream.forward else self._base_time_ns()
            if self.exact or _loses_digits(events):
                self.exact = True
                exact = EXACT_CALL_DECODER if self.calls_only else EXACT_DECODER
                events = self._needed_events(exact.decode(chunk))
            if self.stream.allow_truncated:
                self._check_order(events)
            for (kind, side), group in self._sort_events(events).items():
                yield from self._make_rows(kind, side, group)
        for category, error in self.first_backward.items():
            if self.backward[category] * _BACKWARD_ONE_IN > self.rows[category]:
                raise error
        self.trace.dropped = self.dropped
        self.trace.cut = self.stream.cut
        ranks_by_group = {
            p.group_name: p.ranks for p in self.trace.stated_payloads.payloads if p.group_name and p.ranks
        }
        self.trace.facts, notes = trace_facts(
            self.stream.outer, self.ranks_of_ops, self.processes, ranks_by_group, self.path
        )
        self.trace.notes += notes
        if self.stream.forward:
            self.trace.base_ns = self._base_time_ns() if self.stream.last else None
        elif self.stream.outer.get("baseTimeNanoseconds", self.base_ns) != self.base_ns:
            raise InputError("baseTimeNanoseconds stands too far from its end", where=str(self.path))

    def _base_time_ns(self) -> int:
        """`baseTimeNanoseconds`, which may come after the events; 0 if times are epoch times."""
        base = self.stream.outer.get("baseTimeNanoseconds")
        if base is None:
            matches = _BASE.findall(self.stream.end if self.stream.forward else self._last_bytes())
            base = int(matches[-1]) if matches else 0
        if not isinstance(base, int) or abs(base) > LATEST_NS:
            raise InputError(f"baseTimeNanoseconds is {base!r}, not a time", where=str(self.path))
        return base

    def _last_bytes(self) -> bytes:
        """The last bytes of the file."""
        try:
            with self.path.open("rb") as file:
                file.seek(max(self.path.stat().st_size - END, 0))
                return file.read(END)
        except OSError:
            return b""  # the main pass meets the same error and reports it

    def _needed_events(self, events: list[Any]) -> list[Any]:
        """The events, of a part with `calls_only` without Python rows that are of no use to it."""
        if not self.calls_only:
            return events
        if _is_python(events):
            return [e for e in events if is_informative(e.name)]
        return [e for e in events if e.cat != PYTHON or is_informative(e.name)]

    def _sort_events(self, events: list[Any]) -> Groups:
        """Events by kind and side; all others are counted as dropped."""
        by_category: dict[str | None, list[Any]] = defaultdict(list)
        if _is_python(events):
            by_category[PYTHON] = events
        else:
            for event in events:
                by_category[event.cat].append(event)
        groups: Groups = defaultdict(list)
        for category, group in by_category.items():
            intervals = [e for e in group if e.dur is not None and e.ts is not None and e.ph == "X"]
            self.rows[category] += len(intervals)
            if len(intervals) < len(group):
                intervals += self._take_allocations(group, len(intervals))
            if category == "Trace":
                self.dropped["profiler span"] += len(intervals)
            else:
                sort_into_kinds(category or "", intervals, groups)
        needed = _CALLS if self.calls_only else groups.keys()
        return {key: group for key, group in groups.items() if group and key in needed}

    def _drop_negative_durations(self, group: list[Any]) -> list[Any]:
        """Rows without those of negative duration, which are counted."""
        backward = [e for e in group if (e.dur or 0) < 0]
        for event in backward:
            if event.cat not in self.backward:
                self.first_backward[event.cat] = self._impossible_value(_time_of(event))
            self.backward[event.cat] += 1
        self.dropped["negative duration"] += len(backward)
        return [e for e in group if (e.dur or 0) >= 0]

    def _take_allocations(self, group: list[Any], intervals: int) -> list[Any]:
        """Allocations among rows of which so many are intervals; all others are counted as dropped."""
        phases = Counter([e.ph for e in group])
        incomplete = phases.pop("X", 0) - intervals
        memory = []
        if phases["i"]:
            memory = [e for e in group if e.ph == "i" and e.name == ALLOCATOR_EVENT and e.ts is not None]
            phases["i"] -= len(memory)
        if incomplete:
            self.dropped["row without a time or duration"] += incomplete
        for phase, count in phases.items():
            if count:
                self.dropped[_PHASES.get(phase, f"phase {phase!r}")] += count
        return memory

    def _make_rows(self, kind: str, side: str, events: list[Any]) -> Iterator[Rows]:
        """The rows of events of one kind and side."""
        dur = self._exact_times_ns([e.dur or 0 for e in events])
        if dur.min() < 0:
            if forward := self._drop_negative_durations(events):
                yield from self._make_rows(kind, side, forward)
            return
        args = [] if kind == "python" else [e.args or NO_ARGS for e in events]
        names, table = [e.name for e in events], self.names[kind]
        start = self._exact_times_ns([e.ts for e in events]) + self.base_ns
        if max(-start.min(), start.max(), dur.max()) > LATEST_NS:
            raise self._impossible_value(
                _time_of(events[int(np.argmax((abs(start) > LATEST_NS) | (dur > LATEST_NS)))])
            )
        if side == "device":
            tracks = [
                stream_of_event(e) if a.stream is None else a.stream
                for e, a in zip(events, args, strict=True)
            ]
        else:
            tracks = [e.tid for e in events]
        rows = Rows(
            kind=kind,
            side=side,
            names=table,
            codes=np.fromiter(map(table.__getitem__, names), np.int32, len(names)),
            start_ns=start,
            dur_ns=dur,
            track=_track_numbers(tracks),
        )
        if not self.calls_only:
            self._collect_payloads(rows, names, args)
        yield replace(rows, **self._kind_columns(kind, side, events, args))

    def _kind_columns(self, kind: str, side: str, events: list[Any], args: list[Args]) -> dict[str, Any]:
        """The columns of a kind of rows besides times and names."""
        if kind in ("python", "annotation") or (self.calls_only and kind == "other"):
            return {}
        if kind == "op":
            self.processes |= {e.pid for e in events if e.pid is not None}
            if len(self.processes) > 1:
                raise several_processes(self.path, self.processes)
            return {
                "flops": _operator_flops(args),
                "operator": operator_ids(args),
                **autograd_columns(args),
                **argument_columns(args),
            }
        columns: dict[str, Any] = {"correlation": [a.correlation for a in args]}
        if kind == "other":
            device = [device_index(a.device_id) if a.device_type else None for a in args]
            # The CPU's allocator reserves nothing, and torch writes 0.
            reserved = [a.reserved if a.device_type else None for a in args]
            return columns | {
                "device": device,
                "bytes": [a.allocated for a in args],
                "reserved": reserved,
                "change": whole_numbers([a.change for a in args]),
                "address": whole_numbers([a.address for a in args]),
            }
        if kind == "launch" and any(names := [a.kernel if type(a.kernel) is str else None for a in args]):
            columns["launched"] = pa.array(names, pa.string()).dictionary_encode()
        if side == "host":
            return columns
        for device_id, process in {
            (a.device, e.pid) for e, a in zip(events, args, strict=True) if a.device is not None
        }:
            if (first_process := self.process_of_device.setdefault(device_id, process)) != process:
                raise several_processes(self.path, {first_process, process})
        columns["device"] = [
            device_index(e.pid if a.device is None else a.device) for e, a in zip(events, args, strict=True)
        ]
        if kind == "sync":
            columns["event_stream"] = [valid_link(a.wait_on_stream) for a in args]
            columns["event_record"] = [valid_link(a.wait_on_record) for a in args]
            return columns
        columns["operator"] = operator_ids(args)
        if kind == "kernel":
            columns |= {"flops": _operator_flops(args), "occupancy": kernel_occupancy(args)}
            return columns | grid_columns(self._kernel_grids(args), self._file_position())
        sizes = [a.size if a.bytes is None else a.bytes for a in args]
        columns["bytes"] = [size if type(size) is int and 0 <= size < 1 << 63 else None for size in sizes]
        if kind == "copy":
            texts = [f"{e.name} {a.kind} {a.direction}" for e, a in zip(events, args, strict=True)]
            columns["copy_direction"] = [copy_direction(text) for text in texts]
        return columns

    def _kernel_grids(self, args: list[Args]) -> Int64:
        """Each kernel's grid, shape (rows, 3)."""
        if text := next((a.grid for a in args if isinstance(a.grid, str)), None):
            raise self._impossible_value(f"grid: {text!r:.40}")
        sides = chain.from_iterable(a.grid or NO_GRID for a in args)
        return np.fromiter(sides, np.int64, 3 * len(args)).reshape(-1, 3)

    def _check_order(self, events: list[Any]) -> None:
        """Note whether the device's work is sorted by start, in this chunk and all before it."""
        starts = [e.ts for e in events if e.cat in WORK and e.ts is not None]
        if starts:
            ordered = all(a <= b for a, b in pairwise([self.last_device_start, *starts]))
            self.trace.device_rows_in_order &= ordered
            self.last_device_start = max(self.last_device_start, *starts)

    def _exact_times_ns(self, microseconds: list[Any]) -> Int64:
        """µs to int64 ns, exact: integer and fractional parts separately, or decimal digits."""
        values = np.array(microseconds)
        if max(values.max(), -values.min()) > LATEST_NS // 1000:
            raise self._impossible_value(f"time: {max(microseconds, key=abs)!s:.40} µs")
        if self.exact:
            return np.array([int(value * 1000) for value in microseconds], np.int64)
        if values.dtype.kind == "i":
            return np.asarray(values * 1000, np.int64)
        integer_us = np.floor(values)
        ns: Int64 = integer_us.astype(np.int64) * 1000
        ns += np.rint((values - integer_us) * 1000).astype(np.int64)
        return ns

    def _impossible_value(self, what: str) -> InputError:
        return impossible_value(what, self._file_position())

    def _file_position(self) -> str:
        return f"{self.path}: within {CHUNK >> 20} MiB after byte {self.stream.position:,}"

    def _collect_payloads(self, rows: Rows, names: list[str], args: list[Args]) -> None:
        """Collect the payloads that the rows state."""
        first = self.kernels
        if rows.kind == "kernel":
            self.kernels += len(rows)
            stating = [i for i, a in enumerate(args) if a.collective is not None]
        elif rows.side == "host" and rows.kind in ("op", "annotation"):
            codes = [code for name, code in rows.names.items() if speaks_of_collectives(name)]
            stating = np.flatnonzero(np.isin(rows.codes, codes)).tolist() if codes else []
        else:
            return
        for i in stating:
            stated = self.collectives.stated_payload(names[i], args[i])
            if stated is None:
                continue
            payload, seq = stated
            rank = args[i].rank
            # `Rank` is the rank in the group; only in the default group it is the global rank.
            if rank is not None and payload.group_description == "default_pg":
                self.ranks_of_ops.add(rank)
            if rows.kind == "kernel":
                self.trace.stated_payloads.add_payload(payload, row=first + i, seq=seq)
            else:
                begin = int(rows.start_ns[i])
                end, thread = begin + int(rows.dur_ns[i]), int(rows.track[i])
                self.trace.stated_payloads.add_payload(
                    payload, track=thread, start_ns=begin, end_ns=end, seq=seq
                )


def _track_numbers(tracks: list[Any]) -> Int64:
    numbers = np.array(tracks)
    if numbers.dtype == np.int64:
        return numbers
    return np.array([t if type(t) is int else track_number(t) for t in tracks], np.int64)


def _is_python(events: list[Any]) -> bool:
    """Whether the events were decoded as nothing but Python functions."""
    return bool(events) and type(events[0]) is PythonEvent


def _time_of(event: Any) -> str:
    return f"time: ts {event.ts}, dur {event.dur} of {event.name[:60]!r}"


def _loses_digits(events: list[Any]) -> bool:
    times = [e.ts for e in events if type(e.ts) is float]
    return bool(times) and max(max(times), -min(times)) >= _EXACT_BELOW


def _operator_flops(args: list[Args]) -> list[float | None] | None:
    flops = [a.flops for a in args]
    return flops if any(flops) else None
