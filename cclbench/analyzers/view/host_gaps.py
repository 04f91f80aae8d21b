# SPDX-License-Identifier: Apache-2.0
"""What held the host while the device waited for it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import pyarrow as pa

from cclbench import intervals
from cclbench.analyzers.view.columns import codes, spans
from cclbench.analyzers.view.launches import ROWS_AT_ONCE, LaunchCalls
from cclbench.disk_columns import pieces, release
from cclbench.intervals import Int64, Intervals, Joined, Mask
from cclbench.normalize.phases import LOADER

if TYPE_CHECKING:
    from cclbench.analyzers.view.rank_view import RankView

HELD: Final = ("loading", "allocation", "synchronization", "launch", "operators", "elsewhere")
"""What holds a host, of two at once the first."""
RESTART_NS: Final = 200_000
"""How long a host may take to launch again after it waited for the device, at most, for that wait's sake."""
_ALLOCATES: Final = re.compile(r"(cu|cuda|hip)(Mem)?(Malloc|Free|Alloc|HostAlloc|Host(Un)?[rR]egister)")
_BLOCKING: Final = "Memcpy"
"""Copies wait for the device, too, where they are not from pinned memory."""


@dataclass(frozen=True, slots=True, eq=False)
class HostGaps:
    """The idle time of `time.idle_host` by what held the host: sets that partition it, in order of `HELD`."""

    by: dict[str, Intervals]
    after_wait: Intervals
    """Gaps that end with the first launch after a wait for the device, `RESTART_NS` of each at most."""


def host_gaps(rank: RankView) -> HostGaps:
    """What held the host of a rank in each gap.

    A gap lasts until its event begins.  From the begin of the call that launches that on it is `launch`.
    Before, each instant goes to what the thread of that call does: `loading` (a loader's or checkpoint's
    range), `allocation` (calls that allocate or free memory of the device or pinned memory),
    `synchronization` (calls that wait for the device), `launch` (other calls that launch), `operators`, else
    `elsewhere`.  A gap that begins while the thread waits for the device is that wait's up to `RESTART_NS`
    and no longer than the wait, but for loading and allocation.
    """
    late, calls = rank.idle.late, rank.launch_calls
    found, waited = {held: Joined() for held in HELD}, Joined()
    some = list(pieces(len(late.call), most=ROWS_AT_ONCE))
    threads = sorted({thread for own in some for thread in np.unique(calls.threads[late.call[own]]).tolist()})
    rows = _rows_by_thread(rank, np.array(threads, np.int64))
    rank.rest()
    after = np.zeros(len(calls), np.bool_)
    for thread, held in rows.items():
        after |= _first_after(held["blocking"], calls, thread)
    for own in some:
        starts, ends, call = late.starts[own], late.ends[own], late.call[own]
        called = calls.starts[call].clip(starts, ends)
        thread_of = calls.threads[call]
        found["launch"].add(intervals.union(called, ends))
        for thread in np.unique(thread_of).tolist():
            here = thread_of == thread
            gaps = _Gaps(starts[here], ends[here], called[here])
            first_after = after[call[here]]
            until = np.minimum(gaps.ends, gaps.starts + RESTART_NS)
            waited.add(intervals.union(gaps.starts[first_after], until[first_after]))
            for name, part in _held(gaps, rows[thread]):
                found[name].add(part)
        release(late, calls)
    by = {name: parts.whole() for name, parts in found.items()}
    return HostGaps(by, waited.whole())


class _Gaps(NamedTuple):
    """Gaps that a thread's launches end, in order; arrays of shape (gaps,), times in ns."""

    starts: Int64
    ends: Int64
    called: Int64
    """Begin of the call that launches what ends the gap, within the gap."""


