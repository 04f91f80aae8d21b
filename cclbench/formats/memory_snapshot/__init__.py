# SPDX-License-Identifier: Apache-2.0
"""PyTorch memory snapshots, as pickles: the segments of the caching allocator, and its last events.

Layouts follow torch/csrc/cuda/memory_snapshot.cpp and torch/cuda/_memory_viz.py: a dictionary of segments
and, if a history was recorded, of the last events of each device; or the list of segments alone, as
`torch.cuda.memory_snapshot()` returns it.  Blocks without an address are contiguous (torch 2.0), and their
stacks may be in their `history`.

Sizes of `alloc` and `free_*` are the requested sizes; the allocator rounds them up.  The rounded sizes are
stated only for the blocks at the end.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeVar

import msgspec
import pyarrow as pa

from cclbench.formats import READERS, Evidence, EvidenceReader
from cclbench.formats.memory_snapshot.stacks import Stacks, published_file
from cclbench.formats.pickled import (
    BEGIN,
    MOST_FILE_BYTES,
    NotPlainError,
    load_plain,
    most_containers,
    rewrite_pickle,
)
from cclbench.formats.rewriting import Redactor
from cclbench.formats.texts import damaged_error, read_whole
from cclbench.formats.trace import LATEST_NS
from cclbench.ground.evidence_schema import (
    ALLOCATIONS,
    ALLOCATOR_ACTIONS,
    ALLOCATOR_ANNOTATIONS,
    MEMORY_BLOCKS,
)
from cclbench.ground.text import printable

_MOST_DEVICES: Final = 1 << 10
_MOST_ENTRIES: Final = 2_000_000
"""Most events, and most blocks; a recording is unlimited by default, 100,000 events are recommended."""
_MOST_BYTES: Final = 1 << 62
"""Most bytes of all entries together: sums fit 64 bits."""
_MOST_UNFOLDED: Final = 1 << 40
"""High, since stacks share their frames and each stack is read once."""
_RANK: Final = re.compile(r"rank[_-]?(\d{1,7})(?!\d)", re.ASCII | re.IGNORECASE)
_OPEN_ANNOTATION: Final = "annotations whose begin or end is not in the recording"
_LONGEST_ANNOTATION: Final = 200
_UNKNOWN_ACTION: Final = "events of an action that is not read"
_HINT: Final = "write it again with torch.cuda.memory._dump_snapshot; a snapshot is data alone"

Address = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
Size = Annotated[int, msgspec.Meta(ge=0, le=1 << 50)]
Stream = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
Microseconds = Annotated[int, msgspec.Meta(ge=0, le=LATEST_NS // 1000)]
Device = Annotated[int, msgspec.Meta(ge=0, lt=_MOST_DEVICES)]
Entry = TypeVar("Entry", bound=msgspec.Struct)


class _AllocatorEvent(msgspec.Struct):
    action: str
    size: Size
    addr: Address | None = None
    stream: Stream | None = None
    time_us: Microseconds | None = None
    device_free: Size | None = None
    frames: Any = None


class _History(msgspec.Struct):
    real_size: Size | None = None
    frames: Any = None


class _Block(msgspec.Struct):
    size: Size
    state: Literal["active_allocated", "active_pending_free", "active_awaiting_free", "inactive"]
    address: Address | None = None
    requested_size: Size | None = None
    frames: Any = None
    history: Any = ()


class _Segment(msgspec.Struct):
    address: Address
    total_size: Size
    device: Device = 0
    stream: Stream | None = None
    segment_type: Literal["large", "small"] | None = None
    segment_pool_id: tuple[Address, Address] = (0, 0)
    """Other than (0, 0): a private pool, such as a CUDA graph's, which serves its own requests alone."""
    blocks: list[Any] = []

    @property
    def pool(self) -> str | None:
        """`large` or `small`, with the id if it is private; None where not stated."""
        if self.segment_type is None or self.segment_pool_id == (0, 0):
            return self.segment_type
        return f"{self.segment_type} {self.segment_pool_id[0]}.{self.segment_pool_id[1]}"


class _Annotation(msgspec.Struct):
    stage: Literal["START", "END"]
    name: str
    time_us: Microseconds
    device: Device = 0


class _Snapshot(msgspec.Struct):
    segments: list[Any]
    device_traces: list[Any] = []
    allocator_settings: dict[str, Any] = {}
    external_annotations: list[Any] = []


