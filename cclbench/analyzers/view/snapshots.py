# SPDX-License-Identifier: Apache-2.0
"""Allocator histories from memory snapshots: the last events, replayed, and the final blocks.

A snapshot records only the last events. Blocks that they free, or that are active at the end, without an
allocation among them, are older than the recording. Bytes are requested bytes, a block lives from its
`alloc` to its `free_requested`, and reserved bytes follow backwards from the final segments.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from cclbench.analyzers.view.allocator import OLDER, Blocks, History, Owners
from cclbench.analyzers.view.arena import (
    Arena,
    FailedRequest,
    Segment,
    SegmentEvent,
    pool_of_segment,
)
from cclbench.analyzers.view.columns import has_word, with_words
from cclbench.ground.intervals import Int64
from cclbench.normalize.steps import Annotation, annotated_steps, step_patterns

SNAPSHOT_TABLES: Final = ("allocations", "memory_blocks", "allocator_annotations")
"""Tables of evidence that snapshots fill, as `snapshot_histories` takes them."""
_Row: TypeAlias = tuple[str, int | None, int, str | None]
"""Action, address, bytes and call site of an event."""
_END, _RELEASED = 4, 5
_MAPPED: Final = ("segment_map", "segment_unmap")
_RESERVED: Final = {"segment_alloc": 1, "segment_map": 1, "segment_free": -1, "segment_unmap": -1}


def snapshot_histories(allocations: pa.Table, blocks: pa.Table, annotations: pa.Table) -> list[History]:
    """The history of each device of each snapshot; a device without events has a single moment, the end.

    The tables are rows of `ALLOCATIONS`, `MEMORY_BLOCKS` and `ALLOCATOR_ANNOTATIONS`.
    """
    events, ends, ranges = map(_by_device, (allocations, blocks, annotations))
    keys = sorted({*events, *ends}, key=lambda key: [(part is not None, part) for part in key])
    recorded = {key[:-1] for key in events}
    return [
        replace(
            _replay_device(key, events.get(key), ends.get(key), ranges.get(key)),
            recorded=key[:-1] in recorded,
        )
        for key in keys
    ]


def _by_device(table: pa.Table) -> dict[tuple[Any, ...], pa.Table]:
    """The rows by (source, file, rank, device), in order."""
    keys = ("source", "file", "rank", "device")
    for name in ("source", "file"):
        table = table.set_column(table.schema.get_field_index(name), name, table[name].cast(pa.string()))
    numbered = table.append_column("row", pa.array(np.arange(len(table))))
    grouped = numbered.group_by(list(keys), use_threads=False).aggregate([("row", "list")])
    by_key = zip(grouped.select(keys).to_pylist(), grouped["row_list"], strict=True)
    return {tuple(key.values()): table.take(rows.values) for key, rows in by_key}


class _AllocatorReplay:
    """Replay of a device's events, from the blocks that were live before them."""

    def __init__(self, before: Mapping[int | None, tuple[int, str | None]]) -> None:
        self.sites: dict[str | None, int] = {}
        self.contradictions = 0
        self._columns = tuple(array("q") for _ in range(6))
        """Owner, bytes, address, begin, end and release of each block; −1 for what has not happened."""
        self._live: dict[int | None, int] = {}
        self._pending: dict[int | None, int] = {}
        for address, (size, call_site) in before.items():
            self._add_block(0, address, size, OLDER if call_site is None else self._owner_of(call_site))

    def replay_event(
        self, moment: int, action: str, address: int | None, size: int, call_site: str | None
    ) -> None:
        """Apply one event."""
        if action == "alloc":
            if address in self._live:  # its free was not recorded
                self.contradictions += 1
                self._free_block(moment, address)
            if (pending := self._pending.pop(address, None)) is not None:
                self._columns[_RELEASED][pending] = moment
            self._add_block(moment, address, size, self._owner_of(call_site))
        elif action == "free_requested":
            if address in self._live:
                self._free_block(moment, address)
            else:
                self.contradictions += 1
        elif action == "free_completed" and (pending := self._pending.pop(address, None)) is not None:
            self._columns[_RELEASED][pending] = moment

    def _owner_of(self, call_site: str | None) -> int:
        return self.sites.setdefault(call_site, len(self.sites) + 1)

    def _add_block(self, moment: int, address: int | None, size: int, owner: int) -> None:
        self._live[address] = len(self._columns[0])
        for column, value in zip(self._columns, (owner, size, address or 0, moment, -1, -1), strict=True):
            column.append(value)

    def _free_block(self, moment: int, address: int | None) -> None:
        block = self._live.pop(address)
        self._columns[_END][block] = moment
        self._pending[address] = block

    def held_by_owner(self, moments: int) -> Owners:
        """The blocks and their owners over `moments` moments."""
        owner, size, address, begin, end, released = (np.array(column, np.int64) for column in self._columns)
        completes = bool((released >= 0).any())
        released = np.where(released < 0, moments if completes else end, released)
        return Owners(
            (None, *self.sites),
            moments,
            owner=owner,
            bytes=size,
            address=address,
            begin=begin,
            end=np.where(end < 0, moments, end),
            released=np.where(released < 0, moments, released),
        )


