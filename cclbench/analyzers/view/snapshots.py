# SPDX-License-Identifier: Apache-2.0
"""Memory snapshots replayed: what each device's allocator held, from its last events and its final blocks.

A snapshot records the last events only.  What was allocated before them shows as a block that they free, or
that is active at the end though none of them allocated it: such blocks are older than the recording.  Bytes
are those that the program asked for, a block counts from its `alloc` to its `free_requested`, and reserved
bytes follow backwards from the segments that are there at the end.
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
    """The history of each device of each snapshot; a device without events has its end as only moment.

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
    """The rows of each (source, file, rank, device), in order."""
    keys = ("source", "file", "rank", "device")
    for name in ("source", "file"):
        table = table.set_column(table.schema.get_field_index(name), name, table[name].cast(pa.string()))
    found = {}
    for row in table.select(keys).group_by(list(keys)).aggregate([]).to_pylist():
        key = tuple(row[name] for name in keys)
        own = table
        for name, value in zip(keys, key, strict=True):
            own = own.filter(pc.is_null(own[name]) if value is None else pc.equal(own[name], value))
        found[key] = own
    return found


@dataclass(frozen=True, slots=True)
class _LiveBlock:
    """A block that is allocated: its bytes and whose it is, `OLDER` or the code of a call site."""

    bytes: int
    owner: int


class _AllocatorReplay:
    """A device's events in order, from the blocks that were live before them."""

    def __init__(self, before: dict[int | None, int]) -> None:
        self._live = {address: _LiveBlock(size, OLDER) for address, size in before.items()}
        self.start = sum(before.values())
        self.older_blocks = len(before)
        self.contradictions = 0
        self.moment, self.owner, self.change = array("q"), array("q"), array("q")
        """What changed: after which event, whose bytes, by how many."""
        self.sites: dict[str | None, int] = {}

    def replay_event(
        self, moment: int, action: str, address: int | None, size: int, call_site: str | None
    ) -> None:
        """One event."""
        if action == "alloc":
            if address in self._live:  # who freed it was not recorded
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
        """Whose bytes were allocated at each of that many moments."""
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
    """Bytes of the blocks that are allocated at the end, by address, and the segments' bytes."""
    if blocks is None:
        return {}, Blocks(0, 0)
    state = _plain_column(blocks["state"])
    inactive = pc.sum(blocks["size"].filter(pc.equal(state, "inactive"))).as_py() or 0
    own = blocks.filter(pc.equal(state, "active_allocated"))
    size = pc.coalesce(own["requested"], own["size"])
    active = dict(zip(own["address"].to_pylist(), size.to_pylist(), strict=True))
    return active, Blocks(pc.sum(blocks["size"]).as_py(), inactive)


def _state_before(rows: Sequence[_Row], active: dict[int | None, int]) -> tuple[dict[int | None, int], int]:
    """Bytes of the blocks that were live before the first event, and how many blocks contradict the end.

    They are those whose first event frees them, and those without an event that are there at the end.
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
    unlike = sum((action == "alloc") != (address in active) for address, action in last.items())
    return before, unlike


def _reserved_bytes(rows: Sequence[_Row], end: int, allocated: Int64) -> Int64 | None:
    """Bytes reserved at each moment, backwards from the end; None where that is less than was allocated."""
    grown = [_RESERVED.get(action, 0) * size for action, _, size, _ in reversed(rows)]
    reserved = end - np.cumsum([0, *grown], dtype=np.int64)[::-1]
    return np.asarray(reserved, np.int64) if (reserved >= allocated).all() else None


def _plain_column(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.cast(pa.string()) if pa.types.is_dictionary(column.type) else column
