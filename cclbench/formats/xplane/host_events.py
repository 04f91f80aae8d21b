# SPDX-License-Identifier: Apache-2.0
"""The plane `/host:CPU` of a profile without accelerators: ops of CPU devices, and other host events.

An op begins on a thread of the executor's pool as an event with the stats `hlo_op`, `device_ordinal` and
`run_id`.  It is complete when the event `end: OP` with the same context id begins (`_p` in the former, `_c`
in the latter): on the same thread, or on another one if the op runs asynchronously.  A collective has
`Rendezvous` events inside the op, one for each buffer; their name lists the group.  Where the framework sets
neither device nor run (TensorFlow), both are −1: XLA's default device, which is the first, and no run.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np

from cclbench.formats.xplane import proto
from cclbench.formats.xplane.hlo_proto import HloProgram, plane_programs
from cclbench.ground.errors import InputError

_DEVICES: Final = range(1 << 31)
_UNSET: Final = -1
_INT64: Final = range(-(1 << 63), 1 << 63)
_MARK, _END, _RENDEZVOUS = "ThreadpoolListener::", "end: ", "Rendezvous"
_KEY: Final = re.compile(r"([a-z][a-z -]{0,40}) RendezvousKey\{[^\[]*global_devices=\[([\d, ]*)\]")


class Rendezvous(msgspec.Struct, frozen=True):
    """The collective in a rendezvous's name, and the global ids of its devices."""

    collective: str
    devices: tuple[int, ...]


class HostOp(msgspec.Struct):
    """A run of an HLO instruction on the device with this global id; times in ns since the epoch."""

    name: str
    module: str
    device: int
    run: int | None
    program: int | None
    track: int
    start_ns: int
    end_ns: int
    context: int | str | float | bytes | None
    complete: bool = True
    """Whether its end is known; if not, `end_ns` is when the thread continued with something else."""
    meeting: Rendezvous | None = None


class HostEvent(msgspec.Struct, frozen=True):
    """Any other event; `run` is the run that it started."""

    name: str
    track: int
    start_ns: int
    end_ns: int
    run: int | None = None


@dataclass(slots=True, eq=False)
class HostProfile:
    """The content of a profile, in the order of its threads."""

    ops: list[HostOp] = field(default_factory=list)
    meetings: list[tuple[HostEvent, int]] = field(default_factory=list)
    """Rendezvous, and the device of the enclosing op."""
    launches: list[HostEvent] = field(default_factory=list)
    steps: list[HostEvent] = field(default_factory=list)
    others: list[tuple[str, HostEvent]] = field(default_factory=list)
    """Kind and event: `annotation` on threads of the program, `other` on those of the executor."""
    dropped: Counter[str] = field(default_factory=Counter)
    stats: proto.Stats = field(default_factory=dict)
    """Stats of the planes: process_id, jax_version, ..."""
    world_size: int | None = None
    programs: dict[int, HloProgram] = field(default_factory=dict)
    """Compiled programs by id."""


def profile_of(messages: Mapping[str, Any], path: Path, epoch: int) -> HostProfile:
    """The profile from planes by name; `epoch` is when it began, in ns, 0 if unknown."""
    profile = HostProfile()
    if of_programs := messages.get(proto.PROGRAMS):
        profile.stats |= proto.decode_stats(proto.stat_names(of_programs), of_programs.stats)
        profile.programs = plane_programs(of_programs, str(path))
    if of_host := messages.get(proto.HOST):
        _Threads(profile, of_host, path, epoch).read_lines()
    return profile


