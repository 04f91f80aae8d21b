# SPDX-License-Identifier: Apache-2.0
"""What an allocator held over time: by a snapshot's events and final blocks, or by a trace's [memory] events.

A snapshot records the last events only.  What was allocated before them shows as a block that they free, or
that is active at the end though none of them allocated it: such blocks are older than the recording.  Bytes
are those that the program asked for, a block counts from its `alloc` to its `free_requested`, and reserved
bytes follow backwards from the segments that are there at the end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cclbench.intervals import Int64

if TYPE_CHECKING:
    from cclbench.record.run import Rank

MEMORY: Final = "[memory]"
"""What torch calls an allocator's events in a trace."""
_RESERVED: Final = {"segment_alloc": 1, "segment_map": 1, "segment_free": -1, "segment_unmap": -1}


@dataclass(frozen=True, slots=True)
class Site:
    """What one stack holds of the live allocations at the peak; None where no stack was recorded."""

    call_site: str | None
    bytes: int
    blocks: int


@dataclass(frozen=True, slots=True, eq=False)
class History:
    """What one device's allocator held; arrays of shape (moments,), the first before the first event."""

    source: str
    """Reader of the file that says so."""
    file: str | None
    rank: int | None
    device: int | None
    """Index of the accelerator; None of the CPU."""
    time_ns: Int64 | None
    """Of each moment; None where nobody tells times."""
    allocated: Int64
    reserved: Int64 | None
    """None where nobody tells what was reserved."""
    sites: tuple[Site, ...] = ()
    """The live allocations at the peak by call site, most bytes first."""
    older: Site | None = None
    """The live allocations at the peak that are older than the recording; None where nothing tells."""
    end: Blocks | None = None
    contradictions: int = 0
    """Events that do not fit those before them or the final blocks: some were not recorded."""

    @property
    def peak(self) -> int:
        """The first moment at which most bytes were allocated."""
        return int(np.argmax(self.allocated))

    @property
    def peak_allocated(self) -> int:
        """Most bytes allocated at any moment."""
        return int(self.allocated[self.peak])

    @property
    def peak_reserved(self) -> int | None:
        """Most bytes reserved at any moment."""
        return None if self.reserved is None else int(self.reserved.max())

    @property
    def fragmentation(self) -> float | None:
        """1 − allocated / reserved at the peak of allocated bytes; None where nothing is reserved."""
        if self.reserved is None or self.reserved[self.peak] <= 0:
            return None
        return 1 - int(self.allocated[self.peak]) / int(self.reserved[self.peak])


@dataclass(frozen=True, slots=True)
class Blocks:
    """A device's segments when a snapshot was taken, in bytes."""

    reserved: int
    inactive: int

    @property
    def inactive_share(self) -> float | None:
        """Share of the reserved bytes in inactive blocks; None where nothing is reserved."""
        return self.inactive / self.reserved if self.reserved else None


def of_snapshots(allocations: pa.Table, blocks: pa.Table) -> list[History]:
    """The history of each device of each snapshot; a snapshot without events has its end as only moment.

    The tables are rows of `schema.ALLOCATIONS` and `schema.MEMORY_BLOCKS`.
    """
    events, ends = _by_device(allocations), _by_device(blocks)
    return [_replayed(key, events.get(key), ends.get(key)) for key in sorted({*events, *ends}, key=str)]


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


@dataclass(slots=True)
class _Live:
    """A block that is allocated: its bytes and stack, and whether it is older than the recording."""

    bytes: int
    call_site: str | None
    older: bool


@dataclass(slots=True)
class _Replay:
    """A device's events in order, from the blocks that were live before them."""

    live: dict[int, _Live]
    changes: list[int] = field(default_factory=list)
    contradictions: int = 0

    def step(self, action: str, address: int, size: int, call_site: str | None) -> None:
        """One event; its change of the allocated bytes is appended."""
        change = 0
        if action == "alloc":
            if (former := self.live.pop(address, None)) is not None:
                self.contradictions += 1
                change -= former.bytes
            self.live[address] = _Live(size, call_site, older=False)
            change += size
        elif action == "free_requested":
            change -= self.live.pop(address).bytes
        self.changes.append(change)


def _replayed(key: tuple[Any, ...], events: pa.Table | None, blocks: pa.Table | None) -> History:
    source, file, rank, device = key
    active, end = _final(blocks)
    names = ("action", "address", "size", "call_site", "time_ns")
    columns = {name: [] if events is None else _plain(events[name]).to_pylist() for name in names}
    rows = list(zip(*(columns[name] for name in names[:4]), strict=True))
    before, uncertain = _before(rows, active)
    replay = _Replay(dict(before))
    start = sum(one.bytes for one in before.values())
    for row in rows:
        replay.step(*row)
    allocated = np.cumsum([start, *replay.changes], dtype=np.int64)
    at_peak = _Replay(dict(before))
    for row in rows[: int(np.argmax(allocated))]:
        at_peak.step(*row)
    older, sites = _sites(at_peak.live.values())
    times = columns["time_ns"]
    timed = bool(times) and None not in times
    return History(
        source=source,
        file=file,
        rank=rank,
        device=device,
        time_ns=np.array([times[0], *times], np.int64) if timed else None,
        allocated=allocated,
        reserved=_reserved(rows, end.reserved),
        sites=sites,
        older=older,
        end=end,
        contradictions=replay.contradictions + uncertain,
    )


