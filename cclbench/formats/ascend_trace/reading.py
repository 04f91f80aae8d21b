# SPDX-License-Identifier: Apache-2.0
"""Rows of Ascend's Chrome JSON.

Processes say what their rows are (msprof, analysis/csrc/application/timeline): tasks of the NPU under
`Ascend Hardware`, operations of HCCL and the tasks within them under `HCCL` or `Communication`, calls of
CANN under `CANN`; rows of the framework are under `Python` or `MindSpore`.  A task and the call that put it
there have the same `connection_id`.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np

from cclbench.formats import Names, Rows, Trace
from cclbench.formats.json_events import JsonEvents
from cclbench.formats.kineto.kinds import runtime_kind, track_number
from cclbench.formats.texts import exact_number
from cclbench.formats.timeline.chrome_rows import ChromeRow, row_nanoseconds
from cclbench.formats.trace import LATEST_NS, impossible_value
from cclbench.ground.errors import InputError
from cclbench.record.facts import TraceFacts

_AGAIN: Final = "write it again: torch_npu.profiler.analyse(FOLDER)"
_DEVICE, _HOST = "Ascend Hardware", "CANN"
_COLLECTIVES: Final = ("HCCL", "Communication")
_FRAMEWORKS: Final = ("Python", "MindSpore")
_COMPUTES: Final = ("AI_CORE", "AI_VECTOR_CORE", "AIV", "AIC", "MIX_AIC", "MIX_AIV", "AI_CPU")
_TYPE: Final = re.compile(r"[A-Z][A-Z_]{1,39}")
_PHASES: Final = {"C": "counter", "s": "flow event", "f": "flow event", "t": "flow event", "M": "label"}
_Kind = tuple[str, str]
"""Kind and side of a row."""


class _Args(msgspec.Struct, gc=False, rename={"task_type": "Task Type", "connection": "connection_id"}):
    name: Any = None
    task_type: Any = None
    connection: Any = None


class _Event(ChromeRow, gc=False):
    cat: str | None = None
    args: _Args | None = None


class _Label(msgspec.Struct, gc=False):
    ph: str
    name: str = ""
    pid: int | str | None = None
    args: _Args | None = None


_NO_ARGS: Final = _Args()
_DECODER: Final = msgspec.json.Decoder(list[_Event], float_hook=exact_number)
_LABELS: Final = msgspec.json.Decoder(list[_Label])


def read_trace(path: Path, allow_truncated: bool) -> Trace:
    """All rows; `InputError` if no process is an NPU's."""
    trace = Trace(batches=iter(()), device_rows_in_order=False)
    trace.facts = TraceFacts(producer="torch_npu", vendor="huawei")
    processes = _process_names(path, allow_truncated)
    if _DEVICE not in processes.values():
        raise InputError(f"has no process {_DEVICE!r}", where=str(path), hint=_AGAIN)
    trace.batches = _Reading(path, processes, trace).batches(allow_truncated)
    return trace


def _process_names(path: Path, allow_truncated: bool) -> dict[int | str | None, str]:
    """Names of processes by their ids: they may stand behind the rows."""
    return {
        event.pid: event.args.name
        for _, events in JsonEvents(path, _LABELS, allow_truncated=allow_truncated)
        for event in events
        if event.ph == "M" and event.name == "process_name"
        if event.args is not None and isinstance(event.args.name, str)
    }


class _Reading:
    def __init__(self, path: Path, processes: Mapping[int | str | None, str], trace: Trace) -> None:
        self.path, self.processes, self.trace = path, processes, trace
        self.names: dict[str, Names] = defaultdict(Names)
        self.dropped: Counter[str] = Counter()
        self.has_collectives = any(name in _COLLECTIVES for name in processes.values())

    def batches(self, allow_truncated: bool) -> Iterator[Rows]:
        """Rows of each chunk by kind; `trace` is complete after the last batch."""
        stream = JsonEvents(self.path, _DECODER, allow_truncated=allow_truncated)
        for _, events in stream:
            groups: dict[_Kind, list[_Event]] = defaultdict(list)
            for event in events:
                if event.ph != "X":
                    self.dropped[_PHASES.get(event.ph, f"phase {event.ph[:8]!r}")] += 1
                elif event.ts is None or event.dur is None:
                    self.dropped["row without a time or duration"] += 1
                elif (kind := self._kind_of(event)) is not None:
                    groups[kind].append(event)
            for (kind_name, side), group in groups.items():
                yield self._rows(kind_name, side, group, f"{self.path}: near byte {stream.position:,}")
        self.trace.dropped = self.dropped
        self.trace.cut = stream.cut

    def _kind_of(self, event: _Event) -> _Kind | None:
        """Kind and side of a row; None for one that is left out, which is counted."""
        process = self.processes.get(event.pid, "")
        if process == _DEVICE:
            return self._kind_of_task(event)
        if process in _COLLECTIVES:
            if event.name.startswith("hcom_"):
                return "kernel", "device"
            self.dropped["task within a collective"] += 1
            return None
        if process == _HOST:
            kind = runtime_kind(event.name)
            return "launch" if kind == "other" and "launch" in event.name.lower() else kind, "host"
        if process in _FRAMEWORKS or event.cat in ("cpu_op", "python_function", "user_annotation"):
            if event.name.startswith("ProfilerStep#") or event.cat == "user_annotation":
                return "annotation", "host"
            kinds = {"python_function": "python", "enqueue": "other", "dequeue": "other"}
            return kinds.get(event.cat or "", "op"), "host"
        self.dropped["row of another process"] += 1
        return None

    def _kind_of_task(self, event: _Event) -> _Kind | None:
        type_name = str((event.args or _NO_ARGS).task_type or "")
        if event.name.startswith("hcom_"):
            if not self.has_collectives:
                return "kernel", "device"
            self.dropped["collective listed twice"] += 1
            return None
        if type_name in _COMPUTES:
            return "kernel", "device"
        shown_type = type_name if _TYPE.fullmatch(type_name) else "unknown"
        self.dropped[f"task of type {shown_type}"] += 1
        return None

    def _rows(self, kind: str, side: str, events: list[_Event], where: str) -> Rows:
        start = row_nanoseconds([event.ts for event in events], where, _AGAIN)
        duration = row_nanoseconds([event.dur for event in events], where, _AGAIN)
        wrong = (start <= 0) | (duration < 0) | (start + duration > LATEST_NS)
        if wrong.any():
            i = int(np.argmax(wrong))
            what = f"time: {events[i].name[:60]!r} from {start[i]} ns, {duration[i]} ns long"
            raise impossible_value(what, where, _AGAIN)
        table = self.names[kind]
        connections = [(event.args or _NO_ARGS).connection for event in events]
        return Rows(
            kind=kind,
            side=side,
            names=table,
            codes=np.array([table[_plain_name(event.name)] for event in events], np.int32),
            start_ns=start,
            dur_ns=duration,
            track=np.array([track_number(str(event.tid)) for event in events], np.int64),
            correlation=[_link(connection) for connection in connections]
            if side == "device" or kind in ("launch", "sync", "other")
            else None,
        )


def _plain_name(name: str) -> str:
    """A row's name; of a collective without its numbers, so that like calls are one kernel."""
    return name.partition("__")[0] + "_" if name.startswith("hcom_") and "__" in name else name


def _link(connection: Any) -> int | None:
    if isinstance(connection, str) and connection.isdecimal() and len(connection) < 19:
        connection = int(connection)
    return connection if type(connection) is int and 0 <= connection < 1 << 63 else None
