# SPDX-License-Identifier: Apache-2.0
"""Why the device is idle: each gap by the launch of the device event that ends it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from cclbench import intervals
from cclbench.analyzers.view.launches import LaunchCalls, device_events, previous_ends
from cclbench.intervals import Int64, Intervals, Mask

if TYPE_CHECKING:
    from cclbench.record.run import Rank


@dataclass(frozen=True, slots=True, eq=False)
class LateLaunches:
    """Gaps that end with an event which was launched late, in order; arrays of shape (gaps,), times in ns."""

    starts: Int64
    ends: Int64
    call: Int64
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
    tables: Rank, calls: LaunchCalls, busy: Intervals, window_starts: Int64, window_ends: Int64
) -> Idle:
    """The idle time of a rank, split by what the event that ends each gap waited for; `busy` is C∪K∪M."""
    gap_starts = np.append(np.append(window_starts, busy.starts).min(), busy.ends)
    gap_ends = np.append(busy.starts, np.append(window_ends, busy.ends).max())
    call, free = _launch_and_free(tables, calls, busy.starts)
    known = call >= 0
    late = np.zeros(len(call), np.bool_)
    late[known] = calls.starts[call[known]] > free[known]

    def gaps(chosen: Mask, *, last: bool = False) -> Intervals:
        chosen = np.append(chosen, last)
        return intervals.union(gap_starts[chosen], gap_ends[chosen])

    return Idle(
        late=LateLaunches(gap_starts[:-1][late], gap_ends[:-1][late], call[late]),
        host=gaps(late),
        device=gaps(known & ~late),
        unknown=gaps(~known, last=True),
        any_launch=bool(known.any()),
    )


def _launch_and_free(tables: Rank, calls: LaunchCalls, at: Int64) -> tuple[Int64, Int64]:
    """Of the device event that starts at each of `at`: the index of its launch and when its stream was free.

    Sorted `at` of shape (gaps,) gives two arrays of that shape; an unknown launch is −1, a stream without an
    earlier event is free since its beginning.
    """
    events = device_events(tables)
    events = events.where(events.ends > events.starts)  # what has no length occupies no stream
    by_start = np.lexsort((events.stream, events.starts))
    first = np.searchsorted(events.starts[by_start], at, side="left")
    launch = calls.of(events.correlations[by_start[first]])
    return launch, previous_ends(events.ends[by_start], events.stream[by_start])[first]
