# SPDX-License-Identifier: Apache-2.0
"""Rows of one process from rocprofv3's tables, or from rocprof's table of kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cclbench.formats import Names, Rows, Trace, several_processes
from cclbench.formats.csv_tables import heading_of, read_csv, whole_numbers
from cclbench.formats.recognition import head_of
from cclbench.formats.rocprof_csv.agents import Agents, read_agents
from cclbench.formats.rocprofv3.reading import BOOT_TIME, COPY_KINDS, MARKS, call_kind
from cclbench.formats.trace import LATEST_NS, grid_columns, impossible_value, plausible_amount
from cclbench.ground.errors import InputError
from cclbench.ground.intervals import Int64
from cclbench.record.facts import TraceFacts

AGAIN: Final = "write it again: rocprofv3 --runtime-trace --output-format csv"
_ALONE: Final = "no table of copies or calls stands beside the kernels: they have no launches"
_TIMES: Final = ("Start_Timestamp", "End_Timestamp")
_AXES: Final = ("X", "Y", "Z")
_SIZES: Final = tuple(f"{what}_Size_{axis}" for what in ("Grid", "Workgroup") for axis in _AXES)
_MOST_PROCESSES: Final = 4096
Decoded = tuple[list[str], npt.NDArray[np.int64]]
"""The different texts of a column, and which each row has."""


def process_members(path: Path) -> list[str]:
    """The process ids of rocprof's table; one unnamed process of a table of rocprofv3."""
    if "pid" not in heading_of(head_of(path)):
        return [""]
    pids: dict[str, None] = {}
    for pid in read_csv(path, ("pid",), ("pid",), lambda batch, _: batch["pid"].unique(), hint=AGAIN):
        pids[str(pid)] = None
        if len(pids) > _MOST_PROCESSES:
            raise InputError(f"has more than {_MOST_PROCESSES:,} processes", where=str(path), hint=AGAIN)
    return list(pids) if len(pids) > 1 else [""]


def read_process(path: Path, member: str, beside: Sequence[Path]) -> Trace:
    """One process's rows; `beside` are the other tables of a process of rocprofv3."""
    trace = Trace(batches=iter(()), device_rows_in_order=False)
    trace.facts = TraceFacts(producer="rocprof", vendor="amd")
    trace.notes.append(BOOT_TIME)
    tables = {file.name.removeprefix(path.name.removesuffix("kernel_trace.csv")): file for file in beside}
    agents = Agents()
    if "agent_info.csv" in tables:
        agents = read_agents(tables.pop("agent_info.csv"), hint=AGAIN)
    rows = _ProcessTables(path, member, tables, agents, trace)
    trace.batches = rows.all_rows()
    if not tables:
        trace.notes.append(_ALONE)
    return trace


