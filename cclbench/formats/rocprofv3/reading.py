# SPDX-License-Identifier: Apache-2.0
"""Rows of one process from rocprofv3's JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np
import pyarrow as pa

from cclbench.formats import Names, Rows, Trace
from cclbench.formats.kineto.kinds import runtime_kind
from cclbench.formats.rocprofv3.records import (
    Agent,
    ApiRecord,
    CopyRecord,
    DispatchRecord,
    Process,
    Record,
    read_process_ids,
    read_processes,
)
from cclbench.formats.trace import LATEST_NS, grid_columns, impossible_value, plausible_amount
from cclbench.ground.errors import InputError
from cclbench.record.facts import TraceFacts

T = TypeVar("T")

BATCH_ROWS: Final = 1 << 16
COPY_KINDS: Final = {
    "HOST_TO_HOST": ("Memcpy HtoH", None),
    "HOST_TO_DEVICE": ("Memcpy HtoD", "h2d"),
    "DEVICE_TO_HOST": ("Memcpy DtoH", "d2h"),
    "DEVICE_TO_DEVICE": ("Memcpy DtoD", "d2d"),
}
"""Name and direction of a row by the end of a copy's kind."""
MARKS: Final = (
    "roctxMarkA",
    "roctxThreadRangeA",
    "roctxProcessRangeA",
    "roctxRangePushA",
    "roctxRangeStartA",
)
"""roctx calls whose message names a range; those that end or query one name none."""
BOOT_TIME: Final = "times are since the machine booted: the file does not state the date"


def process_members(path: Path) -> list[str]:
    """A name for each process: its id, where those differ."""
    pids = read_process_ids(path)
    if not pids:
        raise InputError("has no process", where=str(path), hint="was rocprofv3 given a command?")
    return member_names(pids)


def member_names(pids: Sequence[int]) -> list[str]:
    """Process ids as texts, numbered where some are equal."""
    unique = len(set(pids)) == len(pids)
    return [str(pid) if unique else f"{pid} ({number})" for number, pid in enumerate(pids)]


def call_kind(name: str) -> str:
    """Kind of the row of a HIP, HSA or RCCL call: launch, sync or other."""
    if name.startswith("nccl"):
        return "other"
    return "sync" if name.startswith("hsa_signal_wait") else runtime_kind(name)


def read_process(path: Path, member: str) -> Trace:
    """All rows of a process."""
    processes = read_processes(path)
    members = member_names([process.metadata.pid for process in processes])
    if member not in members:
        raise InputError(f"has no process {member!r}", where=str(path))
    place = members.index(member)
    rows = _ProcessRows(path, processes[place])
    trace = Trace(batches=rows.all_rows(), device_rows_in_order=False)
    trace.facts = rows.facts(place)
    trace.dropped = Counter(rows.process.buffer_records.unread())
    trace.notes.append(BOOT_TIME)
    return trace


