# SPDX-License-Identifier: Apache-2.0
"""A rank's host threads as points: launches, calls that wait and their returns, pauses and resumptions."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from cclbench.intervals import Int64, Mask
from cclbench.replay.tables import RankRows, Rows
from cclbench.replay.waits import Stretches, handed_over, stretches

_AGES: int = 1 << 60


@dataclass(slots=True, eq=False)
class Points:
    """Instants of host threads; each is added with its thread, and has a number.

    `own` is the thread's own time up to the point since the one before, where that is not simply what was
    measured between them: what a waiting call itself takes.
    """

    thread: list[Int64] = field(default_factory=list)
    time: list[Int64] = field(default_factory=list)
    own: list[Int64] = field(default_factory=list)
    count: int = 0

    def add(self, thread: Int64, time: Int64, own: Int64 | None = None) -> Int64:
        """The numbers of new points."""
        self.thread.append(np.asarray(thread, np.int64))
        self.time.append(np.asarray(time, np.int64))
        self.own.append(np.full(len(time), -1, np.int64) if own is None else np.asarray(own, np.int64))
        self.count += len(time)
        return np.arange(self.count - len(time), self.count)

    def arrays(self) -> tuple[Int64, Int64, Int64]:
        """Thread, time and own of all points, by number."""
        empty = np.empty(0, np.int64)
        thread, time, own = (np.concatenate([empty, *part]) for part in (self.thread, self.time, self.own))
        return thread, time, own


@dataclass(frozen=True, slots=True, eq=False)
class Pauses:
    """Stretches in which a thread neither computes nor calls, arrays of shape (stretches,)."""

    thread: Int64
    start: Int64
    end: Int64

    def at(self, chosen: Mask) -> Pauses:
        """Some of them."""
        return Pauses(self.thread[chosen], self.start[chosen], self.end[chosen])


def tracks(rows: Rows) -> Int64:
    """The thread of each host row."""
    return np.asarray(np.array([track for _, track in rows.lanes] or [0], np.int64)[rows.lane], np.int64)


def pauses(rank: RankRows) -> Pauses:
    """All pauses of a rank's threads; before a thread's first row and behind its last one it pauses too."""
    calls = [rank.launches, rank.syncs, *([rank.work] if rank.on_host else [])]
    thread = np.concatenate([tracks(rows) for rows in (rank.host, *calls)])
    start = np.concatenate([rows.start for rows in (rank.host, *calls)])
    end = np.concatenate([rows.end for rows in (rank.host, *calls)])
    busy = np.concatenate([rank.computing, np.ones(sum(map(len, calls)), np.bool_)])
    found: list[tuple[int, Stretches]] = []
    for one in np.unique(thread).tolist():
        mine = np.flatnonzero(thread == one)
        mine = mine[np.lexsort((-end[mine], start[mine]))]
        own = stretches(start[mine], end[mine])
        quiet = (own.around < 0) | ~busy[mine[own.around]]
        first, last = start[mine].min(), end[mine].max()
        found.append(
            (
                one,
                Stretches(
                    np.concatenate([[first - _AGES], own.start[quiet], [last]]),
                    np.concatenate([[first], own.end[quiet], [last + _AGES]]),
                    np.concatenate([[-1], own.around[quiet], [-1]]),
                ),
            )
        )
    empty = np.empty(0, np.int64)
    return Pauses(
        np.concatenate([empty, *(np.full(len(s.start), t, np.int64) for t, s in found)]),
        np.concatenate([empty, *(s.start for _, s in found)]),
        np.concatenate([empty, *(s.end for _, s in found)]),
    )


def turns(idle: Pauses, skip: Int64) -> tuple[Int64, Int64]:
    """Pairs of pauses (one that begins, one that it ends), without those whose end is explained already."""
    released, resumed = handed_over(idle.thread, idle.start, idle.end)
    kept = ~np.isin(resumed, skip)
    return released[kept], resumed[kept]
