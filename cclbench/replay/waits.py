# SPDX-License-Identifier: Apache-2.0
"""Who waited for whom, where no row says so: idle threads, streams that start at another's end, kernels that
wait for a place on the device, which another stream's kernel fills until its last blocks run.

What is found here is inferred from times and marked so.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from cclbench.ground.intervals import Int64, Mask, begins
from cclbench.normalize.cpu_host import RESUMED_NS

PROMPT_NS: Final = 30_000
"""A stream that waits for another's event starts within this much after it."""
_NEVER_NS: Final = 1 << 59
"""What ends so much later has no end in the trace."""
IDLE_NS: Final = 50_000
"""Stretches without a row that are shorter are the thread's own."""
TOLERANCE_NS: Final = 1_000
"""Clocks of host and device are no better than this."""
_EXACT_NS: Final = 1
_LOOK_BACK: Final = 8
_ROUNDED_NS: Final = 1_000
"""Begins and ends of rows are written in µs, rounded: one may begin so much before what released it ends."""
_DEEPEST: Final = 512
_TAIL: Final = 0.1
"""Share of a kernel in which its last blocks run and leave room for another's first."""
_LOOK_AHEAD: Final = 8


@dataclass(frozen=True, slots=True, eq=False)
class ThreadStretches:
    """Stretches of a thread in which no row begins or ends; the innermost row around each, −1 for none."""

    start: Int64
    end: Int64
    around: Int64


def thread_stretches(start: Int64, end: Int64, least: int = IDLE_NS) -> ThreadStretches:
    """Those of at least `least` ns among a thread's rows (which nest), in order of start."""
    rows = np.flatnonzero(end > start)
    n = len(rows)
    times = np.concatenate([start[rows], end[rows]])
    begins = np.repeat([True, False], n)
    row = np.tile(rows, 2)
    # at one time rows end before others begin, and outer ones begin first
    order = np.lexsort((-end[row], begins, times))
    times, begins, row = times[order], begins[order], row[order]
    at = np.flatnonzero(np.diff(times) >= least)
    depth = np.cumsum(np.where(begins, 1, -1))
    around = np.where(begins[at], row[at], -1)
    closed = np.flatnonzero(~begins[at])
    for level in np.unique(depth[at[closed]])[:_DEEPEST].tolist():
        at_level = closed[depth[at[closed]] == level]
        opened = np.flatnonzero(begins & (depth == level))
        if len(opened):
            around[at_level] = row[opened[np.searchsorted(opened, at[at_level]) - 1]]
    return ThreadStretches(times[at], times[at + 1], around)


@dataclass(frozen=True, slots=True, eq=False)
class DeviceLaunches:
    """A device's rows, arrays of shape (rows,): when each was launched, may start at the earliest, ran."""

    lane: Int64
    issue: Int64
    bound: Int64
    """The later of its launch's and its stream's readiness."""
    start: Int64
    end: Int64
    collective: Mask


@dataclass(frozen=True, slots=True, eq=False)
class RowWaits:
    """Rows (`source`) that others (`target`) waited for, and how long after their end those began, ns.

    `is_observed` are those that some row of the same two streams shows, the others are taken for granted.
    """

    source: Int64
    target: Int64
    lag: Int64
    is_observed: Mask


def between_streams(rows: DeviceLaunches, doubt: int, grain: int) -> RowWaits:
    """Waits of streams for others'.

    A row that starts later than its launch and stream explain waited for the row of another stream that
    ended last: by more than `doubt` ns and promptly, or by less and in the nanosecond in which that ended.
    Where a stream never started before what another had been given last, and waited for it at least once
    so, it always waits; a stream of collectives need not show that it does for the stream with most work,
    since libraries let a collective wait for what computes its input.  One clock has timed all streams, to
    `grain` ns: no row starts before the end of what it waits for by more.
    """
    cause = other_lane(rows, np.flatnonzero(rows.start > rows.bound), grain)
    lag = rows.start - rows.end[cause]
    is_delayed = rows.start > rows.bound + max(doubt, grain)
    if grain <= _EXACT_NS:
        is_delayed |= abs(lag) <= _EXACT_NS
    is_delayed &= cause >= 0
    busiest = _busiest_lane(rows)
    pairs = set(zip(rows.lane[is_delayed].tolist(), rows.lane[cause[is_delayed]].tolist(), strict=True))
    pairs |= {(lane, busiest) for lane in np.unique(rows.lane[rows.collective]).tolist() if lane != busiest}
    waits: list[tuple[Int64, Int64, Int64]] = []
    shown: list[Mask] = []
    explained = np.zeros(len(rows.start), np.bool_)
    for waiting, other in sorted(pairs):
        mine, last = _last_given(rows, waiting, other)
        after = rows.start[mine] - rows.end[last]
        binding = is_delayed[mine] & (cause[mine] == last)
        if (after < -grain).any():
            continue
        usual = int(np.median(after[binding])) if binding.any() else 0
        kept = begins(last) & (binding.any() | rows.collective[mine])
        waits.append((last[kept], mine[kept], np.minimum(usual, after[kept])))
        shown.append(np.full(len(waits[-1][0]), bool(binding.any())))
        explained[mine[binding & kept]] = True
    rest = np.flatnonzero(is_delayed & ~explained)
    waits.append((cause[rest], rest, lag[rest]))
    shown.append(is_delayed[rest])
    source, target, behind = (np.concatenate(column) for column in zip(*waits, strict=True))
    return RowWaits(source, target, behind, np.concatenate(shown))


