# SPDX-License-Identifier: Apache-2.0
"""Who waited for whom, where no row says so: idle threads, and streams that start at another's end.

What is found here is inferred from times and marked so.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from cclbench.intervals import Int64

PROMPT_NS: Final = 30_000
"""A stream that waits for another's event starts within this much after it."""
RESUMED_NS: Final = 1_000_000
"""A thread that waits for another goes on within this much after it."""
IDLE_NS: Final = 50_000
"""Stretches without a row that are shorter are the thread's own."""
TOLERANCE_NS: Final = 1_000
"""Clocks of host and device are no better than this."""
_LOOK_BACK: Final = 8
_DEEPEST: Final = 512


@dataclass(frozen=True, slots=True, eq=False)
class Stretches:
    """Stretches of a thread in which no row begins or ends; the innermost row around each, −1 for none."""

    start: Int64
    end: Int64
    around: Int64


def stretches(start: Int64, end: Int64, least: int = IDLE_NS) -> Stretches:
    """Those of at least `least` ns among a thread's rows (which nest), in order of start."""
    rows = np.flatnonzero(end > start)
    n = len(rows)
    times = np.concatenate([start[rows], end[rows]])
    begins = np.repeat([True, False], n)
    row = np.tile(rows, 2)
    # at one time rows end before others begin, inner ones first, and outer ones begin first
    order = np.lexsort((np.where(begins, -end[row], -start[row]), begins, times))
    times, begins, row = times[order], begins[order], row[order]
    at = np.flatnonzero(np.diff(times) >= least)
    if not len(at):
        return Stretches(times[:0], times[:0], row[:0])
    depth = np.cumsum(np.where(begins, 1, -1))
    around = np.where(begins[at], row[at], -1)
    closed = np.flatnonzero(~begins[at])
    for level in np.unique(depth[at[closed]])[:_DEEPEST].tolist():
        here = closed[depth[at[closed]] == level]
        opened = np.flatnonzero(begins & (depth == level))
        if level > 0 and len(opened):
            around[here] = row[opened[np.searchsorted(opened, at[here]) - 1]]
    return Stretches(times[at], times[at + 1], around)


@dataclass(frozen=True, slots=True, eq=False)
class Issued:
    """A device's rows, arrays of shape (rows,): when each was launched, may start at the earliest, ran."""

    lane: Int64
    issue: Int64
    bound: Int64
    """The later of its launch's and its stream's readiness."""
    start: Int64
    end: Int64


@dataclass(frozen=True, slots=True, eq=False)
class Waits:
    """Rows (`source`) that others (`target`) waited for, and how long after their end those began, ns."""

    source: Int64
    target: Int64
    lag: Int64


def between_streams(rows: Issued) -> Waits:
    """Waits of streams for others'.

    A row that starts later than its launch and stream explain, promptly after a row of another stream
    ended, waited for that.  Where a stream never started before what another had been given last, and
    waited for it at least once so, it always waits.
    """
    late = rows.start > rows.bound + TOLERANCE_NS
    sources, targets, lags = [], [], []
    explained = np.zeros(len(rows.start), np.bool_)
    for waiting in np.unique(rows.lane).tolist():
        mine = np.flatnonzero(rows.lane == waiting)
        mine = mine[np.argsort(rows.issue[mine], kind="stable")]
        for other in np.unique(rows.lane).tolist():
            if other == waiting:
                continue
            theirs = np.flatnonzero(rows.lane == other)
            theirs = theirs[np.argsort(rows.issue[theirs], kind="stable")]
            place = np.searchsorted(rows.issue[theirs], rows.issue[mine], side="left") - 1
            known = mine[place >= 0]
            last = theirs[place[place >= 0]]
            lag = rows.start[known] - rows.end[last]
            binding = late[known] & (lag >= -TOLERANCE_NS) & (lag <= PROMPT_NS)
            if not binding.any() or (lag < -TOLERANCE_NS).any():
                continue
            fresh = np.diff(last, prepend=-1) != 0
            usual = int(np.median(np.maximum(lag[binding], 0)))
            sources.append(last[fresh])
            targets.append(known[fresh])
            lags.append(np.minimum(usual, np.maximum(lag[fresh], 0)))
            explained[known[binding & fresh]] = True
    rest = np.flatnonzero(late & ~explained)
    if len(rest):
        found = _other_lane(rows, rest)
        at = found >= 0
        sources.append(found[at])
        targets.append(rest[at])
        lags.append(rows.start[rest[at]] - rows.end[found[at]])
    empty = np.empty(0, np.int64)
    return Waits(*(np.concatenate([empty, *part]) for part in (sources, targets, lags)))


def _other_lane(rows: Issued, wanted: Int64) -> Int64:
    """For each wanted row the last of another lane that ended promptly before its start; −1 for none."""
    order = np.argsort(rows.end, kind="stable")
    place = np.searchsorted(rows.end[order], rows.start[wanted] + TOLERANCE_NS, side="right") - 1
    found = np.full(len(wanted), -1, np.int64)
    for _ in range(_LOOK_BACK):
        candidate = order[np.maximum(place, 0)]
        fits = (found < 0) & (place >= 0) & (rows.lane[candidate] != rows.lane[wanted])
        fits &= (rows.start[wanted] - rows.end[candidate] <= PROMPT_NS) & (
            rows.issue[candidate] < rows.issue[wanted]
        )
        fits &= rows.end[candidate] > rows.bound[wanted]
        found = np.where(fits, candidate, found)
        place = place - 1
    return found


def handed_over(thread: Int64, start: Int64, end: Int64) -> tuple[Int64, Int64]:
    """Which idle stretches end with another thread's pause: pairs (stretch that pauses, stretch that ends).

    Threads that work in turns hand over: one's stretch begins shortly before another's ends.  Stretches of
    all threads, shape (stretches,); a stretch that begins within the other's, up to RESUMED_NS before its
    end, and on another thread, is the one that released it.
    """
    order = np.argsort(start, kind="stable")
    place = np.searchsorted(start[order], end, side="right") - 1
    found = np.full(len(start), -1, np.int64)
    for _ in range(_LOOK_BACK):
        candidate = order[np.maximum(place, 0)] if len(order) else place
        fits = (found < 0) & (place >= 0)
        if not fits.any():
            break
        fits &= (thread[candidate] != thread) & (start[candidate] >= start)
        fits &= end - start[candidate] <= RESUMED_NS
        found = np.where(fits, candidate, found)
        place = place - 1
    resumed = np.flatnonzero(found >= 0)
    return found[resumed], resumed