class MemorySnapshot(EvidenceReader):
    """Reader of one process's snapshot."""

    name = "memory_snapshot"
    description = "PyTorch memory snapshots: the CUDA allocator's segments and its last events, with stacks"
    extensions: tuple[str, ...] = (".pickle", ".pkl")
    capture = (
        "`torch.cuda.memory._record_memory_history(max_entries=100000)`, then"
        " `torch.cuda.memory._dump_snapshot('rank0_memory_snapshot.pickle')`; pickles are read as data, never"
        " run"
    )
    versions = "with settings and annotations (torch 2.9 and later) seen; from torch 2.0 on as documented"
    tested = "real: a training step and an inference; documentation: older layouts, by PyTorch's source"

    withheld: Mapping[str, str] = {"filename": "folders ahead of a package's"}

    def sniff(self, head: bytes) -> float:
        """Sure of a pickle with the snapshot's keys; segments come first and may fill the whole beginning."""
        if head[:1] != BEGIN:
            return 0.0
        segments = b"total_size" in head and b"segment_type" in head
        return 0.9 if segments or (b"segments" in head and b"device_traces" in head) else 0.0

    def rewrite(self, path: Path, target: Path | None, redactor: Redactor) -> bool:
        """Rewrite it as plain data, with shortened paths in stacks."""
        rewrite_pickle(
            path, target, redactor, unfolded=_MOST_UNFOLDED, shortened={"filename": published_file}
        )
        return True

    def read(self, path: Path) -> Evidence:
        """A row for each event and each block; `InputError` for a pickle of more than plain data."""
        try:
            data = read_whole(path, MOST_FILE_BYTES)
            most = min(_MOST_ENTRIES, most_containers(len(data)))
            snapshot = _decode_snapshot(data)
            stacks, left_out = Stacks(), Counter[str]()
            rank = _rank_in_name(path)
            events = list(_event_rows(snapshot, most, stacks, left_out))
            blocks = list(_block_rows(snapshot, most, stacks))
            annotations = list(_annotation_rows(snapshot, most, left_out))
        except NotPlainError as error:
            raise damaged_error(path, str(error), hint=_HINT) from None
        except msgspec.ValidationError as error:
            raise damaged_error(path, str(error).replace("`", "'"), hint=_HINT) from None
        if max(sum(event["size"] for event in events), sum(block["size"] for block in blocks)) > _MOST_BYTES:
            raise damaged_error(path, "states impossible sizes", hint=_HINT)
        return Evidence(
            allocations=_make_table(events, rank, stacks, ALLOCATIONS),
            memory_blocks=_make_table(blocks, rank, stacks, MEMORY_BLOCKS),
            allocator_annotations=_make_table(annotations, rank, stacks, ALLOCATOR_ANNOTATIONS),
            facts=_allocator_facts(snapshot),
            left_out=dict(left_out),
            notes=list(_snapshot_notes(events, blocks)),
        )


def _decode_snapshot(data: bytes) -> _Snapshot:
    content = load_plain(data, unfolded=_MOST_UNFOLDED)
    return msgspec.convert({"segments": content} if isinstance(content, list) else content, _Snapshot)


def _rank_in_name(path: Path) -> int | None:
    """The number after `rank` in the file's name; the snapshot itself does not state it."""
    match = _RANK.search(path.name)
    return int(match[1]) if match else None


def _convert_entries(entries: Any, kind: type[Entry], earlier: int, most: int) -> Iterator[Entry]:
    """The entries of a list, after `seen` earlier ones; `NotPlainError` if there are more than `most`."""
    listed = msgspec.convert(entries, list[Any])
    if len(listed) + earlier > most:
        raise NotPlainError(f"has more than {most:,} entries")
    return (msgspec.convert(entry, kind) for entry in listed)


def _event_rows(
    snapshot: _Snapshot, most: int, stacks: Stacks, left_out: Counter[str]
) -> Iterator[dict[str, Any]]:
    count = 0
    if len(snapshot.device_traces) > _MOST_DEVICES:
        raise NotPlainError(f"has more than {_MOST_DEVICES:,} devices")
    for device, trace in enumerate(snapshot.device_traces):
        for number, event in enumerate(_convert_entries(trace, _AllocatorEvent, count, most)):
            count += 1
            if event.action not in ALLOCATOR_ACTIONS:
                left_out[_UNKNOWN_ACTION] += 1
                continue
            yield {
                "device": device,
                "event": number,
                "time_ns": None if event.time_us is None else 1000 * event.time_us,
                "action": event.action,
                "address": event.addr,
                "size": event.size,
                "stream": event.stream,
                "call_site": stacks.stack_code(event.frames),
                "device_free": event.device_free if event.action == "oom" else None,
            }


