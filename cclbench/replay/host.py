# SPDX-License-Identifier: Apache-2.0
"""A rank's host threads as points: launches, calls that wait and their returns, pauses and resumptions."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cclbench.ground import intervals
from cclbench.ground.intervals import Int64, Mask, begins
from cclbench.normalize.host_calls import (
    ALLOCATES,
    LOADS,
    cold_calls,
    cold_operators,
    may_be_cold,
    take_turns,
)
from cclbench.normalize.phases import LOADER
from cclbench.replay import nodes as n
from cclbench.replay.nodes import Nodes
from cclbench.replay.tables import GraphInput, RankRows, join_rows
from cclbench.replay.waits import handed_over, thread_stretches

_AGES: Final = 1 << 60

Wait = tuple[Int64, Int64, Int64]
"""What is waited for, what waits, and how long after the one's end the other goes on, ns; shape (waits,)."""
Found = list[Wait]


@dataclass(slots=True, eq=False)
class HostInstants:
    """Instants of host threads; each is added with its thread, and has a number.

    `own` is the thread's own time up to the point since the one before, where that is not simply what was
    measured between them: what a waiting call itself takes.
    """

    thread: list[Int64] = field(default_factory=list)
    time: list[Int64] = field(default_factory=list)
    own: list[Int64] = field(default_factory=list)
    count: int = 0

    def add_instants(self, thread: Int64, time: Int64, own: Int64 | None = None) -> Int64:
        """The numbers of new points."""
        self.thread.append(np.asarray(thread, np.int64))
        self.time.append(np.asarray(time, np.int64))
        self.own.append(np.full(len(time), -1, np.int64) if own is None else np.asarray(own, np.int64))
        self.count += len(time)
        return np.arange(self.count - len(time), self.count)

    def as_arrays(self) -> tuple[Int64, Int64, Int64]:
        """Thread, time and own of all points, by number."""
        empty = np.empty(0, np.int64)
        thread, time, own = (np.concatenate([empty, *part]) for part in (self.thread, self.time, self.own))
        return thread, time, own


@dataclass(frozen=True, slots=True, eq=False)
class HostPauses:
    """Stretches in which a thread neither computes nor calls, arrays of shape (stretches,)."""

    thread: Int64
    start: Int64
    end: Int64

    def take_pauses(self, chosen: Mask) -> HostPauses:
        """Some of them."""
        return HostPauses(self.thread[chosen], self.start[chosen], self.end[chosen])


def host_threads(rows: RankRows) -> Int64:
    """The thread of each host row."""
    return np.asarray(np.array([track for _, track in rows.lanes] or [0], np.int64)[rows.lane], np.int64)


def thread_pauses(rank: GraphInput) -> HostPauses:
    """All pauses of a rank's threads; before a thread's first row and behind its last one it pauses too."""
    calls = [rank.launches, rank.syncs, rank.runtime, *([rank.work] if rank.on_host else [])]
    thread = np.concatenate([host_threads(rows) for rows in (rank.host, *calls)])
    start = np.concatenate([rows.start for rows in (rank.host, *calls)])
    end = np.concatenate([rows.end for rows in (rank.host, *calls)])
    busy = np.concatenate([rank.computing, np.ones(sum(map(len, calls)), np.bool_)])
    empty = np.empty(0, np.int64)
    found = [(empty, empty, empty)]
    for one in np.unique(thread).tolist():
        mine = np.flatnonzero(thread == one)
        mine = mine[np.lexsort((-end[mine], start[mine]))]
        own = thread_stretches(start[mine], end[mine])
        quiet = (own.around < 0) | ~busy[mine[own.around]]
        first, last = start[mine].min(), end[mine].max()
        begins = np.concatenate([[first - _AGES], own.start[quiet], [last]])
        ends = np.concatenate([[first], own.end[quiet], [last + _AGES]])
        found.append((np.full(len(begins), one, np.int64), begins, ends))
    return HostPauses(*(np.concatenate(column) for column in zip(*found, strict=True)))


def add_turns(idle: HostPauses, explained: Int64, points: HostInstants, inferred: Counter[str]) -> Found:
    """Points and edges of threads that hand over to one another, without pauses whose end is explained.

    What lies between the one's pause and the other's resumption is the pausing thread's own time, in which it
    prepared what it handed over, unless it went on before the other.
    """
    threads, number = np.unique(idle.thread, return_inverse=True)
    released, resumed = handed_over(
        number, idle.start, idle.end, _alternating_threads(idle, number, len(threads))
    )
    kept = ~np.isin(resumed, explained)
    released, resumed = released[kept], resumed[kept]
    if not len(released):
        return []
    pausing = idle.end[released] > idle.end[resumed]
    handed = np.where(pausing, idle.end[resumed], idle.start[released])
    pause = points.add_instants(idle.thread[released], handed)
    go_on = points.add_instants(idle.thread[resumed], idle.end[resumed], np.zeros(len(resumed), np.int64))
    inferred["threads that go on when another pauses"] += len(resumed)
    return [(pause, go_on, idle.end[resumed] - handed)]


def _alternating_threads(idle: HostPauses, number: Int64, threads: int) -> Mask:
    """Which threads are hardly ever active at the same time, shape (threads, threads)."""
    active = []
    for one in range(threads):
        own = np.flatnonzero(number == one)
        own = own[np.argsort(idle.start[own], kind="stable")]
        active.append(intervals.union(idle.end[own[:-1]], idle.start[own[1:]]))
    return take_turns(active)


