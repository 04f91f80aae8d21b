# SPDX-License-Identifier: Apache-2.0
"""The nodes of a CPU-only rank: its threads with measured gaps, its transfers, and what ties them."""

from __future__ import annotations

from collections import Counter

import numpy as np

from cclbench.ground import intervals
from cclbench.ground.intervals import Int64, Mask
from cclbench.normalize.cpu_host import RESUMED_NS, Calls, cpu_causes, divide_by_cause
from cclbench.normalize.phases import LOADER
from cclbench.replay import nodes as n
from cclbench.replay.host import (
    HostInstants,
    HostPauses,
    Wait,
    add_boundaries,
    add_turns,
    host_threads,
    thread_pauses,
    time_within_rows,
)
from cclbench.replay.nodes import Edges, Nodes, RankNodes
from cclbench.replay.tables import GraphInput


def cpu_part(rank: GraphInput) -> RankNodes:
    """One rank's part of the graph.

    A transfer begins when its thread is free and its call was made; a thread that pauses until promptly
    after a transfer's end, or that of the library's thread, waits for it.  What a thread does besides
    keeps its measured time: `busy` is that of its operators, `held` the other time by cause.
    """
    inferred: Counter[str] = Counter()
    points, edges = HostInstants(), Edges()
    threads = host_threads(rank.work)
    calls = np.flatnonzero(_calls_library(rank))
    workers = np.setdiff1d(threads, _calling_threads(rank, calls))
    idle = thread_pauses(rank)
    of_worker = np.isin(idle.thread, workers)
    asked = _issue_points(rank, calls, np.isin(threads, workers), points, inferred)
    begin = points.add_instants(threads, rank.work.start)
    rests = points.add_instants(idle.thread[of_worker], idle.start[of_worker])
    waiting = idle.take_pauses(~of_worker)
    ended = np.concatenate([rank.work.end, idle.start[of_worker]])
    begun = np.concatenate([rank.work.start, idle.start[of_worker]])
    source, explained, lag = _awaited_transfers(waiting, ended, begun, inferred)
    points.add_instants(waiting.thread[explained], waiting.start[explained])
    nothing = np.zeros(len(explained), np.int64)
    back = points.add_instants(waiting.thread[explained], waiting.end[explained], nothing)
    handed = add_turns(waiting, explained, points, inferred)
    add_boundaries(rank, points)
    whole, place = _point_lanes(rank, points, begin)
    whole.held[:] = _thread_time_in_gaps(rank, np.unique(points.as_arrays()[0]), workers, whole)
    known = asked >= 0
    _by_call(whole, place[asked[known]], place[begin[known]], edges)
    edges.add_edges(np.concatenate([place[begin] + 1, place[rests]])[source], place[back], lag)
    for pause, go_on, after in handed:
        edges.add_edges(place[pause], place[go_on], after)
    return RankNodes(whole, rank.work.categories, rank.work.names, edges, inferred)


def _calls_library(rank: GraphInput) -> Mask:
    """Which rows of the host are calls of the communication library."""
    return rank.host.rows_matching("^c10d::")


def _thread_time_in_gaps(rank: GraphInput, threads: Int64, workers: Int64, nodes: Nodes) -> Int64:
    """What threads but the library's do in their nodes' gaps while they compute nothing, ns, shape
    (nodes, len(HOST_CAUSES)); the threads are those of the lanes."""
    host, thread_of = rank.host, host_threads(rank.host)
    calls, loads = _calls_library(rank), host.rows_matching(LOADER)
    rows = {
        "loader": loads & ~rank.computing,
        "sync": calls,
        "operators": ~rank.annotation & ~rank.computing & ~calls & ~loads,
    }
    second = rank.windows[1][1] if len(rank.windows) > 1 else None
    rest = "python" if rank.has_python else "unrecorded"
    found = np.zeros((len(nodes), len(n.HOST_CAUSES)), np.int64)
    for lane, thread in enumerate(threads.tolist()):
        here = np.flatnonzero((nodes.lane == lane) & (nodes.gap > 0))
        if thread in workers or not len(here):
            continue
        since, until = (nodes.start - nodes.gap)[here], nodes.start[here]
        own = thread_of == thread
        called = (rank.computing | calls) & own
        computing = intervals.union(host.start[rank.computing & own], host.end[rank.computing & own])
        ranges = {
            cause: intervals.union(host.start[chosen & own], host.end[chosen & own])
            for cause, chosen in rows.items()
        }
        causes = cpu_causes(Calls(host.start[called], host.end[called], host.name[called]), ranges, second)
        quiet = intervals.subtract(
            intervals.union(since.min(keepdims=True), until.max(keepdims=True)), computing
        )
        for cause, part in divide_by_cause(quiet, causes):
            column = n.HOST_CAUSES.index(rest if cause == "unrecorded" else cause)
            found[here, column] += intervals.within(part, since, until)
    return found


