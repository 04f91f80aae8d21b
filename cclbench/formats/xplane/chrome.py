# SPDX-License-Identifier: Apache-2.0
"""Convert an XLA profile's Chrome JSON back to planes.

A plane is a process, a line a thread, a stat a text in `args`, an event without duration an instant.  Times
are µs with all digits down to the ps.  Lines that xprof derives for its viewer are left out.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter, defaultdict
from decimal import Decimal
from functools import cached_property
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

import msgspec

from cclbench.formats import Trace
from cclbench.formats.json_events import JsonEvents
from cclbench.formats.trace import impossible_value
from cclbench.formats.xplane.collectives import DeviceMember
from cclbench.formats.xplane.device import NO_EPOCH, device_batches, remember_last
from cclbench.formats.xplane.host_events import HostProfile, profile_of
from cclbench.formats.xplane.proto import DEVICE, HOST, message_class
from cclbench.formats.xplane.rows import DERIVED
from cclbench.ground.errors import InputError
from cclbench.record.facts import TraceFacts

BESIDE: Final = "read the .xplane.pb beside it"
_ITSELF: Final = ("XLA Ops", "XLA TraceMe")
_DERIVED: Final = re.compile(
    r"Host Offload Ops.*|.* - from #\d+|" + "|".join(name for name in DERIVED if name not in _ITSELF)
)
_STREAM: Final = re.compile(r"Stream #(\d{1,18})")
_PROGRAM: Final = re.compile(r".*\((\d{1,20})\)")
_NUMBER: Final = re.compile(r"-?\d{1,20}")
_LONGEST_US: Final = 1 << 42
_OPAQUE: Final = "memory_access_breakdown"
_OF_OP: Final = frozenset({"hlo_category", "tf_op", "source", "model_flops", "flops", "bytes_accessed"})
"""Args that in a plane belong to an op, not to each of its runs."""
_OF_EVENT: Final = frozenset(
    {
        *("correlation_id", "device_duration_ps", "device_offset_ps", "device_ordinal", "hlo_module"),
        *("hlo_op", "kernel_details", "memcpy_details", "memset_details", "name", "num_partitions"),
        *("num_replicas", "program_id", "run_id", "step_num"),
    }
)


_Key = tuple[str, str, tuple[tuple[str, str], ...]]


class _ChromeEvent(msgspec.Struct, gc=False):
    ph: str = ""
    name: str = ""
    pid: int | None = None
    tid: int | None = None
    ts: Decimal | None = None
    dur: Decimal | None = None
    args: dict[str, Any] | None = None


_DECODER: Final = msgspec.json.Decoder(list[_ChromeEvent])


class ChromeProfile:
    """A file converted to planes, by name; `devices` are in the file's order."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.planes: dict[str, Any] = {}
        self.dropped: Counter[str] = Counter()
        self.events = 0
        self.linked = False
        """Whether events are linked by flows."""
        self._names: dict[tuple[int, int | None], str] = {}
        stream = JsonEvents(path, _DECODER, allow_truncated=True)
        processes: dict[int, dict[int, list[_ChromeEvent]]] = defaultdict(lambda: defaultdict(list))
        for _, events in stream:
            for event in events:
                if event.ph in ("X", "i"):
                    self.events += 1
                    if event.ts is None or (event.dur is None and event.ph == "X"):
                        self.dropped["row without a time or duration"] += 1
                        continue
                    for time in (event.ts, event.dur or Decimal(0)):
                        if not (time.is_finite() and abs(time) < _LONGEST_US):
                            raise impossible_value(f"time: {time!s:.40} µs of {event.name[:60]!r}", path)
                    processes[event.pid or 0][event.tid or 0].append(event)
                elif event.ph == "M":
                    self._name_planes(event)
                elif event.ph:
                    self.dropped[f"phase {event.ph!r:.20}"] += 1
        self.cut = stream.cut
        for pid, threads in processes.items():
            name = self._names.get((pid, None), "")
            if name in self.planes:
                raise InputError(f"two processes are named {name!r}", where=str(path), hint=BESIDE)
            if name == HOST or DEVICE.fullmatch(name):
                self.planes[name] = self._build_plane(name, pid, threads)
            else:
                self.dropped["row of another plane"] += sum(map(len, threads.values()))
        order = {name: pid for (pid, tid), name in self._names.items() if tid is None}
        self.devices = sorted(self.planes.keys() - {HOST}, key=order.__getitem__)
        self.named = sorted(filter(DEVICE.fullmatch, order), key=order.__getitem__)
        """All devices of the process, including idle ones."""

    @cached_property
    def host_profile(self) -> HostProfile:
        """Ops of CPU devices; `InputError` if the ends of ops cannot be matched."""
        profile = profile_of(self.planes, self.path, 0)
        if profile.ops and not self.linked:
            raise InputError(
                "JSON written by JAX does not state when ops of CPU devices end",
                where=str(self.path),
                hint=BESIDE,
            )
        return profile

    def device_trace(self, name: str) -> Trace:
        """Rows of a device, and of the process that drives it."""
        facts = TraceFacts(
            local_rank=self.named.index(name),
            producer="XLA profiler",
            device_count=len(self.named),
            vendor="google" if "TPU" in name else None,
        )
        trace = Trace(batches=iter(()), facts=facts, notes=[NO_EPOCH])
        first, *others = self.devices
        elsewhere = others if name == first else None
        plane = self.planes.get
        trace.batches = device_batches(
            trace, name, plane(name), plane, self.path, 0, DeviceMember(None), {}, elsewhere
        )
        return trace

    def _name_planes(self, event: _ChromeEvent) -> None:
        name = (event.args or {}).get("name")
        if isinstance(name, str) and event.name in ("process_name", "thread_name"):
            thread = event.tid or 0 if event.name == "thread_name" else None
            self._names[event.pid or 0, thread] = name

    def _build_plane(self, name: str, pid: int, threads: dict[int, list[_ChromeEvent]]) -> Any:
        plane = message_class()(name=name)
        metadata_ids: dict[_Key, int] = {}
        stats: dict[str, int] = {}
        titles = {tid: self._names.get((pid, tid), "") for tid in threads}
        runs = _module_runs([e for tid in threads if titles[tid] == "XLA Modules" for e in threads[tid]])
        for tid, events in threads.items():
            title = titles[tid]
            if _DERIVED.fullmatch(title):
                self.dropped["row derived from others"] += len(events)
                continue
            stream = _STREAM.match(title)
            line = plane.lines.add(id=int(stream[1]) if stream else tid % (1 << 63), name=title)
            for event in events:
                args = {key: value for key, value in (event.args or {}).items() if isinstance(value, str)}
                offset, length = _to_picoseconds(event.ts), _to_picoseconds(event.dur)
                run = line.events.add(offset_ps=offset, duration_ps=length)
                op_stats: tuple[tuple[str, str], ...] = ()
                text = event.name
                if title == "XLA Ops":
                    text = args.get("long_name") or text
                    op_stats = _op_stats(args, _program_at(runs, offset))
                run.metadata_id = metadata_ids.setdefault((text, event.name, op_stats), len(metadata_ids) + 1)
                if "flow" in args and _NUMBER.fullmatch(args["flow"]):
                    context = "_c" if event.name.startswith("end: ") else "_p"
                    # A flow's last two bits are its direction.
                    _append_stat(run, stats, context, str(int(args["flow"]) >> 2))
                    self.linked = True
                for key in _OF_EVENT & args.keys():
                    _append_stat(run, stats, key, args[key])
        for (text, title, op_stats), at in metadata_ids.items():
            metadata = plane.event_metadata.add(key=at).value
            metadata.id, metadata.name, metadata.display_name = at, text, title
            for key, value in op_stats:
                _append_stat(metadata, stats, key, value)
        for key, at in stats.items():
            plane.stat_metadata.add(key=at).value.name = key
        return plane


