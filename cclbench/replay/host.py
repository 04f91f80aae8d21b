# SPDX-License-Identifier: Apache-2.0
"""A rank's host threads as points: launches, waiting calls and their returns, pauses and resumptions."""

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
_BEFORE_NS: Final = 1_000_000
"""How long before a rank's first point stand those of pauses without a beginning."""

Wait = tuple[Int64, Int64, Int64]
"""Awaited and waiting item, and lag from the end of one to the other, ns; shape (waits,)."""
Waits = list[Wait]


@dataclass(slots=True, eq=False)
class HostInstants:
    """Points in time of host threads, numbered in the order in which they are added.

    `own_ns`: the thread's own time since the previous point, where it differs from the measured time: that of
    a waiting call without the wait; −1 elsewhere.
    """

    thread: list[Int64] = field(default_factory=list)
    time: list[Int64] = field(default_factory=list)
    own_ns: list[Int64] = field(default_factory=list)
    count: int = 0

    def add_instants(self, thread: Int64, time: Int64, own_ns: Int64 | None = None) -> Int64:
        """Add points and return their numbers."""
        self.thread.append(np.asarray(thread, np.int64))
        self.time.append(np.asarray(time, np.int64))
        self.own_ns.append(
            np.full(len(time), -1, np.int64) if own_ns is None else np.asarray(own_ns, np.int64)
        )
        self.count += len(time)
        return np.arange(self.count - len(time), self.count)

    def as_arrays(self) -> tuple[Int64, Int64, Int64]:
        """Thread, time and own time of all points, by number.

        Pauses before a thread's first row have no beginning: their points stand before all others.
        """
        empty = np.empty(0, np.int64)
        thread, time, own_ns = (
            np.concatenate([empty, *part]) for part in (self.thread, self.time, self.own_ns)
        )
        if len(time):
            first = time[time > time.max() - _AGES // 2].min()
            time = np.maximum(time, first - _BEFORE_NS)
        return thread, time, own_ns


@dataclass(frozen=True, slots=True, eq=False)
class HostPauses:
    """Pauses in which a thread neither computes nor calls; arrays of shape (pauses,)."""

    thread: Int64
    start: Int64
    end: Int64

    def take_pauses(self, chosen: Mask) -> HostPauses:
        """The pauses of the mask."""
        return HostPauses(self.thread[chosen], self.start[chosen], self.end[chosen])


def host_threads(rows: RankRows) -> Int64:
    """The thread of each host row."""
    return np.asarray(np.array([track for _, track in rows.lanes] or [0], np.int64)[rows.lane], np.int64)


def thread_pauses(rank: GraphInput) -> HostPauses:
    """All pauses of a rank's threads, including before the first and after the last row of a thread."""
    calls = [rank.launches, rank.syncs, rank.runtime, *([rank.work] if rank.on_host else [])]
    thread = np.concatenate([host_threads(rows) for rows in (rank.host, *calls)])
    start = np.concatenate([rows.start for rows in (rank.host, *calls)])
    end = np.concatenate([rows.end for rows in (rank.host, *calls)])
    busy = np.concatenate([rank.computing, np.ones(sum(map(len, calls)), np.bool_)])
    empty = np.empty(0, np.int64)
    pauses = [(empty, empty, empty)]
    for number in np.unique(thread).tolist():
        of_thread = np.flatnonzero(thread == number)
        of_thread = of_thread[np.lexsort((-end[of_thread], start[of_thread]))]
        stretches = thread_stretches(start[of_thread], end[of_thread])
        quiet = (stretches.around < 0) | ~busy[of_thread[stretches.around]]
        first, last = start[of_thread].min(), end[of_thread].max()
        begins = np.concatenate([[first - _AGES], stretches.start[quiet], [last]])
        ends = np.concatenate([[first], stretches.end[quiet], [last + _AGES]])
        pauses.append((np.full(len(begins), number, np.int64), begins, ends))
    return HostPauses(*(np.concatenate(column) for column in zip(*pauses, strict=True)))


def add_turns(idle: HostPauses, explained: Int64, points: HostInstants, inferred: Counter[str]) -> Waits:
    """Points and edges of threads that hand over to one another, without pauses whose end is explained.

    The time between one thread's pause and the other's resumption belongs to the pausing thread, which
    prepared the hand-over, unless it resumed before the other.
    """
    threads, number = np.unique(idle.thread, return_inverse=True)
    released, resumed = handed_over(
        number, idle.start, idle.end, _alternating_threads(idle, number, len(threads))
    )
    unexplained = ~np.isin(resumed, explained)
    released, resumed = released[unexplained], resumed[unexplained]
    if not len(released):
        return []
    pausing = idle.end[released] > idle.end[resumed]
    handed_at = np.where(pausing, idle.end[resumed], idle.start[released])
    pause = points.add_instants(idle.thread[released], handed_at)
    go_on = points.add_instants(idle.thread[resumed], idle.end[resumed], np.zeros(len(resumed), np.int64))
    inferred["threads that resume when another pauses"] += len(resumed)
    return [(pause, go_on, idle.end[resumed] - handed_at)]


def _alternating_threads(idle: HostPauses, number: Int64, threads: int) -> Mask:
    """Pairs of threads that are rarely active at the same time, shape (threads, threads)."""
    active = []
    for index in range(threads):
        of_thread = np.flatnonzero(number == index)
        of_thread = of_thread[np.argsort(idle.start[of_thread], kind="stable")]
        active.append(intervals.union(idle.end[of_thread[:-1]], idle.start[of_thread[1:]]))
    return take_turns(active)


def add_boundaries(rank: GraphInput, points: HostInstants) -> None:
    """Add points at the bounds of the rank's windows, on the threads of their annotations."""
    if rank.policy != "annotation":
        return
    at = np.flatnonzero(rank.annotation)
    thread = host_threads(rank.host)
    thread_of = {(int(rank.host.start[i]), int(rank.host.end[i])): int(thread[i]) for i in at.tolist()}
    for _, start, end in rank.windows:
        if (start, end) in thread_of:
            points.add_instants(np.full(2, thread_of[start, end]), np.array([start, end]))


def host_nodes(rank: GraphInput, points: HostInstants) -> tuple[Nodes, Int64]:
    """The points as nodes, each thread a lane, and the node of each point."""
    thread, time, own_ns = points.as_arrays()
    # a waiting call returns before what begins at the same time
    order = np.lexsort((np.arange(len(time)), own_ns < 0, time, thread))
    lane = np.unique(thread[order], return_inverse=True)[1]
    first = begins(lane)
    since = np.where(first, 0, np.diff(time[order], prepend=0))
    gap = np.where(own_ns[order] >= 0, own_ns[order], since)
    host_part = n.blank_nodes(
        len(order),
        rank=rank.rank,
        lane=lane,
        kind=n.HOST,
        start=time[order],
        end=time[order],
        gap=gap,
        held=_cause_time_in_lanes(rank, np.unique(thread), lane, time[order] - gap, time[order]),
    )
    return host_part, np.argsort(order)


def _cause_time_in_lanes(rank: GraphInput, threads: Int64, lane: Int64, since: Int64, until: Int64) -> Int64:
    """Time by cause of each lane's thread in a stretch of each node, ns, shape (nodes, len(HOST_CAUSES))."""
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
    cause_ns = np.zeros((len(lane), len(n.HOST_CAUSES)), np.int64)
    otherwise = n.HOST_CAUSES.index("python" if rank.has_python else "unrecorded")
    empty = np.empty(0, np.int64)
    for number, thread in enumerate(threads.tolist()):
        of_lane = np.flatnonzero(lane == number)
        since_ns, until_ns = np.minimum(since, until)[of_lane], until[of_lane]
        covered, explained = intervals.union(empty, empty), np.zeros(len(of_lane), np.int64)
        for cause, (calls, chosen) in rows.items():
            of_cause = chosen & (host_threads(calls) == thread)
            covered = intervals.join(covered, intervals.union(calls.start[of_cause], calls.end[of_cause]))
            reached = intervals.within(covered, since_ns, until_ns)
            cause_ns[of_lane, n.HOST_CAUSES.index(cause)] = reached - explained
            explained = reached
        cause_ns[of_lane, otherwise] = until_ns - since_ns - explained
    return cause_ns


def _cold_calls(rank: GraphInput) -> tuple[RankRows, Mask]:
    """Runtime calls, without waits, and operators; and which of them are cold."""
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
    maybe_cold = np.array([*(may_be_cold(name) for name in host.names), False], np.bool_)[host.name]
    operators = host.take_rows(np.flatnonzero(maybe_cold & ~rank.annotation))
    cold_rows = cold_operators(
        (operators.name.astype(np.int64), host_threads(operators), operators.start, operators.end),
        (host_threads(waits), waits.start, waits.end),
        until,
    )
    return join_rows([rows, operators]), np.concatenate([cold, cold_rows])


def time_within_rows(
    rows: RankRows, chosen: Mask, threads: Int64, lane: Int64, since: Int64, until: Int64
) -> Int64:
    """Time of each lane's thread in the chosen rows, in a stretch of each node, ns, shape (nodes,)."""
    thread_of = host_threads(rows)
    within_ns = np.zeros(len(lane), np.int64)
    for number, thread in enumerate(threads.tolist()):
        of_thread = chosen & (thread_of == thread)
        if not of_thread.any():
            continue
        busy = intervals.union(rows.start[of_thread], rows.end[of_thread])
        in_lane = lane == number
        within_ns[in_lane] = intervals.within(busy, np.minimum(since, until)[in_lane], until[in_lane])
    return within_ns