def add_boundaries(rank: GraphInput, points: HostInstants) -> None:
    """Points at the bounds of the rank's windows, on the threads whose annotations they are."""
    if rank.policy != "annotation":
        return
    at = np.flatnonzero(rank.annotation)
    thread = host_threads(rank.host)
    known = {(int(rank.host.start[i]), int(rank.host.end[i])): int(thread[i]) for i in at.tolist()}
    for _, start, end in rank.windows:
        if (start, end) in known:
            points.add_instants(np.full(2, known[start, end]), np.array([start, end]))


def host_nodes(rank: GraphInput, points: HostInstants) -> tuple[Nodes, Int64]:
    """The points as nodes, each thread a lane, and the node of each point."""
    thread, time, own = points.as_arrays()
    # a call that waited has returned before what begins at the same time
    order = np.lexsort((np.arange(len(time)), own < 0, time, thread))
    lane = np.unique(thread[order], return_inverse=True)[1]
    first = begins(lane)
    since = np.where(first, 0, np.diff(time[order], prepend=0))
    gap = np.where(own[order] >= 0, own[order], since)
    made = n.blank_nodes(
        len(order),
        rank=rank.rank,
        lane=lane,
        kind=n.HOST,
        start=time[order],
        end=time[order],
        gap=gap,
        held=_cause_time_in_lanes(rank, np.unique(thread), lane, time[order] - gap, time[order]),
    )
    return made, np.argsort(order)


def _cause_time_in_lanes(rank: GraphInput, threads: Int64, lane: Int64, since: Int64, until: Int64) -> Int64:
    """What each lane's thread does in a stretch of each node, ns, shape (nodes, len(HOST_CAUSES))."""
    calls, cold = _cold_calls(rank)
    loading = rank.host.rows_matching(LOADER)
    rows = {
        "cold_start": (calls, cold),
        "allocation": (rank.runtime, rank.runtime.rows_matching(f"^{ALLOCATES.pattern}")),
        "loader": (rank.host, loading),
        "sync": (rank.syncs, np.ones(len(rank.syncs), np.bool_)),
        "launch": (rank.launches, np.ones(len(rank.launches), np.bool_)),
        "operators": (rank.host, ~rank.annotation & ~loading),
    }
    found = np.zeros((len(lane), len(n.HOST_CAUSES)), np.int64)
    rest = n.HOST_CAUSES.index("python" if rank.has_python else "unrecorded")
    empty = np.empty(0, np.int64)
    for number, thread in enumerate(threads.tolist()):
        here = np.flatnonzero(lane == number)
        begun, ended = np.minimum(since, until)[here], until[here]
        covered, explained = intervals.union(empty, empty), np.zeros(len(here), np.int64)
        for cause, (calls, chosen) in rows.items():
            own = chosen & (host_threads(calls) == thread)
            covered = intervals.join(covered, intervals.union(calls.start[own], calls.end[own]))
            reached = intervals.within(covered, begun, ended)
            found[here, n.HOST_CAUSES.index(cause)] = reached - explained
            explained = reached
        found[here, rest] = ended - begun - explained
    return found


def _cold_calls(rank: GraphInput) -> tuple[RankRows, Mask]:
    """All calls of the runtime but those that wait, and operators; which of them are cold."""
    rows = join_rows([rank.launches, rank.runtime])
    launched = pc.index_in(pa.array(rank.launches.correlation), pa.array(rank.work.correlation))
    at = launched.fill_null(-1).to_numpy()
    kernel = np.full(len(rows), -1, np.int64)
    kernel[: len(at)] = np.where(rank.launches.correlation >= 0, np.append(rank.work.name, -1)[at], -1)
    until = rank.windows[1][1] if len(rank.windows) > 1 else None
    cold = cold_calls(
        rows.name.astype(np.int64),
        kernel,
        rows.start,
        rows.end - rows.start,
        rows.rows_matching(f"^{ALLOCATES.pattern}"),
        rows.rows_matching(f"^(?:{LOADS.pattern})"),
        until,
    )
    if rank.on_host:
        return rows, cold
    host, waits = rank.host, join_rows([rows, rank.syncs])
    told = np.array([*(may_be_cold(name) for name in host.names), False], np.bool_)[host.name]
    operators = host.take_rows(np.flatnonzero(told & ~rank.annotation))
    cold_rows = cold_operators(
        (operators.name.astype(np.int64), host_threads(operators), operators.start, operators.end),
        (host_threads(waits), waits.start, waits.end),
        until,
    )
    return join_rows([rows, operators]), np.concatenate([cold, cold_rows])


def time_within_rows(
    rows: RankRows, chosen: Mask, threads: Int64, lane: Int64, since: Int64, until: Int64
) -> Int64:
    """ns in which each lane's thread is in one of those rows, of a stretch of each node, shape (nodes,)."""
    own = host_threads(rows)
    found = np.zeros(len(lane), np.int64)
    for number, thread in enumerate(threads.tolist()):
        of_thread = chosen & (own == thread)
        if not of_thread.any():
            continue
        busy = intervals.union(rows.start[of_thread], rows.end[of_thread])
        here = lane == number
        found[here] = intervals.within(busy, np.minimum(since, until)[here], until[here])
    return found