def _annotation_rows(snapshot: _Snapshot, most: int, left_out: Counter[str]) -> Iterator[dict[str, Any]]:
    """The annotations whose begin and end are recorded; those of a name nest."""
    begun: dict[tuple[int, str], list[int]] = defaultdict(list)
    for mark in _convert_entries(snapshot.external_annotations, _Annotation, 0, most):
        starts_us = begun[mark.device, mark.name]
        if mark.stage == "START":
            starts_us.append(mark.time_us)
        elif starts_us:
            yield {
                "device": mark.device,
                "name": printable(mark.name[:_LONGEST_ANNOTATION]),
                "start_ns": 1000 * starts_us.pop(),
                "end_ns": 1000 * mark.time_us,
            }
        else:
            left_out[_OPEN_ANNOTATION] += 1
    if still_open := sum(map(len, begun.values())):
        left_out[_OPEN_ANNOTATION] += still_open


def _block_rows(snapshot: _Snapshot, most: int, stacks: Stacks) -> Iterator[dict[str, Any]]:
    count = 0
    for segment in _convert_entries(snapshot.segments, _Segment, 0, most):
        at = segment.address
        for block in _convert_entries(segment.blocks, _Block, count, most):
            count += 1
            if block.address is not None and block.address != at:
                break
            first = _innermost_history(block.history) or _History(block.requested_size, block.frames)
            requested = first.real_size if block.requested_size is None else block.requested_size
            free = block.state == "inactive"
            yield {
                "device": segment.device,
                "segment": segment.address,
                "address": at,
                "size": block.size,
                "requested": None if free else requested,
                "stream": segment.stream,
                "pool": segment.pool,
                "state": "active_pending_free" if block.state == "active_awaiting_free" else block.state,
                "call_site": None if free else stacks.stack_code(first.frames),
            }
            at += block.size
        if at != segment.address + segment.total_size:
            raise NotPlainError(f"has a segment at {segment.address:#x} that its blocks do not fill")


def _innermost_history(history: Any) -> _History | None:
    """The innermost entry of a block's history; blocks may share a history of any length."""
    if not isinstance(history, list | tuple):
        raise NotPlainError("has a block whose history is no list")
    return msgspec.convert(history[0], _History) if history else None


def _make_table(rows: list[dict[str, Any]], rank: int | None, stacks: Stacks, schema: pa.Schema) -> pa.Table:
    columns = []
    for field in schema:
        values = [rank if field.name == "rank" else row.get(field.name) for row in rows]
        if field.name == "call_site":
            lines = pa.array(list(stacks.names), pa.string())
            column = pa.DictionaryArray.from_arrays(pa.array(values, pa.int32()), lines)
        else:
            column = pa.array(values, field.type)
        columns.append(column)
    return pa.Table.from_arrays(columns, schema=schema)


def _allocator_facts(snapshot: _Snapshot) -> dict[str, str | int | float | list[str]]:
    """The allocator's settings, if the snapshot states them."""
    settings = snapshot.allocator_settings
    facts: dict[str, str | int | float | list[str]] = {}
    for name in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"):
        if isinstance(text := settings.get(name), str) and text:
            facts["allocator_settings"] = text[:200]
    if isinstance(expandable := settings.get("expandable_segments"), bool):
        facts["expandable_segments"] = "yes" if expandable else "no"
    return facts


def _snapshot_notes(events: list[dict[str, Any]], blocks: list[dict[str, Any]]) -> Iterator[str]:
    if not blocks:
        yield "holds no segments: the allocator had no memory of the device when the snapshot was taken"
    if not events:
        yield "no history was recorded: torch.cuda.memory._record_memory_history() before the work has it"
    if failed := sum(event["action"] == "oom" for event in events):
        yield f"the allocator ran out of memory {failed:,} time{'s' * (failed != 1)}"


READERS.add(MemorySnapshot.name, MemorySnapshot(), origin=__name__)
