# SPDX-License-Identifier: Apache-2.0
"""TPU planes: ops of the core, asynchronous transfers, waits, and marks of modules and steps.

`XLA Ops` is the core's time.  An op that issues an asynchronous transfer (`-start`) and the one that awaits
it (`-done`) are not work of the core; the transfer lasts from the start of the first to the end of the
second, and takes the core the time of the two.  `Async XLA Ops` shows this for only some devices of a file,
so the pairs are matched here.
`barrier-cores` and `dependency-wait` of `XLA TraceMe` are waits.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from cclbench.formats import Rows, Trace
from cclbench.formats.xplane import origins, proto
from cclbench.formats.xplane.clock import DeviceClock, on_host
from cclbench.formats.xplane.collectives import DeviceMember
from cclbench.formats.xplane.ops import TpuOp, parse_op, transfer_op
from cclbench.formats.xplane.rows import DERIVED, LineEvents, kind_rows, marked_steps
from cclbench.ground import units
from cclbench.ground.intervals import Int64

_CORE, _BESIDE, _MARKS = "XLA Ops", "Async XLA Ops", "XLA TraceMe"
_READ: Final = (_CORE, _BESIDE, _MARKS, "XLA Modules", "Steps")
_NOTABLE_NS: Final = 1_000_000
_WAITS: Final = ("barrier-cores", "dependency-wait")
_TERA, _GIGA = 1e12, 1e9
_RUN: Final = re.compile(r"(.+)\((\d{1,20})\)")
"""A module's run: name and id of its program."""
_Issue = tuple[int | None, str | None]
"""Program and name of an op that issues a transfer."""


def tpu_facts(stats: proto.Stats) -> dict[str, Any]:
    """Facts about the device from its plane, as fields of `TraceFacts`; peaks are as stated there."""
    name = stats.get("device_type_string")
    return {
        "vendor": "google",
        "device_name": name if isinstance(name, str) else None,
        "peak_flops_per_s": _positive_scaled(stats.get("peak_teraflops_per_second"), _TERA),
        "hbm_bytes_per_s": _positive_scaled(stats.get("peak_hbm_bw_gigabytes_per_second"), _GIGA),
    }


def global_id(stats: proto.Stats, where: str) -> int | None:
    """Global id of the device: of the chip if its cores form one device, else of the core."""
    details = stats.get("core_details")
    if not isinstance(details, bytes):
        return None
    # CoreDetails: 4 local chip, 5 global chip, 6 global core, 7 whether a SparseCore; absent is 0.
    fields = proto.integer_fields(details, 0, len(details), where)
    number = fields.get(5 if stats.get("has_megacore") else 6, 0)
    return number if number < 1 << 31 else None


def tpu_batches(
    trace: Trace, message: Any, path: Path, device: int, epoch_ns: int, member: DeviceMember
) -> Iterator[Rows]:
    """All rows of a TPU's plane."""
    table = OpTable(message, path, member)
    lines: dict[str, LineEvents] = {}
    for line in message.lines:
        name = line.name or line.display_name
        if name in _READ and name not in lines:
            lines[name] = table.line_events(line, trace, epoch_ns)
        elif line.events:
            reason = "row derived from others" if name in DERIVED else "row of a line of unknown meaning"
            trace.dropped[reason] += len(line.events)
    if table.clock is not None:
        lines = {
            name: move_line(line, table.clock) if name != _CORE else line for name, line in lines.items()
        }
        if table.clock.largest_error_ns > _NOTABLE_NS:
            trace.notes.append(
                "times of ops are from the device's own clock: times in the profile are off by up to"
                f" {units.humanise(table.clock.largest_error_ns / 1e9, 's')}"
            )
    yield from device_rows(trace, lines, table.ops, device)


def move_line(line: LineEvents, clock: DeviceClock) -> LineEvents:
    """A line on the device's clock; waits keep their length, other rows begin and end with their ops."""
    start = clock.move_begins(line.start_ns)
    end = start + line.dur_ns if line.name == _MARKS else clock.move_ends(line.start_ns + line.dur_ns)
    return LineEvents(line.name, line.track, line.code, start, np.maximum(end - start, 0), line.shown_ns)