def _replay_device(
    key: tuple[Any, ...],
    events: pa.Table | None,
    blocks: pa.Table | None,
    annotations: pa.Table | None,
) -> History:
    source, file, rank, device = key
    active, end = _final_state(blocks)
    names = ("action", "address", "size", "call_site", "time_ns", "stream", "device_free")
    columns = {name: [] if events is None else _plain_column(events[name]).to_pylist() for name in names}
    rows: list[_Row] = list(zip(*(columns[name] for name in names[:4]), strict=True))
    before, uncertain = _state_before(rows, active)
    replay = _AllocatorReplay(before)
    for moment, row in enumerate(rows, 1):
        replay.replay_event(moment, *row)
    owners = replay.held_by_owner(len(rows) + 1)
    allocated = owners.allocated()
    times = columns["time_ns"]
    time_ns = np.array([times[0], *times], np.int64) if times and None not in times else None
    return History(
        source=source,
        file=file,
        rank=rank,
        device=device,
        time_ns=time_ns,
        allocated=allocated,
        reserved=_reserved_bytes(rows, end.reserved, allocated),
        owners=owners,
        end=end,
        arena=_final_arena(blocks, rows, columns["stream"], owners),
        failures=_failed_requests(rows, columns["stream"], columns["device_free"]),
        step_ends=_step_ends(annotations, time_ns),
        contradictions=replay.contradictions + uncertain,
    )


def _final_state(blocks: pa.Table | None) -> tuple[dict[int | None, tuple[int, str | None]], Blocks]:
    """Bytes and call site of the finally allocated blocks by address, and bytes of the segments."""
    if blocks is None:
        return {}, Blocks(0, 0)
    inactive = with_words(blocks, "state", ("inactive",))
    allocated = with_words(blocks, "state", ("active_allocated",))
    size = allocated["requested"].fill_null(allocated["size"]).to_pylist()
    call_sites = _plain_column(allocated["call_site"]).to_pylist()
    active = dict(zip(allocated["address"].to_pylist(), zip(size, call_sites, strict=True), strict=True))
    return active, Blocks(*(int(held["size"].to_numpy().sum()) for held in (blocks, inactive)))


def _state_before(
    rows: Sequence[_Row], active: Mapping[int | None, tuple[int, str | None]]
) -> tuple[dict[int | None, tuple[int, str | None]], int]:
    """Bytes and call site of the blocks that were live before the first event; the number that contradict.

    Live blocks are those whose first event frees them, of which no call site is known, and final blocks
    without events, which keep theirs also where the recording has lost their allocation.
    """
    before: dict[int | None, tuple[int, str | None]] = {}
    last: dict[int | None, str] = {}
    for action, address, size, _ in rows:
        if action not in ("alloc", "free_requested"):
            continue
        if action == "free_requested" and address not in last:
            before[address] = size, None
        last[address] = action
    before |= {address: block for address, block in active.items() if address not in last}
    contradictions = sum((action == "alloc") != (address in active) for address, action in last.items())
    return before, contradictions


def _reserved_bytes(rows: Sequence[_Row], end: int, allocated: Int64) -> Int64 | None:
    """Reserved bytes at each moment, backwards from the end; None where less than allocated."""
    grown = [_RESERVED.get(action, 0) * size for action, _, size, _ in reversed(rows)]
    reserved = end - np.cumsum([0, *grown], dtype=np.int64)[::-1]
    return np.asarray(reserved, np.int64) if (reserved >= allocated).all() else None


def _final_arena(
    blocks: pa.Table | None, rows: Sequence[_Row], streams: Sequence[int | None], owners: Owners
) -> Arena | None:
    """The segments at the end, and those that came and went; None without blocks at the end."""
    if blocks is None:
        return None
    mapped = any(action in _MAPPED for action, _, _, _ in rows)
    by_segment = (
        pa.table({name: _plain_column(blocks[name]) for name in ("segment", "size", "stream", "pool")})
        .group_by(["segment", "stream", "pool"], use_threads=False)
        .aggregate([("size", "sum")])
    )
    segments = tuple(
        Segment(
            row["segment"],
            row["size_sum"],
            row["stream"],
            row["pool"] or pool_of_segment(row["size_sum"]),
            mapped,
        )
        for row in by_segment.to_pylist()
    )
    events = tuple(
        SegmentEvent(
            moment,
            _RESERVED[action] > 0,
            Segment(address, size, streams[moment - 1], pool_of_segment(size), action in _MAPPED),
        )
        for moment, (action, address, size, _) in enumerate(rows, 1)
        if action in _RESERVED and address is not None
    )
    in_use = blocks.filter(pa.array(~has_word(blocks, "state", "inactive")))
    sizes = dict(zip(in_use["address"].to_pylist(), in_use["size"].to_pylist(), strict=True))
    replayed = set(owners.address[owners.released == owners.moments].tolist())
    pending = {address: size for address, size in sizes.items() if address not in replayed}
    return Arena(segments, events, sizes, pending)


def _failed_requests(
    rows: Sequence[_Row], streams: Sequence[int | None], device_free: Sequence[int | None]
) -> tuple[FailedRequest, ...]:
    return tuple(
        FailedRequest(moment, size, device_free[moment - 1], streams[moment - 1], call_site)
        for moment, (action, _, size, call_site) in enumerate(rows, 1)
        if action == "oom"
    )


def _step_ends(annotations: pa.Table | None, time_ns: Int64 | None) -> Int64 | None:
    """The moments at which annotated steps end; None without any, or without times."""
    if annotations is None or time_ns is None:
        return None
    names = ("name", "start_ns", "end_ns")
    columns = (_plain_column(annotations[name]).to_pylist() for name in names)
    marks, _ = annotated_steps([Annotation(*row) for row in zip(*columns, strict=True)], step_patterns(None))
    ends = marks.ends[marks.ends >= time_ns[0]]
    return np.searchsorted(time_ns[1:], ends, side="right") if len(ends) else None


def _plain_column(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.cast(pa.string()) if pa.types.is_dictionary(column.type) else column