def _calling_threads(rank: GraphInput, calls: Int64) -> Int64:
    """Threads that call the library; where no call is there, the one with most rows."""
    threads = host_threads(rank.host)
    if len(calls):
        return np.asarray(np.unique(threads[calls]), np.int64)
    found, rows = np.unique(threads, return_counts=True)
    return np.asarray(found[rows == rows.max(initial=0)][:1], np.int64)


def _by_call(whole: Nodes, issue: Int64, arrival: Int64, edges: Edges) -> None:
    """A transfer follows the later of its call and what its thread did before, as far behind as measured."""
    before = whole.end[arrival - 1]  # a thread of the library rests before its first transfer, too
    lag = whole.start[arrival] - np.maximum(before, whole.start[issue])
    whole.gap[arrival] = lag
    whole.busy[arrival] = 0
    edges.add_edges(issue, arrival, lag)


def _issue_points(
    rank: GraphInput, calls: Int64, by_worker: Mask, points: HostInstants, inferred: Counter[str]
) -> Int64:
    """The point at which each transfer of the library's threads was asked for, −1 for none.

    That is its call's begin where there is one for each, in their order; else that of the last call
    before it, or where the caller then was.
    """
    order = np.argsort(rank.work.start, kind="stable")
    order = order[by_worker[order]]
    asked = np.full(len(rank.work), -1, np.int64)
    begun, starts = rank.work.start[order], rank.host.start[calls]
    if len(calls) == len(order) and (starts <= begun).all():
        asked[order] = points.add_instants(host_threads(rank.host)[calls], starts)
        inferred["transfers matched with calls by their order"] += len(order)
        return asked
    callers = _calling_threads(rank, calls)
    if len(callers) and len(order):
        last = np.searchsorted(starts, begun, side="right") - 1
        at = np.where(last >= 0, np.append(starts, 0)[last], begun)
        asked[order] = points.add_instants(np.full(len(order), callers[0]), at)
        inferred["transfers asked for by the call before them"] += len(order)
    return asked


def _awaited_transfers(waiting: HostPauses, ended: Int64, begun: Int64, inferred: Counter[str]) -> Wait:
    """Which of `ended` a pause waited for: (index of `ended`, pause, lag).

    That is what ended last in the pause, promptly before its end or in its second half, since a thread may
    have to wait for a core; else what ended promptly behind it, having `begun` before: the library's thread
    wakes the waiting one, and is recorded as done only afterwards.
    """
    if not len(ended):
        return ended, ended, ended
    by_end = np.argsort(ended, kind="stable")
    behind = np.searchsorted(ended[by_end], waiting.end, side="right")
    source = by_end[np.maximum(behind - 1, 0)]
    lag = waiting.end - ended[source]
    prompt = lag <= np.maximum(RESUMED_NS, (waiting.end - waiting.start) // 2)
    before = (behind > 0) & (ended[source] >= waiting.start) & prompt
    following = by_end[np.minimum(behind, len(ended) - 1)]
    after = ~before & (behind < len(ended)) & (ended[following] - waiting.end <= RESUMED_NS)
    after &= begun[following] < waiting.end
    source = np.where(after, following, source)
    at = np.flatnonzero(before | after)
    inferred["pauses that end with a transfer"] += len(at)
    return source[at], at, (waiting.end - ended[source])[at]


def _point_lanes(rank: GraphInput, points: HostInstants, begin: Int64) -> tuple[Nodes, Int64]:
    """Points as nodes, those at `begin` followed by their transfer's node; and the node of each point."""
    thread, time, own = points.as_arrays()
    work = np.full(len(time), -1, np.int64)
    work[begin] = np.arange(len(begin))
    order = np.lexsort((np.arange(len(time)), own < 0, time, thread))
    row = np.repeat(order, np.where(work[order] >= 0, 2, 1))
    begins = intervals.begins(row)
    of = work[row]
    lane = np.unique(thread[row], return_inverse=True)[1]
    start, end = time[row], np.where((of >= 0) & ~begins, np.append(rank.work.end, 0)[of], time[row])
    first = intervals.begins(lane)
    gap = np.where(first | ~begins, 0, start - np.roll(end, 1))
    gap = np.where(begins & (own[row] >= 0), own[row], gap)
    kind = np.where(of < 0, n.HOST, np.where(begins, n.ARRIVAL, n.TRANSFER))
    told = (rank.work.step, rank.work.category, rank.work.name, rank.work.row)
    step, category, name, call = (np.append(column, -1)[of] for column in told)
    whole = n.blank_nodes(
        len(row),
        rank=rank.rank,
        lane=lane,
        kind=kind,
        start=start,
        end=end,
        gap=gap,
        dur=end - start,
        busy=np.where(
            gap > 0,
            time_within_rows(rank.host, rank.computing, np.unique(thread), lane, start - gap, start),
            0,
        ),
        call=call,
        step=step,
        category=category,
        name=name,
    )
    return whole, np.flatnonzero(begins)[np.argsort(order)]