class _ProcessRows:
    def __init__(self, path: Path, process: Process) -> None:
        self.path, self.process = path, process
        self.gpus = process.gpus()
        self.names: dict[str, Names] = {}

    def facts(self, place: int) -> TraceFacts:
        """Facts of the process and of the GPUs that it used."""
        used = {
            record.dispatch_info.agent_id.handle for record in self.process.buffer_records.kernel_dispatch
        }
        gpus = [gpu for handle, gpu in self.gpus.items() if handle in used] or list(self.gpus.values())
        memory = _common(gpus, lambda gpu: sum(bank.size_in_bytes for bank in gpu.mem_banks))
        return TraceFacts(
            process_id=self.process.metadata.pid,
            producer="rocprofv3",
            vendor="amd",
            device_name=_common(gpus, lambda gpu: (gpu.product_name or gpu.name)[:200] or None),
            device_memory_bytes=plausible_amount(memory),
            sm_count=plausible_amount(_common(gpus, lambda gpu: gpu.cu_count)),
            device_count=len(gpus) or None,
            local_rank=place,
        )

    def all_rows(self) -> Iterator[Rows]:
        """Device work, then calls of the host."""
        records = self.process.buffer_records
        yield from _in_batches(records.kernel_dispatch, self._kernels)
        yield from _in_batches(records.memory_copy, self._copies)
        for calls in (records.hip_api, records.hsa_api, records.rccl_api):
            yield from self._calls(calls)
        yield from _in_batches(self._marks(), self._annotations)

    def _kernels(self, records: Sequence[DispatchRecord]) -> Rows:
        infos = [record.dispatch_info for record in records]
        names = [self._symbols.get(info.kernel_id) or f"kernel {info.kernel_id}" for info in infos]
        items, group = (
            np.array([(size.x, size.y, size.z) for size in sizes], np.float64).reshape(-1, 3)
            for sizes in ([info.grid_size for info in infos], [info.workgroup_size for info in infos])
        )
        groups = np.ceil(items / np.maximum(group, 1)).astype(np.int64)
        return self._device_rows(
            "kernel",
            records,
            names,
            device=[self._device(info.agent_id.handle) for info in infos],
            stream=[
                (record.stream_id or info.queue_id).handle
                for record, info in zip(records, infos, strict=True)
            ],
            **grid_columns(groups, str(self.path)),
        )

    @cached_property
    def _symbols(self) -> dict[int, str]:
        """Names of kernels by id."""
        return {
            symbol.kernel_id: symbol.formatted_kernel_name or symbol.kernel_name
            for symbol in self.process.kernel_symbols
        }

    def _copies(self, records: Sequence[CopyRecord]) -> Rows:
        strings = self.process.strings
        kinds = [
            strings.operation_name(record.kind, record.operation).removeprefix("MEMORY_COPY_")
            for record in records
        ]
        copy_kinds = [COPY_KINDS.get(kind, ("Memcpy", None)) for kind in kinds]
        ends = [(record.dst_agent_id.handle, record.src_agent_id.handle) for record in records]
        peers = [a != b and a in self.gpus and b in self.gpus for a, b in ends]
        return self._device_rows(
            "copy",
            records,
            ["Memcpy PtoP" if peer else name for (name, _), peer in zip(copy_kinds, peers, strict=True)],
            device=[self._device(target if target in self.gpus else source) for target, source in ends],
            stream=[-1 if record.stream_id is None else record.stream_id.handle for record in records],
            bytes=pa.array([record.bytes for record in records], pa.int64()),
            copy_direction=["p2p" if peer else way for (_, way), peer in zip(copy_kinds, peers, strict=True)],
        )

    def _calls(self, calls: Sequence[ApiRecord]) -> Iterator[Rows]:
        """Rows of calls by what they do: launches, waits for a device, all others."""
        by_kind: dict[str, list[tuple[ApiRecord, str]]] = {}
        for call in calls:
            name = self.process.strings.operation_name(call.kind, call.operation)
            by_kind.setdefault(call_kind(name), []).append((call, name))
        for kind, named in by_kind.items():
            yield from _in_batches(
                named,
                lambda batch, kind=kind: self._host_rows(  # type: ignore[misc]
                    kind,
                    [call for call, _ in batch],
                    [name for _, name in batch],
                    correlation=[call.correlation_id.internal for call, _ in batch],
                ),
            )

    def _marks(self) -> list[tuple[ApiRecord, str]]:
        strings = self.process.strings
        texts = {message.key: message.value for message in strings.marker_api}
        return [
            (call, texts.get(call.correlation_id.internal) or name)
            for call in self.process.buffer_records.marker_api
            if (name := strings.operation_name(call.kind, call.operation)) in MARKS
        ]

    def _annotations(self, batch: Sequence[tuple[ApiRecord, str]]) -> Rows:
        return self._host_rows("annotation", [call for call, _ in batch], [name for _, name in batch])

    def _device(self, handle: int) -> int | None:
        gpu = self.gpus.get(handle)
        return None if gpu is None else gpu.logical_node_type_id

    def _device_rows(
        self, kind: str, records: Sequence[Record], names: list[str], stream: list[int], **columns: Any
    ) -> Rows:
        correlation: list[int | None] = [record.correlation_id.internal or None for record in records]
        return self._rows(kind, "device", records, names, track=stream, correlation=correlation, **columns)

    def _host_rows(self, kind: str, calls: Sequence[ApiRecord], names: list[str], **columns: Any) -> Rows:
        return self._rows(kind, "host", calls, names, track=[call.thread_id for call in calls], **columns)

    def _rows(
        self,
        kind: str,
        side: str,
        records: Sequence[Record],
        names: list[str],
        track: list[int],
        **columns: Any,
    ) -> Rows:
        table = self.names.setdefault(kind, Names())
        try:
            start, end = (
                np.array([getattr(record, f"{word}_timestamp") for record in records], np.int64)
                for word in ("start", "end")
            )
            tracks = np.array(track, np.int64)
        except OverflowError:
            raise impossible_value("number beyond 64 bits", self.path) from None
        wrong = (start <= 0) | (end < start) | (end > LATEST_NS)
        if wrong.any():
            i = int(np.argmax(wrong))
            raise impossible_value(f"time: {names[i][:60]!r} from {start[i]} to {end[i]} ns", self.path)
        return Rows(
            kind=kind,
            side=side,
            names=table,
            codes=np.array([table[name] for name in names], np.int32),
            start_ns=start,
            dur_ns=end - start,
            track=tracks,
            **columns,
        )


def _in_batches(records: Sequence[T], rows_of: Callable[[Sequence[T]], Rows]) -> Iterator[Rows]:
    for at in range(0, len(records), BATCH_ROWS):
        yield rows_of(records[at : at + BATCH_ROWS])


def _common(gpus: Sequence[Agent], value_of: Callable[[Agent], T]) -> T | None:
    """The value that all GPUs share; None if they differ."""
    values = {value_of(gpu) for gpu in gpus}
    return values.pop() if len(values) == 1 else None
