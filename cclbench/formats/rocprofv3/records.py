# SPDX-License-Identifier: Apache-2.0
"""Records of rocprofv3's JSON, as far as they are read (rocprofiler-sdk, cxx/serialization.hpp)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from cclbench.formats.kineto.events import Int64
from cclbench.formats.texts import damaged_error, read_whole, reason_of

_MOST_BYTES: Final = 1 << 30
_HINT: Final = "write it again, with --output-format rocpd if it is large"
_GPU: Final = 2


class Handle(msgspec.Struct):
    """An opaque id."""

    handle: int


class Correlation(msgspec.Struct):
    """The number of the call that a record is of, or that caused it."""

    internal: Int64


class Size(msgspec.Struct):
    """Numbers of work items."""

    x: int
    y: int
    z: int


class DispatchInfo(msgspec.Struct):
    """What was dispatched, and to which queue; `grid_size` counts work items, not groups."""

    agent_id: Handle
    queue_id: Handle
    kernel_id: int
    workgroup_size: Size
    grid_size: Size


class Record(msgspec.Struct):
    """Any record: times in ns since the machine booted."""

    correlation_id: Correlation
    start_timestamp: int
    end_timestamp: int


class DispatchRecord(Record):
    """A kernel on a device."""

    dispatch_info: DispatchInfo
    stream_id: Handle | None = None


class CopyRecord(Record):
    """A copy by an engine; `operation` indexes the names of its kind."""

    kind: int
    operation: int
    dst_agent_id: Handle
    src_agent_id: Handle
    bytes: Int64 | None = None
    stream_id: Handle | None = None


class ApiRecord(Record):
    """A call of HIP, HSA or RCCL, or a roctx range."""

    kind: int
    operation: int
    thread_id: int


class Buffers(msgspec.Struct):
    """All records by domain; those that become no rows are only counted."""

    kernel_dispatch: list[DispatchRecord] = []
    memory_copy: list[CopyRecord] = []
    hip_api: list[ApiRecord] = []
    hsa_api: list[ApiRecord] = []
    rccl_api: list[ApiRecord] = []
    marker_api: list[ApiRecord] = []
    memory_allocation: list[msgspec.Raw] = []
    scratch_memory: list[msgspec.Raw] = []
    rocdecode_api: list[msgspec.Raw] = []
    rocjpeg_api: list[msgspec.Raw] = []
    pc_sample_host_trap: list[msgspec.Raw] = []
    pc_sample_stochastic: list[msgspec.Raw] = []

    def unread(self) -> dict[str, int]:
        """Number of records that become no rows, by domain."""
        domains = (
            *("memory_allocation", "scratch_memory", "rocdecode_api", "rocjpeg_api"),
            *("pc_sample_host_trap", "pc_sample_stochastic"),
        )
        return {f"{name} records": len(getattr(self, name)) for name in domains}


class MemoryBank(msgspec.Struct):
    """A memory of a device."""

    size_in_bytes: int = 0


class Agent(msgspec.Struct):
    """A CPU or GPU; `logical_node_type_id` counts those of its type that the process could see."""

    id: Handle
    type: int
    name: str = ""
    product_name: str = ""
    logical_node_type_id: int | None = None
    cu_count: int | None = None
    mem_banks: list[MemoryBank] = []

    @property
    def is_gpu(self) -> bool:
        """Whether it is a GPU."""
        return self.type == _GPU


class KernelSymbol(msgspec.Struct):
    """A kernel's name."""

    kernel_id: int
    formatted_kernel_name: str = ""
    kernel_name: str = ""


class RecordKind(msgspec.Struct):
    """Names of a kind's operations."""

    kind: str
    operations: list[str]


class Message(msgspec.Struct):
    """The text of the roctx call with this correlation number."""

    key: int
    value: str


class Strings(msgspec.Struct):
    """Names that records refer to."""

    buffer_records: list[RecordKind] = []
    marker_api: list[Message] = []

    def operation_name(self, kind: int, operation: int) -> str:
        """Name of a record's operation; the numbers where they have none."""
        kinds = self.buffer_records
        if 0 <= kind < len(kinds) and 0 <= operation < len(kinds[kind].operations):
            return kinds[kind].operations[operation]
        return f"operation {operation} of kind {kind}"


class ProcessInfo(msgspec.Struct):
    """The process."""

    pid: int


class Process(msgspec.Struct):
    """All that the tool wrote of one process."""

    metadata: ProcessInfo
    agents: list[Agent]
    strings: Strings
    kernel_symbols: list[KernelSymbol]
    buffer_records: Buffers

    def gpus(self) -> dict[int, Agent]:
        """The GPUs by handle."""
        return {agent.id.handle: agent for agent in self.agents if agent.is_gpu}


class _ToolFile(msgspec.Struct, rename={"processes": "rocprofiler-sdk-tool"}):
    processes: list[Process]


class _Pids(msgspec.Struct):
    metadata: ProcessInfo


class _ListedPids(msgspec.Struct, rename={"processes": "rocprofiler-sdk-tool"}):
    processes: list[_Pids]


_Kind = TypeVar("_Kind", _ToolFile, _ListedPids)


def read_processes(path: Path) -> Sequence[Process]:
    """All processes of a file; `InputError` if it is damaged, or larger than 1 GiB."""
    return _decode(path, _ToolFile).processes


def read_process_ids(path: Path) -> list[int]:
    """The process ids, in the file's order."""
    return [each.metadata.pid for each in _decode(path, _ListedPids).processes]


def _decode(path: Path, kind: type[_Kind]) -> _Kind:
    text = read_whole(path, _MOST_BYTES, hint=_HINT)
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise damaged_error(path, reason_of(error), hint=_HINT) from None