def device_rows(
    trace: Trace, lines: Mapping[str, LineEvents], ops: list[TpuOp], device: int
) -> Iterator[Rows]:
    """Rows of a device's lines by name; codes are indices into `ops`, to which transfers are appended."""
    names = [op.name for op in ops]
    for name in ("Steps", "XLA Modules"):
        if name in lines:
            trace.device_steps += marked_steps(lines[name], names, numbered=name == "Steps")
            trace.dropped["mark of a step or of a module's run"] += len(lines[name])
    nothing = np.empty(0, np.int64)
    core, marks = (
        lines.get(name, LineEvents(name, 0, nothing, nothing, nothing)) for name in (_CORE, _MARKS)
    )
    asynchronous = lines.get(_BESIDE, LineEvents(_BESIDE, core.track + 1, nothing, nothing, nothing))
    role = np.array([op.role for op in ops], np.str_)[core.code]
    container = (role == "container") & core.holds_others()
    no_work = (role == "issue") | (role == "wait")
    waits = np.isin(np.array(names)[marks.code], _WAITS)
    lines_by_kind = {
        "kernel": [core.take_events(~container & ~no_work)],
        "copy": [],
        "sync": [core.take_events(no_work), marks.take_events(waits)],
        "annotation": [core.take_events(container), marks.take_events(~waits)],
    }
    programs = (
        program_names(names[code] for code in lines["XLA Modules"].code) if "XLA Modules" in lines else {}
    )
    for moving in transfer_lines(core, asynchronous, ops):
        lines_by_kind[ops[moving.code[0]].row_kind].append(moving)
    names = [op.name for op in ops]
    for kind, parts in lines_by_kind.items():
        of_work = kind in ("kernel", "copy")
        result = kind_rows(
            kind,
            "device",
            parts,
            names,
            device=device,
            columns=_op_columns(kind, ops, programs) if of_work else None,
            categories=[op.category for op in ops] if kind == "kernel" else (),
        )
        if result is None:
            continue
        if kind == "kernel":
            for code, op in enumerate(ops):
                if op.payload is not None:
                    for row in np.flatnonzero(result[1] == code).tolist():
                        trace.stated_payloads.add_payload(op.payload, row=row)
        yield result[0]


def program_names(runs: Iterable[str]) -> dict[int, str]:
    """Names of programs by id, from runs of modules such as `jit_f(12190760917235803885)`."""
    return {int(run[2]): run[1] for name in set(runs) if (run := _RUN.fullmatch(name))}


def transfer_lines(core: LineEvents, asynchronous: LineEvents, ops: list[TpuOp]) -> list[LineEvents]:
    """Asynchronous transfers: pairs of issue and wait, and other rows of `Async XLA Ops`."""
    shown = set(asynchronous.code.tolist())
    issues, waits = defaultdict[_Issue, list[int]](list), defaultdict[_Issue, list[int]](list)
    for i, op in enumerate(ops):
        if op.role == "issue" or i in shown:
            issues[op.program, op.name].append(i)
        if op.role == "wait":
            waits[op.program, op.waits_for].append(i)
    transfers = []
    for key, codes in issues.items():
        done = waits[key]
        ops.append(transfer_op(ops[codes[0]], ops[done[0]] if done else None))
        issue, wait = _issue_wait_pairs(core, codes, done)
        unpaired = asynchronous.take_events(np.isin(asynchronous.code, codes))
        unpaired = unpaired.take_events(~np.isin(unpaired.shown_ns, core.shown_ns[issue]))
        begins = np.concatenate([core.start_ns[issue], unpaired.start_ns])
        awaited = np.concatenate([core.dur_ns[issue] + core.dur_ns[wait], np.zeros(len(unpaired), np.int64)])
        issued = core.take_events(np.isin(core.code, codes))
        _, on_core, beside = np.intersect1d(issued.shown_ns, unpaired.shown_ns, return_indices=True)
        awaited[len(issue) + beside] = issued.dur_ns[on_core]
        ends = np.concatenate([(core.start_ns + core.dur_ns)[wait], unpaired.start_ns + unpaired.dur_ns])
        if len(begins):
            code = np.full(len(begins), len(ops) - 1)
            transfers.append(
                LineEvents(_BESIDE, asynchronous.track, code, begins, ends - begins, awaited_ns=awaited)
            )
    return transfers


