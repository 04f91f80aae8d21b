# SPDX-License-Identifier: Apache-2.0
"""Why the device is idle: each gap by the launch of the device event that ends it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from cclbench import intervals
from cclbench.analyzers.view.launches import (
    ROWS_AT_ONCE,
    SINCE_EVER,
    LaunchCalls,
    device_events,
    previous_ends,
)
from cclbench.disk_columns import DiskTable, release
from cclbench.disk_order import cuts, parted
from cclbench.intervals import Index, Int64, Intervals, Successive

if TYPE_CHECKING:
    from cclbench.record.rank import Rank


@dataclass(frozen=True, slots=True, eq=False)
class LateLaunches:
    """Gaps that end with an event which was launched late, in order; arrays of shape (gaps,), times in ns."""

    starts: Int64
    ends: Int64
    call: Index
    """Index of the launch among the rank's launch calls."""


@dataclass(frozen=True, slots=True, eq=False)
class Idle:
    """The gaps between device events from the first window's start to the last one's end, by cause."""

    late: LateLaunches
    """The gaps of `host`, one by one."""
    host: Intervals
    device: Intervals
    unknown: Intervals
    any_launch: bool
    """Whether any gap's event has a launch record at all."""


def split(
    tables: Rank,
    calls: LaunchCalls,
    first_calls: Int64,
    busy: Intervals,
    window_starts: Int64,
    window_ends: Int64,
) -> Idle:
    """The idle time of a rank, split by what the event that ends each gap waited for; `busy` is C∪K∪M.

    An event is launched when its call begins.  Of `first_calls`, indices of calls that take long before they
    launch (they load code), it is when the call returns, at the latest as the event begins.
    """
    first, last = (
        np.append(window_starts, busy.starts[:1]).min(),
        np.append(window_ends, busy.ends[-1:]).max(),
    )
    late = DiskTable(starts=np.int64, ends=np.int64, call=np.int32)
    host, device, unknown = Successive(), Successive(), Successive()
    any_launch = False
    for gaps, call, free in _gaps(tables, calls, busy, first):
        known = call >= 0
        any_launch |= bool(known.any())
        is_late = np.zeros(len(call), np.bool_)
        starts, ends = gaps
        launched = calls.starts[call[known]]
        loads = np.isin(call[known], first_calls)
        launched[loads] = np.minimum(calls.ends[call[known][loads]], ends[known][loads])
        is_late[known] = launched > free[known]
        release(calls)
        late.append(starts=starts[is_late], ends=ends[is_late], call=call[is_late])
        for into, chosen in ((host, is_late), (device, known & ~is_late), (unknown, ~known)):
            into.add(intervals.union(starts[chosen], ends[chosen]))
    unknown.add(intervals.union(np.append(busy.ends[-1:], first)[:1], np.array([last])))
    return Idle(
        late=LateLaunches(late["starts"], late["ends"], late["call"]),
        host=host.whole(),
        device=device.whole(),
        unknown=unknown.whole(),
        any_launch=any_launch,
    )


def _gaps(
    tables: Rank, calls: LaunchCalls, busy: Intervals, first: int
) -> Iterator[tuple[tuple[Int64, Int64], Int64, Int64]]:
    """The gaps before the pieces of `busy`, in order; of the device event that ends each one the index of its
    launch, −1 where that is unknown, and when its stream was free.

    The first gap begins at `first`; a stream without an earlier event is free since its beginning.
    """
    events = device_events(tables)
    parts = cuts(ROWS_AT_ONCE, events.starts)
    begin, end = 0, first
    free_since = np.full(len(events.streams), SINCE_EVER)
    streams = np.arange(len(events.streams), dtype=np.int32)
    for until, rows in zip(
        [*np.searchsorted(busy.starts, parts), len(busy)], parted(events.starts, parts), strict=True
    ):
        own = events.where(rows)
        own = own.where(own.ends > own.starts)  # what has no length occupies no stream
        own = own.where(np.lexsort((own.stream, own.starts)))
        release(events)
        previous = previous_ends(np.append(free_since, own.ends), np.append(streams, own.stream))
        free = previous[len(streams) :]
        np.maximum.at(free_since, own.stream, own.ends)
        at = busy.starts[begin:until]
        ends = np.append(end, busy.ends[begin:until])
        begin, end = until, ends[-1]
        place = np.searchsorted(own.starts, at, side="left")
        yield (ends[:-1], at), calls.of(own.correlations[place]), free[place]
        release(busy)
