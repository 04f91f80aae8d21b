# SPDX-License-Identifier: Apache-2.0
"""Idle time of the device by cause: each gap by the launch of the event that ends it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from cclbench.analyzers.view.launches import SINCE_EVER, LaunchCalls, device_events, previous_ends
from cclbench.ground import intervals
from cclbench.ground.intervals import Int64, Intervals, Mask

if TYPE_CHECKING:
    from cclbench.record.rank import Rank


@dataclass(frozen=True, slots=True, eq=False)
class LateLaunches:
    """Gaps that end with a late launch, in order; arrays of shape (gaps,), times in ns."""

    starts: Int64
    ends: Int64
    call: Int64
    """Index into the rank's launch calls."""


@dataclass(frozen=True, slots=True, eq=False)
class Idle:
    """Gaps between device events from the first window's start to the last one's end, by cause."""

    late: LateLaunches
    """The gaps of `host`, one by one."""
    host: Intervals
    device: Intervals
    unknown: Intervals
    any_launch: bool
    """Whether any event after a gap has a launch."""


def split_idle(
    tables: Rank,
    calls: LaunchCalls,
    first_calls: Int64,
    busy: Intervals,
    window_starts: Int64,
    window_ends: Int64,
) -> Idle:
    """Idle time of a rank, split by what the event after each gap waited for; `busy` is C∪K∪M.

    An event is launched when its call begins; for `first_calls`, indices of calls that load code before they
    launch, when the call returns, at the latest when the event begins.
    """
    first, last = (
        np.append(window_starts, busy.starts[:1]).min(),
        np.append(window_ends, busy.ends[-1:]).max(),
    )
    starts, ends = np.append(first, busy.ends), np.append(busy.starts, last)
    call, free = _next_events(tables, calls, busy)
    linked = call >= 0
    launched = np.full(len(call), SINCE_EVER)
    launched[linked] = calls.starts[call[linked]]
    loads = linked & np.isin(call, first_calls)
    launched[loads] = np.minimum(calls.ends[call[loads]], busy.starts[loads])
    late = launched > free

    def gaps(chosen: Mask, *, after_all: bool = False) -> Intervals:
        chosen_gaps = np.append(chosen, after_all)
        return intervals.union(starts[chosen_gaps], ends[chosen_gaps])

    return Idle(
        late=LateLaunches(starts[:-1][late], ends[:-1][late], call[late]),
        host=gaps(late),
        device=gaps(linked & ~late),
        unknown=gaps(~linked, after_all=True),
        any_launch=bool(linked.any()),
    )


def _next_events(tables: Rank, calls: LaunchCalls, busy: Intervals) -> tuple[Int64, Int64]:
    """Launch of the device event that begins each piece of `busy`, −1 where unknown, and the time since which
    its stream is free, `SINCE_EVER` for its first event; shape (pieces,).
    """
    events = device_events(tables)
    events = events.take_events(events.ends > events.starts)  # empty events occupy no stream
    events = events.take_events(np.lexsort((events.stream, events.starts)))
    event = np.searchsorted(events.starts, busy.starts)
    return calls.indices_of(events.correlations[event]), previous_ends(events.ends, events.stream)[event]