def _final(blocks: pa.Table | None) -> tuple[dict[int, _Live], Blocks]:
    """The blocks that are allocated at the end by address, and the segments' bytes."""
    if blocks is None:
        return {}, Blocks(0, 0)
    state = _plain(blocks["state"])
    inactive = pc.sum(blocks["size"].filter(pc.equal(state, "inactive"))).as_py() or 0
    own = blocks.filter(pc.equal(state, "active_allocated"))
    size = pc.coalesce(own["requested"], own["size"])
    columns = (own["address"], size, _plain(own["call_site"]))
    active = {
        address: _Live(nbytes, call_site, older=True)
        for address, nbytes, call_site in zip(*(column.to_pylist() for column in columns), strict=True)
    }
    return active, Blocks(pc.sum(blocks["size"]).as_py() or 0, inactive)


def _before(
    rows: Sequence[tuple[str, int, int, str | None]], active: dict[int, _Live]
) -> tuple[dict[int, _Live], int]:
    """The blocks that were live before the first event, by address, and how many contradict the end.

    They are those whose first event frees them, and those without an event that are there at the end.
    """
    first: dict[int, _Live | None] = {}
    last: dict[int, tuple[str, int]] = {}
    for action, address, size, _ in rows:
        if action == "alloc":
            first.setdefault(address, None)
        elif action == "free_requested":
            # Nothing tells who allocated it: a stack of a free is that of the free.
            first.setdefault(address, _Live(size, None, older=True))
        else:
            continue
        last[address] = action, size
    before = {address: one for address, one in first.items() if one is not None}
    before |= {address: one for address, one in active.items() if address not in last}
    unlike = sum((action == "alloc") != (address in active) for address, (action, _) in last.items())
    return before, unlike


def _sites(live: Any) -> tuple[Site, tuple[Site, ...]]:
    """What is older than the recording, and the rest by call site."""
    older, own = [0, 0], dict[str | None, list[int]]()
    for one in live:
        into = older if one.older else own.setdefault(one.call_site, [0, 0])
        into[0] += one.bytes
        into[1] += 1
    sites = [Site(call_site, *counts) for call_site, counts in own.items()]
    sites.sort(key=lambda site: (-site.bytes, site.call_site or ""))
    return Site(None, *older), tuple(sites)


def _reserved(rows: Sequence[tuple[str, int, int, str | None]], end: int) -> Int64 | None:
    """Bytes reserved at each moment, backwards from the end; None where events were not recorded."""
    signs = (_RESERVED.get(action, 0) * size for action, _, size, _ in rows)
    grown = np.cumsum([0, *signs], dtype=np.int64)
    reserved = end - grown[-1] + grown
    return np.asarray(reserved, np.int64) if reserved.min() >= 0 else None


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.cast(pa.string()) if pa.types.is_dictionary(column.type) else column


def of_trace(tables: Rank, *, source: str) -> Iterator[History]:
    """The history of each device that the trace's [memory] events are of; the CPU's own comes first.

    A moment is an event: what was before the first one is not told.
    """
    columns = ("name", "start_ns", "device", "bytes", "reserved")
    batches = [_memory_rows(batch) for batch in tables.events(("other",), columns)]
    rows = pa.Table.from_batches(batches).sort_by("start_ns") if batches else None
    if rows is None or not len(rows):
        return
    devices = rows["device"].fill_null(-1).to_numpy()
    for device in np.unique(devices).tolist():
        own = rows.filter(pa.array(devices == device))
        whole = own["reserved"].null_count == 0
        yield History(
            source=source,
            file=None,
            rank=tables.entry.rank,
            device=None if device < 0 else device,
            time_ns=own["start_ns"].to_numpy(),
            allocated=own["bytes"].to_numpy(),
            reserved=own["reserved"].to_numpy() if whole else None,
        )


def _memory_rows(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The allocator's events that state what is allocated, without their name."""
    named: npt.NDArray[np.bool_] = np.array(
        pc.equal(batch["name"].cast(pa.string()), MEMORY).to_numpy(zero_copy_only=False), np.bool_
    )
    kept = batch.filter(pc.and_(pa.array(named), batch["bytes"].is_valid()))
    return kept.select(["start_ns", "device", "bytes", "reserved"])
