# SPDX-License-Identifier: Apache-2.0
"""Allocator histories from memory snapshots: the last events, replayed, and the final blocks.

A snapshot records only the last events. Blocks that they free, or that are active at the end, without an
allocation among them, are older than the recording. Bytes are requested bytes, a block lives from its
`alloc` to its `free_requested`, and reserved bytes follow backwards from the final segments.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cclbench.analyzers.view.allocator import OLDER, Blocks, History, Owners
from cclbench.ground.intervals import Int64

_Row: TypeAlias = tuple[str, int | None, int, str | None]
"""Action, address, bytes and call site of an event."""
_RESERVED: Final = {"segment_alloc": 1, "segment_map": 1, "segment_free": -1, "segment_unmap": -1}


def of_snapshots(allocations: pa.Table, blocks: pa.Table) -> list[History]:
    """The history of each device of each snapshot; a device without events has a single moment, the end.

    The tables are rows of `schema.ALLOCATIONS` and `schema.MEMORY_BLOCKS`.
    """
    events, ends = _by_device(allocations), _by_device(blocks)
    keys = sorted({*events, *ends}, key=lambda key: [(part is not None, part) for part in key])
    recorded = {key[:-1] for key in events}
    return [
        replace(_replay_device(key, events.get(key), ends.get(key)), recorded=key[:-1] in recorded)
        for key in keys
    ]


def _by_device(table: pa.Table) -> dict[tuple[Any, ...], pa.Table]:
    """The rows by (source, file, rank, device), in order."""
    keys = ("source", "file", "rank", "device")
    for name in ("source", "file"):
        table = table.set_column(table.schema.get_field_index(name), name, table[name].cast(pa.string()))
    by_key = {}
    for row in table.select(keys).group_by(list(keys)).aggregate([]).to_pylist():
        key = tuple(row[name] for name in keys)
        device_rows = table
        for name, value in zip(keys, key, strict=True):
            device_rows = device_rows.filter(
                pc.is_null(device_rows[name]) if value is None else pc.equal(device_rows[name], value)
            )
        by_key[key] = device_rows
    return by_key


@dataclass(frozen=True, slots=True)
class _LiveBlock:
    """An allocated block: bytes, and its owner, `OLDER` or the code of a call site."""

    bytes: int
    owner: int


class _AllocatorReplay:
    """Replay of a device's events, from the blocks that were live before them."""

    def __init__(self, before: dict[int | None, int]) -> None:
        self._live = {address: _LiveBlock(size, OLDER) for address, size in before.items()}
        self.start = sum(before.values())
        self.older_blocks = len(before)
        self.contradictions = 0
        self.moment, self.owner, self.change = array("q"), array("q"), array("q")
        """Changes: the event, the owner, the bytes."""
        self.sites: dict[str | None, int] = {}

    def replay_event(
        self, moment: int, action: str, address: int | None, size: int, call_site: str | None
    ) -> None:
        """Apply one event."""
        if action == "alloc":
            if address in self._live:  # its free was not recorded
                self.contradictions += 1
                self._free_block(moment, address)
            owner = self.sites.setdefault(call_site, len(self.sites) + 1)
            self._live[address] = _LiveBlock(size, owner)
            self._add_change(moment, owner, size)
        elif action == "free_requested":
            if address in self._live:
                self._free_block(moment, address)
            else:
                self.contradictions += 1

    def _free_block(self, moment: int, address: int | None) -> None:
        former = self._live.pop(address)
        self._add_change(moment, former.owner, -former.bytes)

    def _add_change(self, moment: int, owner: int, change: int) -> None:
        self.moment.append(moment)
        self.owner.append(owner)
        self.change.append(change)

    def held_by_owner(self, moments: int) -> Owners:
        """Allocated bytes by owner over `moments` moments."""
        names = [None, *self.sites]
        columns = (np.array(column, np.int64) for column in (self.moment, self.owner, self.change))
        return Owners(tuple(names), moments, self.start, self.older_blocks, *columns)


def _replay_device(key: tuple[Any, ...], events: pa.Table | None, blocks: pa.Table | None) -> History:
    source, file, rank, device = key
    active, end = _final_state(blocks)
    names = ("action", "address", "size", "call_site", "time_ns")
    columns = {name: [] if events is None else _plain_column(events[name]).to_pylist() for name in names}
    rows: list[_Row] = list(zip(*(columns[name] for name in names[:4]), strict=True))
    before, uncertain = _state_before(rows, active)
    replay = _AllocatorReplay(before)
    for moment, row in enumerate(rows, 1):
        replay.replay_event(moment, *row)
    owners = replay.held_by_owner(len(rows) + 1)
    allocated = owners.allocated()
    times = columns["time_ns"]
    timed = bool(times) and None not in times
    return History(
        source=source,
        file=file,
        rank=rank,
        device=device,
        time_ns=np.array([times[0], *times], np.int64) if timed else None,
        allocated=allocated,
        reserved=_reserved_bytes(rows, end.reserved, allocated),
        owners=owners,
        end=end,
        contradictions=replay.contradictions + uncertain,
    )


def _final_state(blocks: pa.Table | None) -> tuple[dict[int | None, int], Blocks]:
    """Bytes of the finally allocated blocks by address, and of the segments."""
    if blocks is None:
        return {}, Blocks(0, 0)
    state = _plain_column(blocks["state"])
    inactive = pc.sum(blocks["size"].filter(pc.equal(state, "inactive"))).as_py() or 0
    allocated = blocks.filter(pc.equal(state, "active_allocated"))
    size = pc.coalesce(allocated["requested"], allocated["size"])
    active = dict(zip(allocated["address"].to_pylist(), size.to_pylist(), strict=True))
    return active, Blocks(pc.sum(blocks["size"]).as_py(), inactive)


def _state_before(rows: Sequence[_Row], active: dict[int | None, int]) -> tuple[dict[int | None, int], int]:
    """Bytes of the blocks that were live before the first event, and the number that contradict the end.

    Live blocks are those whose first event frees them, and final blocks without events.
    """
    before: dict[int | None, int] = {}
    last: dict[int | None, str] = {}
    for action, address, size, _ in rows:
        if action not in ("alloc", "free_requested"):
            continue
        if action == "free_requested" and address not in last:
            before[address] = size
        last[address] = action
    before |= {address: size for address, size in active.items() if address not in last}
    contradictions = sum((action == "alloc") != (address in active) for address, action in last.items())
    return before, contradictions


def _reserved_bytes(rows: Sequence[_Row], end: int, allocated: Int64) -> Int64 | None:
    """Reserved bytes at each moment, backwards from the end; None where less than allocated."""
    grown = [_RESERVED.get(action, 0) * size for action, _, size, _ in reversed(rows)]
    reserved = end - np.cumsum([0, *grown], dtype=np.int64)[::-1]
    return np.asarray(reserved, np.int64) if (reserved >= allocated).all() else None


def _plain_column(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.cast(pa.string()) if pa.types.is_dictionary(column.type) else column
