# SPDX-License-Identifier: Apache-2.0
"""What held the host while the device waited for it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from cclbench import intervals
from cclbench.analyzers.view.columns import codes, spans
from cclbench.intervals import Int64, Intervals, Mask
from cclbench.normalize.phases import LOADER

if TYPE_CHECKING:
    from cclbench.analyzers.view.launches import LaunchCalls
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
    thread = calls.threads[late.call]
    found: dict[str, list[Intervals]] = {held: [] for held in HELD}
    called = calls.starts[late.call].clip(late.starts, late.ends)
    found["launch"].append(intervals.union(called, late.ends))
    rows = _rows_by_thread(rank, np.unique(thread))
    waited: list[Intervals] = []
    for one, held in rows.items():
        own = thread == one
        starts, until = late.starts[own], called[own]
        wait = _blocked(held["blocking"], starts)
        after = _first_after(held["blocking"], calls, one)[late.call[own]]
        ends = np.minimum(late.ends[own], starts + RESTART_NS)
        waited.append(intervals.union(starts[after], ends[after]))
        drained = np.minimum(starts + wait, until)
        blocked, free = intervals.union(starts, drained), intervals.union(drained, until)
        for name in ("loading", "allocation"):
            here = held[name]
            found[name] += [intervals.intersect(blocked, here), intervals.intersect(free, here)]
            blocked, free = intervals.subtract(blocked, here), intervals.subtract(free, here)
        found["synchronization"].append(blocked)
        for name in ("synchronization", "launch", "operators"):
            found[name].append(intervals.intersect(free, held[name]))
            free = intervals.subtract(free, held[name])
        found["elsewhere"].append(free)
    by = {name: intervals.join(*parts) for name, parts in found.items()}
    return HostGaps(by, intervals.join(*waited))


def _first_after(blocking: Intervals, calls: LaunchCalls, thread: int) -> Mask:
    """Which calls are the thread's first launch after it waited for the device, shape (calls,)."""
    own = np.flatnonzero(calls.threads == thread)
    own = own[np.argsort(calls.starts[own], kind="stable")]
    before = np.append(np.iinfo(np.int64).min, calls.ends[own][:-1])
    last = np.append(blocking.ends, np.iinfo(np.int64).min)[
        np.searchsorted(blocking.ends, calls.starts[own], side="right") - 1
    ]
    first = np.zeros(len(calls), np.bool_)
    first[own] = (last >= before) & (last > np.iinfo(np.int64).min)
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
    parts: dict[int, dict[str, list[Intervals]]] = {
        thread: {name: [] for name in (*HELD, "blocking")} for thread in threads.tolist()
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
                    parts[thread][name].append(intervals.union(starts[rows], ends[rows]))
    return {
        thread: {name: intervals.join(*pieces) for name, pieces in of.items()} for thread, of in parts.items()
    }


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