def _held(gaps: _Gaps, held: dict[str, Intervals]) -> Iterator[tuple[str, Intervals]]:
    """What held the thread in the gaps until it called, by `HELD`."""
    drained = np.minimum(gaps.starts + _blocked(held["blocking"], gaps.starts), gaps.called)
    blocked, free = intervals.union(gaps.starts, drained), intervals.union(drained, gaps.called)
    since, until = int(gaps.starts[0]), int(gaps.ends[-1])
    at = {name: intervals.clipped(held[name], since, until) for name in HELD}
    release(*held.values())
    for name in ("loading", "allocation"):
        yield name, intervals.intersect(blocked, at[name])
        yield name, intervals.intersect(free, at[name])
        blocked, free = intervals.subtract(blocked, at[name]), intervals.subtract(free, at[name])
    yield "synchronization", blocked
    for name in ("synchronization", "launch", "operators"):
        yield name, intervals.intersect(free, at[name])
        free = intervals.subtract(free, at[name])
    yield "elsewhere", free


def _first_after(blocking: Intervals, calls: LaunchCalls, thread: int) -> Mask:
    """Which calls are the thread's first launch after it waited for the device, shape (calls,)."""
    never = np.iinfo(np.int64).min
    own = np.flatnonzero(calls.threads == thread).astype(np.int32)
    own = own[np.argsort(calls.starts[own], kind="stable")]
    waits = np.append(blocking.ends, never)
    first, before = np.zeros(len(calls), np.bool_), np.array([never])
    for some in pieces(len(own), most=ROWS_AT_ONCE):
        at = own[some]
        ends = np.append(before, calls.ends[at])
        last = waits[np.searchsorted(blocking.ends, calls.starts[at], side="right") - 1]
        first[at] = (last >= ends[:-1]) & (last > never)
        before = ends[-1:]
        release(calls)
    return first


def _blocked(calls: Intervals, at: Int64) -> Int64:
    """How much of each gap that begins at one of `at` is that of a wait for the device, 0 outside of any."""
    index = intervals.innermost(calls.starts, calls.ends, at)
    inside = index >= 0
    starts, ends = calls.starts[index[inside]], calls.ends[index[inside]]
    blocked = np.zeros(len(at), np.int64)
    # A call returns some time after the device has run dry; that is waiting, too.
    blocked[inside] = np.minimum(ends - starts, ends - at[inside] + RESTART_NS)
    return blocked


def _rows_by_thread(rank: RankView, threads: Int64) -> dict[int, dict[str, Intervals]]:
    """When each of the threads does what, by `HELD`; `blocking` are single calls that wait for the device."""
    parts: dict[int, dict[str, Joined]] = {
        thread: {name: Joined() for name in (*HELD, "blocking")} for thread in threads.tolist()
    }
    kinds = ("op", "launch", "sync", "other", "annotation")
    for batch in rank.tables.events(kinds, ("side", "track", "kind", "name", "start_ns", "dur_ns")):
        what = _held_by(batch)
        starts, ends = spans(batch)
        track = batch["track"].to_numpy()
        for thread in np.intersect1d(threads, track).tolist():
            for name, chosen in what.items():
                rows = chosen & (track == thread)
                if rows.any():
                    parts[thread][name].add(intervals.union(starts[rows], ends[rows]))
    return {thread: {name: pieces.whole() for name, pieces in of.items()} for thread, of in parts.items()}


def _held_by(batch: pa.RecordBatch) -> dict[str, Mask]:
    """Which rows are of what, masks of shape (rows,)."""
    name, names = codes(batch, "name")
    kind, side = (
        batch[column].cast(pa.string()).to_numpy(zero_copy_only=False) for column in ("kind", "side")
    )
    host = side == "host"

    def called(matches: Callable[[str], bool]) -> Mask:
        return np.array([matches(word or "") for word in names], np.bool_)[name]

    loads = called(lambda word: re.search(LOADER, word) is not None)
    allocates = called(lambda word: _ALLOCATES.match(word) is not None)
    copies = called(lambda word: _BLOCKING in word)
    waits = (kind == "sync") | ((kind == "launch") & copies)
    return {
        "loading": host & loads & np.isin(kind, ("op", "annotation")),
        "allocation": host & allocates & (kind == "other"),
        "synchronization": host & (kind == "sync"),
        "blocking": host & waits,
        "launch": host & (kind == "launch"),
        "operators": host & (kind == "op") & ~loads,
        "elsewhere": np.zeros(len(batch), np.bool_),
    }