class _Threads:
    """Reads the plane's lines into `profile`."""

    def __init__(self, profile: HostProfile, message: Any, path: Path, epoch: int) -> None:
        self.profile, self.message, self.path, self.epoch = profile, message, path, epoch
        self.stat_names = proto.stat_names(message)
        self.names = {key: metadata.name for key, metadata in proto.event_metadata(message).items()}
        self.ends: dict[object, int] = {}
        profile.stats |= proto.decode_stats(self.stat_names, message.stats)

    def read_lines(self) -> None:
        """Read all lines, then match ends of ops across threads."""
        for line in self.message.lines:
            self._read_line(line)
        for op in self.profile.ops:
            if op.context is not None:
                op.complete = op.context in self.ends
                op.end_ns = max(op.end_ns, self.ends.pop(op.context, op.end_ns))
        if self.ends:
            self.profile.dropped["end of an op that began before the capture"] += len(self.ends)

    def _read_line(self, line: Any) -> None:
        events = list(line.events)
        start, dur = proto.event_times(line, events, self.path, self.epoch)
        end, profile = start + dur, self.profile
        enclosing: list[HostOp] = []
        other_rows: list[HostEvent] = []
        first = len(profile.ops)
        for i in np.lexsort((-end, start)).tolist():
            event = events[i]
            name = self.names.get(event.metadata_id, "")
            if name.startswith(_MARK):
                profile.dropped["mark of the thread pool"] += 1
                continue
            stats = proto.decode_stats(self.stat_names, event.stats)
            row = HostEvent(name, line.id, int(start[i]), int(end[i]), _as_integer(stats.get("run_id")))
            while enclosing and enclosing[-1].end_ns < row.end_ns:
                enclosing.pop()
            if "hlo_op" in stats:
                if (op := self._read_op(row, stats)) is not None:
                    profile.ops.append(op)
                    enclosing.append(op)
            elif name.startswith(_END) and "_c" in stats:
                self.ends[stats["_c"]] = row.start_ns
            elif name == _RENDEZVOUS and enclosing:
                enclosing[-1].meeting = enclosing[-1].meeting or _parse_rendezvous(str(stats.get("name", "")))
                profile.meetings.append((row, enclosing[-1].device))
            elif "step_num" in stats:
                profile.steps.append(msgspec.structs.replace(row, name=step_name(name, stats["step_num"])))
            elif row.run is not None:
                profile.launches.append(row)
                self._take_size(stats)
            else:
                other_rows.append(row)
        inner = len(profile.ops) > first and not line.name.startswith("python")
        profile.others += [("other" if inner else "annotation", row) for row in other_rows]

    def _read_op(self, row: HostEvent, stats: proto.Stats) -> HostOp | None:
        device, program = stats.get("device_ordinal"), _as_integer(stats.get("program_id"))
        device, run = (0 if device == _UNSET else device), (None if row.run == _UNSET else row.run)
        if not isinstance(device, int) or row.run is None:
            self.profile.dropped["op without a device or run"] += 1
            return None
        if device not in _DEVICES:
            raise InputError(f"{row.name[:60]!r} ran on device {device}", where=str(self.path))
        return HostOp(
            name=str(stats["hlo_op"]),
            module=str(stats.get("hlo_module", "")),
            device=device,
            run=run,
            program=None if program is None else program % (1 << 64),
            track=row.track,
            start_ns=row.start_ns,
            end_ns=row.end_ns,
            context=stats.get("_p"),
        )

    def _take_size(self, stats: proto.Stats) -> None:
        replicas, partitions = (_as_integer(stats.get(f"num_{part}")) for part in ("replicas", "partitions"))
        if replicas is not None and partitions is not None and 0 < replicas * partitions < 1 << 20:
            self.profile.world_size = max(self.profile.world_size or 0, replicas * partitions)


def step_name(name: str, number: object) -> str:
    """The name of a step annotation with its number, which the profiler stores separately."""
    return f"train step {number}" if name == "train" else f"step {number}"


@lru_cache(maxsize=1 << 12)
def _parse_rendezvous(text: str) -> Rendezvous | None:
    match = _KEY.match(text)
    devices = tuple(int(number[:18]) for number in re.findall(r"\d+", match[2])) if match else ()
    return Rendezvous(match[1], devices) if match and devices else None


def _as_integer(value: object) -> int | None:
    return value if isinstance(value, int) and value in _INT64 else None


def device_ordinals(ops: Iterable[HostOp]) -> list[int]:
    """Ordinals of the devices that ran ops, ascending."""
    return sorted({op.device for op in ops})