@dataclass(slots=True)
class _ProcessTables:
    path: Path
    member: str
    tables: Mapping[str, Path]
    agents: Agents
    trace: Trace
    names: dict[str, Names] = field(default_factory=dict)
    processes: set[str] = field(default_factory=set)
    devices: set[int] = field(default_factory=set)
    """GPUs that ran a kernel."""

    def all_rows(self) -> Iterator[Rows]:
        """Device work, then calls of the host."""
        if "KernelName" in heading_of(head_of(self.path)):
            yield from self._read(self.path, _ROCPROF_COLUMNS, _ROCPROF_COLUMNS[:5], self._rocprof_kernels)
        else:
            columns = ("Agent_Id", "Queue_Id", "Stream_Id", "Kernel_Name", "Correlation_Id", *_SIZES, *_TIMES)
            needed = ("Agent_Id", "Queue_Id", "Kernel_Name", "Correlation_Id", *_SIZES, *_TIMES)
            yield from self._read(self.path, columns, needed, self._kernels)
        for ending, file in self.tables.items():
            if ending == "memory_copy_trace.csv":
                columns = ("Direction", "Stream_Id", "Source_Agent_Id", "Destination_Agent_Id")
                needed = (*columns[:1], *columns[2:], "Correlation_Id", *_TIMES)
                yield from self._read(file, (*columns, *needed), needed, self._copies)
            elif ending in ("hip_api_trace.csv", "hsa_api_trace.csv", "rccl_api_trace.csv"):
                yield from self._read(file, _CALL_COLUMNS, _CALL_COLUMNS, self._calls)
            elif ending == "marker_api_trace.csv":
                yield from self._read(file, _CALL_COLUMNS, _CALL_COLUMNS, self._annotations)
            else:
                unread = sum(read_csv(file, (), (), lambda batch, _: [len(batch)], hint=AGAIN))
                records = ending.removesuffix(".csv").removesuffix("_trace")
                self.trace.dropped[f"{records} records"] += unread
        self.trace.dropped = +self.trace.dropped
        self._add_facts()

    def _read(
        self,
        path: Path,
        columns: Sequence[str],
        needed: Sequence[str],
        rows_of: Callable[[pa.RecordBatch], Iterator[Rows]],
    ) -> Iterator[Rows]:
        return read_csv(
            path, columns, needed, lambda batch, _: rows_of(batch) if len(batch) else (), hint=AGAIN
        )

    def _add_facts(self) -> None:
        if len(self.processes) > 1:
            raise several_processes(self.path, self.processes)
        pid = next(iter(self.processes), "")
        used = [gpu for index, gpu in enumerate(self.agents.gpus) if index in self.devices]
        gpus = used or list(self.agents.gpus)
        named, units = {gpu.name for gpu in gpus}, {gpu.compute_units for gpu in gpus}
        self.trace.facts = TraceFacts(
            producer="rocprof",
            vendor="amd",
            process_id=int(pid) if pid.isdecimal() and len(pid) < 10 else None,
            device_name=named.pop() if len(named) == 1 else None,
            sm_count=plausible_amount(units.pop()) if len(units) == 1 else None,
            device_count=len(gpus) or len(self.devices) or None,
        )

    def _kernels(self, batch: pa.RecordBatch) -> Iterator[Rows]:
        sizes = np.stack([whole_numbers(batch[name]) for name in _SIZES], axis=1)
        stream = batch["Stream_Id"] if "Stream_Id" in batch.schema.names else batch["Queue_Id"]
        device = self._devices(batch["Agent_Id"])
        self.devices |= set(device.unique().drop_null().to_pylist())
        yield self._rows(
            "kernel",
            "device",
            _decode(batch["Kernel_Name"]),
            _times(batch, *_TIMES),
            whole_numbers(stream),
            device=device,
            correlation=_correlation(batch),
            # Grids are in work items.
            **grid_columns(-(-sizes[:, :3] // np.maximum(sizes[:, 3:], 1)), str(self.path)),
        )

    def _rocprof_kernels(self, batch: pa.RecordBatch) -> Iterator[Rows]:
        if "pid" in batch.schema.names:
            if self.member:
                batch = batch.filter(pc.equal(batch["pid"].fill_null("None"), self.member))
            if not len(batch):
                return
            self._add_processes(batch["pid"])
        names, name = _decode(batch["KernelName"])
        index = whole_numbers(batch["gpu-id"])
        device = pa.array(index, mask=(index < 0) | (index > _MOST_PROCESSES))
        self.devices |= set(device.unique().drop_null().to_pylist())
        blocks: dict[str, Any] = {}
        if {"grd", "wgr"} <= {*batch.schema.names}:
            items, group = whole_numbers(batch["grd"]), whole_numbers(batch["wgr"])
            blocks = {"blocks": pa.array(-(-items // np.maximum(group, 1)), mask=(items < 1) | (group < 1))}
        plain = [text.removesuffix(".kd").removesuffix(" [clone .kd]") for text in names]
        streams = whole_numbers(batch["queue-id"])
        yield self._rows(
            "kernel",
            "device",
            (plain, name),
            _times(batch, "BeginNs", "EndNs"),
            streams,
            device=device,
            **blocks,
        )

    def _copies(self, batch: pa.RecordBatch) -> Iterator[Rows]:
        directions, direction = _decode(batch["Direction"])
        copy_kinds = [
            COPY_KINDS.get(text.removeprefix("MEMORY_COPY_"), ("Memcpy", None)) for text in directions
        ]
        source, target = (self._devices(batch[f"{end}_Agent_Id"]) for end in ("Source", "Destination"))
        ways = pa.array([way for _, way in copy_kinds], pa.string()).take(pa.array(direction))
        # Only an end that the direction calls a device is one, since numbers may be unclear.
        device = pc.case_when(
            pc.make_struct(pc.equal(ways, "h2d"), pc.equal(ways, "d2h"), pc.equal(ways, "d2d")),
            target,
            source,
            pc.coalesce(target, source),
        )
        peer = pc.fill_null(pc.and_(pc.equal(ways, "d2d"), pc.not_equal(source, target)), False)
        stream = (
            batch["Stream_Id"] if "Stream_Id" in batch.schema.names else pa.nulls(len(batch), pa.string())
        )
        words = [*(name for name, _ in copy_kinds), "Memcpy PtoP"]
        yield self._rows(
            "copy",
            "device",
            (words, np.where(np.asarray(peer), len(copy_kinds), direction)),
            _times(batch, *_TIMES),
            whole_numbers(stream),
            device=device,
            correlation=_correlation(batch),
            copy_direction=pc.if_else(peer, "p2p", ways),
        )

    def _calls(self, batch: pa.RecordBatch) -> Iterator[Rows]:
        self._add_processes(batch["Process_Id"])
        names, name = _decode(batch["Function"])
        kinds = [call_kind(text) for text in names]
        for kind in dict.fromkeys(kinds):
            chosen = np.array([other == kind for other in kinds], np.bool_)[name]
            yield self._host_rows(kind, batch.filter(pa.array(chosen)), (names, name[chosen]))

    def _annotations(self, batch: pa.RecordBatch) -> Iterator[Rows]:
        self._add_processes(batch["Process_Id"])
        names, name = _decode(batch["Function"])
        # A call with a message has that as its function; those that end or query a range have none.
        is_range = [not text.startswith("roctx") or text in MARKS for text in names]
        chosen = np.array(is_range, np.bool_)[name]
        if chosen.any():
            yield self._host_rows("annotation", batch.filter(pa.array(chosen)), (names, name[chosen]))

    def _host_rows(self, kind: str, batch: pa.RecordBatch, named: Decoded) -> Rows:
        correlation = None if kind == "annotation" else _correlation(batch)
        times, threads = _times(batch, *_TIMES), whole_numbers(batch["Thread_Id"])
        return self._rows(kind, "host", named, times, threads, correlation=correlation)

    def _add_processes(self, pids: pa.Array) -> None:
        self.processes |= {str(pid) for pid in pids.unique().to_pylist()}

    def _devices(self, agents: pa.Array) -> pa.Array:
        texts, text = _decode(agents)
        return pa.array([self.agents.gpu_index(each) for each in texts], pa.int64()).take(pa.array(text))

    def _rows(
        self,
        kind: str,
        side: str,
        named: Decoded,
        times: tuple[Int64, Int64],
        track: Int64,
        **columns: Any,
    ) -> Rows:
        table, (words, word), (start, end) = self.names.setdefault(kind, Names()), named, times
        wrong = (start <= 0) | (end < start) | (end > LATEST_NS)
        if wrong.any():
            i = int(np.argmax(wrong))
            what = f"time: {words[word[i]][:60]!r} from {start[i]} to {end[i]} ns"
            raise impossible_value(what, self.path, AGAIN)
        return Rows(
            kind=kind,
            side=side,
            names=table,
            codes=np.array([table[name] for name in words], np.int32)[word],
            start_ns=start,
            dur_ns=end - start,
            track=track,
            **columns,
        )


_CALL_COLUMNS: Final = ("Function", "Process_Id", "Thread_Id", "Correlation_Id", *_TIMES)
_ROCPROF_COLUMNS: Final = ("KernelName", "gpu-id", "queue-id", "BeginNs", "EndNs", "pid", "grd", "wgr")


def _decode(texts: pa.Array) -> Decoded:
    encoded = texts.fill_null("").dictionary_encode()
    return encoded.dictionary.to_pylist(), np.asarray(encoded.indices, np.int64)


def _times(batch: pa.RecordBatch, start: str, end: str) -> tuple[Int64, Int64]:
    return whole_numbers(batch[start]), whole_numbers(batch[end])


def _correlation(batch: pa.RecordBatch) -> pa.Array:
    """The number of the call that caused a row; null where there is none."""
    numbers = whole_numbers(batch["Correlation_Id"])
    return pa.array(numbers, mask=numbers <= 0)