def _issue_wait_pairs(core: LineEvents, issues: list[int], waits: list[int]) -> tuple[Int64, Int64]:
    """Indices of each issue and its wait: the first one after it and before the next issue."""
    issue = np.flatnonzero(np.isin(core.code, issues))
    wait = np.flatnonzero(np.isin(core.code, waits))
    at, first = np.unique(np.searchsorted(issue, wait) - 1, return_index=True)
    has_issue = at >= 0
    return issue[at[has_issue]], wait[first[has_issue]]


class OpTable:
    """The ops of a plane, each decoded once."""

    def __init__(self, message: Any, path: Path, member: DeviceMember) -> None:
        self.path, self.member = path, member
        self.names = proto.stat_names(message)
        self.metadata = proto.event_metadata(message)
        self.codes: dict[int, int] = {}
        self.ops: list[TpuOp] = []
        self.clock: DeviceClock | None = None
        """Set if ops state the device's own time."""

    def line_events(self, line: Any, trace: Trace, epoch_ns: int) -> LineEvents:
        """A line's events; aggregates without a time are counted as dropped."""
        events = [event for event in line.events if event.WhichOneof("value") != "num_occurrences"]
        if len(events) < len(line.events):
            trace.dropped["aggregate without a time"] += len(line.events) - len(events)
        shown, dur = proto.event_times(line, events, self.path, epoch_ns)
        start = shown
        if line.name == _CORE and events:
            start, dur = self._own_times(events, shown, dur)
        code = np.fromiter((self.op_code(event.metadata_id) for event in events), np.int64, len(events))
        return LineEvents(line.name or line.display_name, line.id, code, start, dur, shown)

    def _own_times(self, events: list[Any], start: Int64, dur: Int64) -> tuple[Int64, Int64]:
        """The ops' device times, if all state them."""
        keys_by_name = {name: key for key, name in self.names.items()}
        keys = keys_by_name.get("device_offset_ps"), keys_by_name.get("device_duration_ps")
        times = np.array(
            [
                [next((_time_value(s) for s in e.stats if s.metadata_id == key), -1) for key in keys]
                for e in events
            ],
            np.int64,
        )
        device_start, device_duration = times.T
        if None in keys or (times < 0).any():
            return start, dur
        shown = np.fromiter((event.offset_ps for event in events), np.int64, len(events))
        base = start[0] - shown[0] // 1000
        begin = base + on_host(device_start, shown, device_start) // 1000
        end = base + on_host(device_start, shown, device_start + device_duration) // 1000
        self.clock = DeviceClock(start, start + dur, begin, end)
        return begin, end - begin

    def op_code(self, metadata_id: int) -> int:
        """Index of the op with this metadata id."""
        code = self.codes.get(metadata_id)
        if code is None:
            metadata = self.metadata.get(metadata_id)
            code = self.codes[metadata_id] = len(self.ops)
            if metadata is None:
                self.ops.append(TpuOp(f"unnamed {metadata_id}", "work"))
            else:
                stats = proto.decode_stats(self.names, metadata.stats)
                where = f"{self.path}: metadata of an op"
                self.ops.append(parse_op(metadata.name, metadata.display_name, stats, self.member, where))
        return code


def _time_value(stat: Any) -> int:
    """A stat's value as a time in ps; −1 if it cannot be one."""
    value: int = stat.uint64_value or stat.int64_value
    return value if value < 1 << 61 else -1


def _op_columns(kind: str, ops: list[TpuOp], programs: Mapping[int, str]) -> dict[str, pa.Array]:
    named = [None if op.program is None else programs.get(op.program % (1 << 64)) for op in ops]
    common = {
        "program": pa.array(named, pa.string()).dictionary_encode(),
        "hbm_bytes": pa.array([op.hbm_bytes for op in ops], pa.int64()),
        **origins.origin_columns([op.origin for op in ops]),
    }
    if kind == "kernel":
        return {"flops": pa.array([op.flops for op in ops], pa.float64()), **common}
    return {
        "bytes": pa.array([op.bytes for op in ops], pa.int64()),
        "copy_direction": pa.array([op.copy_direction for op in ops], pa.string()),
        **common,
    }


def _positive_scaled(value: object, unit: float) -> float | None:
    return value * unit if isinstance(value, int | float) and 0 < value < 1e15 else None