def _op_stats(args: dict[str, str], program: str | None) -> tuple[tuple[str, str], ...]:
    # With an opaque breakdown by memory space, `bytes_accessed` is of all memories; of the default one alone
    # if the arrays' layouts state no other, `{0:S(1)}`.
    arrays = args.get("long_name", "")
    is_of_default = "{" in arrays and "S(" not in arrays
    left_out = {"bytes_accessed"} if _OPAQUE in args and not is_of_default else set()
    stated = {key: args[key] for key in sorted(_OF_OP & args.keys() - left_out)}
    return tuple(stated.items()) if program is None else (*stated.items(), ("program_id", program))


def _module_runs(events: list[_ChromeEvent]) -> list[tuple[int, int, str]]:
    """Begin, end and program of each run of a module; its name contains the program's fingerprint."""
    return sorted(
        (_to_picoseconds(run.ts), _to_picoseconds(run.ts) + _to_picoseconds(run.dur), match[1])
        for run in events
        if (match := _PROGRAM.fullmatch(run.name))
    )


def _program_at(runs: list[tuple[int, int, str]], ps: int) -> str | None:
    """The program that runs at this instant."""
    i = bisect_right(runs, ps, key=itemgetter(0)) - 1
    return runs[i][2] if i >= 0 and ps <= runs[i][1] else None


def _to_picoseconds(us: Decimal | None) -> int:
    return int((us or 0) * 1_000_000)


def _append_stat(to: Any, stats: dict[str, int], name: str, value: str) -> None:
    """Append a stat, as a number if the text is one."""
    stat = to.stats.add(metadata_id=stats.setdefault(name, len(stats) + 1))
    number = int(value) if _NUMBER.fullmatch(value) else None
    if number is not None and -(1 << 63) <= number < 1 << 63:
        stat.int64_value = number
    elif number is not None and 0 <= number < 1 << 64:
        stat.uint64_value = number
    else:
        stat.str_value = value


chrome = remember_last(ChromeProfile)
"""The `ChromeProfile` of a file, up to its `cut`."""