def _busiest_lane(rows: DeviceLaunches) -> int:
    """The lane with most time of rows other than collectives, −1 for none."""
    not_collective = ~rows.collective
    if not not_collective.any():
        return -1
    return int(np.argmax(np.bincount(rows.lane[not_collective], (rows.end - rows.start)[not_collective])))


def _last_given(rows: DeviceLaunches, waiting: int, other: int) -> tuple[Int64, Int64]:
    """Rows of one lane in order of launch, and for each the row that the other lane had been given last."""
    mine, theirs = (
        at[np.argsort(rows.issue[at], kind="stable")]
        for at in (np.flatnonzero(rows.lane == lane) for lane in (waiting, other))
    )
    place = np.searchsorted(rows.issue[theirs], rows.issue[mine], side="left") - 1
    return mine[place >= 0], theirs[place[place >= 0]]


def other_lane(rows: DeviceLaunches, selection: Int64, grain: int) -> Int64:
    """For each selected row the last of another lane that ended promptly before its start, else −1."""
    order = np.argsort(rows.end, kind="stable")
    place = np.searchsorted(rows.end[order], rows.start[selection] + grain, side="right") - 1
    matches = np.full(len(selection), -1, np.int64)
    for _ in range(_LOOK_BACK):
        candidate = order[np.maximum(place, 0)]
        fits = (matches < 0) & (place >= 0) & (rows.lane[candidate] != rows.lane[selection])
        fits &= (rows.start[selection] - rows.end[candidate] <= PROMPT_NS) & (
            rows.issue[candidate] < rows.issue[selection]
        )
        fits &= rows.end[candidate] > rows.bound[selection]
        matches = np.where(fits, candidate, matches)
        place = place - 1
    by_row = np.full(len(rows.start), -1, np.int64)
    by_row[selection] = matches
    return by_row


def handed_over(thread: Int64, start: Int64, end: Int64, turns: Mask) -> tuple[Int64, Int64]:
    """Which idle stretches end with another thread's pause: pairs (stretch that pauses, stretch that ends).

    Threads that work in turns hand over: one's stretch begins shortly before another's ends.  Stretches of
    all threads, numbered from 0, shape (stretches,); a stretch that begins within the other's, up to
    RESUMED_NS before its end, and on another thread, is the one that released it; of two threads that take
    `turns`, shape (threads, threads), however long before its end.
    """
    order = np.argsort(start, kind="stable")
    place = np.searchsorted(start[order], end + _ROUNDED_NS, side="right") - 1
    releaser = np.full(len(start), -1, np.int64)
    for _ in range(_LOOK_BACK):
        candidate = order[np.maximum(place, 0)] if len(order) else place
        fits = (releaser < 0) & (place >= 0)
        fits &= (thread[candidate] != thread) & (start[candidate] >= start)
        patience = np.where(turns[thread, thread[candidate]], _NEVER_NS, RESUMED_NS)
        fits &= end - start[candidate] <= patience
        releaser = np.where(fits, candidate, releaser)
        place = place - 1
    resumed = np.flatnonzero(releaser >= 0)
    return releaser[resumed], resumed


def held_up(rows: DeviceLaunches, fills: Mask, late: Mask) -> tuple[Int64, Int64, Int64]:
    """Rows (source) that held others (target) up, and how long after their ends those began, a negative lag.

    A kernel that starts `late` for no other reason, in the last tenth of a kernel of another stream that was
    running when it was ready, had to wait for its last blocks.  `fills` are the kernels that can fill the
    device, with more blocks than it has processors: collectives have few, copies none.
    """
    target = np.flatnonzero(late)
    order = np.flatnonzero(fills)
    order = order[np.argsort(rows.end[order], kind="stable")]
    place = np.searchsorted(rows.end[order], rows.start[target], side="right")
    blocker = np.full(len(target), -1, np.int64)
    for ahead in range(_LOOK_AHEAD if len(order) else 0):
        at = place + ahead
        candidate = order[np.minimum(at, len(order) - 1)]
        left = rows.end[candidate] - rows.start[target]
        lasted = rows.end[candidate] - rows.start[candidate]
        fits = (blocker < 0) & (at < len(order)) & (rows.lane[candidate] != rows.lane[target])
        fits &= rows.start[candidate] <= rows.bound[target] + TOLERANCE_NS
        fits &= left <= np.maximum(lasted * _TAIL, np.minimum(PROMPT_NS, lasted))
        blocker = np.where(fits, candidate, blocker)
    source, target = blocker[blocker >= 0], target[blocker >= 0]
    return source, target, rows.start[target] - rows.end[source]
