# SPDX-License-Identifier: Apache-2.0
"""TPU planes: ops of the core, what runs beside it, waiting, and the marks of modules and steps.

`XLA Ops` is the core's own time.  An op that issues an asynchronous transfer (`-start`) and the one that
awaits it (`-done`) are no work of the core: the transfer is, from the begin of the first to the end of
the second.  `Async XLA Ops` shows just that, for some devices of a file only, so for the others the
pairs are put together here.  `barrier-cores` and `dependency-wait` of `XLA TraceMe` are waiting.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from cclbench.readers import Rows, Trace
from cclbench.readers.xplane import proto
from cclbench.readers.xplane.collectives import Member
from cclbench.readers.xplane.ops import Op, op, transfer
from cclbench.readers.xplane.rows import DERIVED, Line, rows, steps

_WAITS: Final = ("barrier-cores", "dependency-wait")
_TERA, _GIGA = 1e12, 1e9


def facts(stats: proto.Stats) -> dict[str, Any]:
    """What the plane says of the device, as fields of `TraceFacts`: peaks are its own figures."""
    name = stats.get("device_type_string")
    return {
        "vendor": "google",
        "device_name": name if isinstance(name, str) else None,
        "peak_flops_per_s": _positive(stats.get("peak_teraflops_per_second"), _TERA),
        "hbm_bytes_per_s": _positive(stats.get("peak_hbm_bw_gigabytes_per_second"), _GIGA),
    }


def global_id(stats: proto.Stats, where: str) -> int | None:
    """Global id of the device: of the chip where its cores are one device, else of the core."""
    details = stats.get("core_details")
    if not isinstance(details, bytes):
        return None
    # CoreDetails: 4 local chip, 5 global chip, 6 global core, 7 whether a SparseCore; absent is 0.
    found = {
        number: next(proto.varints(details, begin, end, where), 0)
        for number, _, begin, end in proto.fields(details, 0, len(details), where)
    }
    number = found.get(5 if stats.get("has_megacore") else 6, 0)
    return number if number < 1 << 31 else None


def batches(
    trace: Trace, message: Any, path: Path, device: int, member: Member, epoch_ns: int
) -> Iterator[Rows]:
    """All rows of a TPU's plane."""
    table = Table(message, path, member)
    lines: dict[str, Line] = {}
    for line in message.lines:
        name = line.name or line.display_name
        if name in ("XLA Ops", "Async XLA Ops", "XLA TraceMe", "XLA Modules", "Steps"):
            lines[name] = table.line(line, trace, epoch_ns)
        elif line.events:
            reason = "row derived from others" if name in DERIVED else "row of a line of unknown meaning"
            trace.dropped[reason] = trace.dropped.get(reason, 0) + len(line.events)
    yield from device_rows(trace, lines, table.ops, device)


def device_rows(trace: Trace, lines: Mapping[str, Line], ops: list[Op], device: int) -> Iterator[Rows]:
    """Rows of a device's lines by name; `ops` are what their codes mean, and get transfers appended."""
    names = [op.name for op in ops]
    for name in ("Steps", "XLA Modules"):
        if name in lines:
            trace.device_steps += steps(lines[name], names, numbered=name == "Steps")
            reason = "mark of a step or of a module's run"
            trace.dropped[reason] = trace.dropped.get(reason, 0) + len(lines[name])
    core, marks = lines.get("XLA Ops"), lines.get("XLA TraceMe")
    placed: dict[str, list[Line]] = {"kernel": [], "copy": [], "sync": [], "annotation": []}
    if core is not None:
        role = np.array([op.role for op in ops])[core.code]
        container = (role == "container") & core.holds_others()
        beside = (role == "issue") | (role == "wait")
        placed["annotation"].append(core.where(container))
        placed["sync"].append(core.where(beside))
        placed["kernel"].append(core.where(~container & ~beside))
    for moving in transfers(core, lines.get("Async XLA Ops"), ops):
        is_copy = np.array([op.kind == "copy" for op in ops])[moving.code]
        placed["copy"].append(moving.where(is_copy))
        placed["kernel"].append(moving.where(~is_copy))
    if marks is not None:
        waits = np.isin(np.array(names)[marks.code], _WAITS)
        placed["sync"].append(marks.where(waits))
        placed["annotation"].append(marks.where(~waits))
    names = [op.name for op in ops]
    for kind, parts in placed.items():
        of_work = kind in ("kernel", "copy")
        made = rows(
            kind,
            "device",
            parts,
            names,
            device=device,
            columns=_columns(kind, ops) if of_work else None,
            categories=[op.category for op in ops] if kind == "kernel" else (),
        )
        if made is None:
            continue
        if kind == "kernel":
            for code, op in enumerate(ops):
                if op.payload is not None:
                    for row in np.flatnonzero(made[1] == code).tolist():
                        trace.told.add(op.payload, row=row)
        yield made[0]


def transfers(core: Line | None, beside: Line | None, ops: list[Op]) -> list[Line]:
    """What runs beside the core: rows of `Async XLA Ops`, and pairs of issue and wait that it lacks."""
    awaited = {(op.program, op.waits_for): i for i, op in enumerate(ops) if op.role == "wait"}
    of: dict[int, int] = {}
    for i, issued in enumerate(list(ops)):
        if issued.role == "issue" or (beside is not None and issued.role == "work" and i in beside.code):
            done = awaited.get((issued.program, issued.name))
            of[i] = len(ops)
            ops.append(transfer(issued, None if done is None else ops[done]))
    moved = np.arange(len(ops))
    moved[list(of)] = list(of.values())
    found = []
    if beside is not None:
        found.append(Line(beside.name, beside.track, moved[beside.code], beside.start_ns, beside.dur_ns))
    if core is None:
        return found
    for i, code in of.items():
        done = awaited.get((ops[i].program, ops[i].name))
        if done is None:
            continue
        begins = core.start_ns[core.code == i]
        ends = (core.start_ns + core.dur_ns)[core.code == done]
        at = np.searchsorted(begins, ends, side="right") - 1
        at, first = np.unique(at, return_index=True)
        start, end = begins[at[at >= 0]], ends[first[at >= 0]]
        if beside is not None:
            same = [k for k in of if (ops[k].program, ops[k].name) == (ops[i].program, ops[i].name)]
            new = ~np.isin(start, beside.start_ns[np.isin(beside.code, same)])
            start, end = start[new], end[new]
        track = beside.track if beside is not None else core.track + 1
        found.append(Line("Async XLA Ops", track, np.full(len(start), code), start, end - start))
    return found


class Table:
    """The ops of a plane, decoded once each."""

    def __init__(self, message: Any, path: Path, member: Member) -> None:
        self.path, self.member = path, member
        self.names = proto.stat_names(message)
        self.metadata = proto.event_metadata(message)
        self.codes: dict[int, int] = {}
        self.ops: list[Op] = []

    def line(self, line: Any, trace: Trace, epoch_ns: int) -> Line:
        """A line's events; those that are aggregates without a time are counted."""
        events = [event for event in line.events if event.WhichOneof("value") != "num_occurrences"]
        if len(events) < len(line.events):
            reason = "aggregate without a time"
            trace.dropped[reason] = trace.dropped.get(reason, 0) + len(line.events) - len(events)
        start, dur = proto.times(line, events, self.path, epoch_ns)
        code = np.fromiter((self.code(event.metadata_id) for event in events), np.int64, len(events))
        return Line(line.name or line.display_name, line.id, code, start, dur)

    def code(self, metadata_id: int) -> int:
        """Index of the op that a metadata id means."""
        code = self.codes.get(metadata_id)
        if code is None:
            metadata = self.metadata.get(metadata_id)
            code = self.codes[metadata_id] = len(self.ops)
            if metadata is None:
                self.ops.append(Op(f"unnamed {metadata_id}", "work"))
            else:
                stats = proto.stats(self.names, metadata.stats)
                where = f"{self.path}: metadata of an op"
                self.ops.append(op(metadata.name, metadata.display_name, stats, self.member, where))
        return code


def _columns(kind: str, ops: list[Op]) -> dict[str, pa.Array]:
    hbm = {"hbm_bytes": pa.array([op.hbm_bytes for op in ops], pa.int64())}
    if kind == "kernel":
        return {"flops": pa.array([op.flops for op in ops], pa.float64()), **hbm}
    return {
        "bytes": pa.array([op.bytes for op in ops], pa.int64()),
        "copy_direction": pa.array([op.copy_direction for op in ops], pa.string()),
        **hbm,
    }


def _positive(value: object, unit: float) -> float | None:
    return value * unit if isinstance(value, int | float) and 0 < value < 1e15 else None
