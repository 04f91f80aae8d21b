# SPDX-License-Identifier: Apache-2.0
"""Graph nodes of a CPU-only rank: threads with measured gaps, transfers, and their dependencies."""

from __future__ import annotations

import heapq
from collections import Counter
from dataclasses import replace

import numpy as np

from cclbench.ground import intervals
from cclbench.ground.intervals import Int64, Mask
from cclbench.normalize.cpu_host import RESUMED_NS, ThreadCalls, cpu_causes, divide_by_cause
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
from cclbench.replay.tables import GraphInput, RankRows


def cpu_part(rank: GraphInput) -> RankNodes:
    """One rank's part of the graph.

    A transfer begins when its thread is free and its call was made. A thread whose pause ends promptly after
    a transfer, or after a pause of the library's thread, waits for it. Other work keeps its measured time:
    `busy` is that of operators, `held` the other time by cause.
    """
    rank = replace(rank, work=_with_request_lanes(rank))
    inferred: Counter[str] = Counter()
    points, edges = HostInstants(), Edges()
    threads = host_threads(rank.work)
    calls = np.flatnonzero(_calls_library(rank))
    workers = np.setdiff1d(threads, _calling_threads(rank, calls))
    idle = thread_pauses(rank)
    of_worker = np.isin(idle.thread, workers)
    requested = _issue_points(rank, calls, np.isin(threads, workers), points, inferred)
    begin = points.add_instants(threads, rank.work.start)
    worker_pauses = points.add_instants(idle.thread[of_worker], idle.start[of_worker])
    waiting = idle.take_pauses(~of_worker)
    ends = np.concatenate([rank.work.end, idle.start[of_worker]])
    starts = np.concatenate([rank.work.start, idle.start[of_worker]])
    source, explained, lag = _awaited_transfers(waiting, ends, starts, inferred)
    points.add_instants(waiting.thread[explained], waiting.start[explained])
    zeros = np.zeros(len(explained), np.int64)
    back = points.add_instants(waiting.thread[explained], waiting.end[explained], zeros)
    turns = add_turns(waiting, explained, points, inferred)
    add_boundaries(rank, points)
    nodes, place = _point_lanes(rank, points, begin)
    nodes.held[:] = _thread_time_in_gaps(rank, np.unique(points.as_arrays()[0]), workers, nodes)
    has_request = requested >= 0
    _by_call(nodes, place[requested[has_request]], place[begin[has_request]], edges)
    edges.add_edges(np.concatenate([place[begin] + 1, place[worker_pauses]])[source], place[back], lag)
    for pause, go_on, lag_ns in turns:
        edges.add_edges(place[pause], place[go_on], lag_ns)
    return RankNodes(nodes, rank.work.categories, rank.work.names, edges, inferred)


def _calls_library(rank: GraphInput) -> Mask:
    """Mask of the host rows that are calls of the communication library."""
    return rank.host.rows_matching("^c10d::")


def _with_request_lanes(rank: GraphInput) -> RankRows:
    """The rank's transfers; those that end after the call that began them are on lanes of their own.

    Such a request (an isend or irecv) is in flight while its thread does something else, also further
    requests: transfers of one lane, however, are one after the other.
    """
    work, host, calls = rank.work, rank.host, np.flatnonzero(_calls_library(rank))
    thread, thread_of = host_threads(work), host_threads(host)
    in_flight = np.zeros(len(work), np.bool_)
    for number in np.unique(thread_of[calls]).tolist():
        thread_calls = calls[thread_of[calls] == number]
        call = np.searchsorted(host.start[thread_calls], work.start, side="right") - 1
        returned = host.end[thread_calls[np.maximum(call, 0)]]
        in_flight |= (thread == number) & (call >= 0) & (work.start <= returned) & (returned < work.end)
    first, unused = int(max(thread.max(initial=0), thread_of.max(initial=0))) + 1, len(work.lanes)
    lane, ended = work.lane.copy(), list[tuple[int, int]]()
    for row in np.flatnonzero(in_flight).tolist():
        is_over = bool(ended) and ended[0][0] <= work.start[row]
        lane[row] = heapq.heappop(ended)[1] if is_over else unused + len(ended)
        heapq.heappush(ended, (int(work.end[row]), int(lane[row])))
    requests = tuple((-1, first + at) for at in range(int(lane.max(initial=-1)) + 1 - unused))
    return replace(work, lane=lane, lanes=work.lanes + requests)


def _thread_time_in_gaps(rank: GraphInput, threads: Int64, workers: Int64, nodes: Nodes) -> Int64:
    """Time by cause of threads, except the library's, in the gaps of their nodes without compute, ns, shape
    (nodes, len(HOST_CAUSES)); `threads`: by lane."""
    host, thread_of = rank.host, host_threads(rank.host)
    calls, loads = _calls_library(rank), host.rows_matching(LOADER)
    rows = {
        "loader": loads & ~rank.computing,
        "sync": calls,
        "operators": ~rank.annotation & ~rank.computing & ~calls & ~loads,
    }
    second = rank.windows[1][1] if len(rank.windows) > 1 else None
    otherwise = "python" if rank.has_python else "unrecorded"
    cause_ns = np.zeros((len(nodes), len(n.HOST_CAUSES)), np.int64)
    for lane, thread in enumerate(threads.tolist()):
        lane_nodes = np.flatnonzero((nodes.lane == lane) & (nodes.gap > 0))
        if thread in workers or not len(lane_nodes):
            continue
        since, until = (nodes.start - nodes.gap)[lane_nodes], nodes.start[lane_nodes]
        on_thread = thread_of == thread
        library_free = (rank.computing | calls) & on_thread
        computing = intervals.union(
            host.start[rank.computing & on_thread], host.end[rank.computing & on_thread]
        )
        ranges = {
            cause: intervals.union(host.start[chosen & on_thread], host.end[chosen & on_thread])
            for cause, chosen in rows.items()
        }
        causes = cpu_causes(
            ThreadCalls(host.start[library_free], host.end[library_free], host.name[library_free]),
            ranges,
            second,
        )
        quiet = intervals.subtract(
            intervals.union(since.min(keepdims=True), until.max(keepdims=True)), computing
        )
        for cause, part in divide_by_cause(quiet, causes):
            column = n.HOST_CAUSES.index(otherwise if cause == "unrecorded" else cause)
            cause_ns[lane_nodes, column] += intervals.within(part, since, until)
    return cause_ns


def _calling_threads(rank: GraphInput, calls: Int64) -> Int64:
    """Threads that call the library; without calls, the thread with most rows."""
    threads = host_threads(rank.host)
    if len(calls):
        return np.asarray(np.unique(threads[calls]), np.int64)
    distinct, rows = np.unique(threads, return_counts=True)
    return np.asarray(distinct[rows == rows.max(initial=0)][:1], np.int64)


def _by_call(nodes: Nodes, issue: Int64, arrival: Int64, edges: Edges) -> None:
    """Let transfers follow the later of their call and their thread's previous row, with the measured lag."""
    previous_end = nodes.end[arrival - 1]  # the library's thread also pauses before its first transfer
    lag = nodes.start[arrival] - np.maximum(previous_end, nodes.start[issue])
    nodes.gap[arrival] = lag
    nodes.busy[arrival] = 0
    edges.add_edges(issue, arrival, lag)


def _issue_points(
    rank: GraphInput, calls: Int64, by_worker: Mask, points: HostInstants, inferred: Counter[str]
) -> Int64:
    """The point at which each transfer of the library's threads was requested, −1 for none.

    The start of its call, if there is one for each in order; else that of the last call before it, or the
    caller's current point.
    """
    order = np.argsort(rank.work.start, kind="stable")
    order = order[by_worker[order]]
    requested = np.full(len(rank.work), -1, np.int64)
    transfer_starts, starts = rank.work.start[order], rank.host.start[calls]
    if len(calls) == len(order) and (starts <= transfer_starts).all():
        requested[order] = points.add_instants(host_threads(rank.host)[calls], starts)
        inferred["transfers matched with calls by their order"] += len(order)
        return requested
    callers = _calling_threads(rank, calls)
    if len(callers) and len(order):
        last = np.searchsorted(starts, transfer_starts, side="right") - 1
        at = np.where(last >= 0, np.append(starts, 0)[last], transfer_starts)
        requested[order] = points.add_instants(np.full(len(order), callers[0]), at)
        inferred["transfers attributed to the call before them"] += len(order)
    return requested


def _awaited_transfers(waiting: HostPauses, ends: Int64, starts: Int64, inferred: Counter[str]) -> Wait:
    """The rows that pauses waited for: (index of `ended`, pause, lag).

    The row that ended last in the pause, promptly before its end or in its second half, since a thread may
    have to wait for a core; else one that ended promptly after it and had `begun` before: the library's
    thread wakes the waiting one before its own row ends.
    """
    if not len(ends):
        return ends, ends, ends
    by_end = np.argsort(ends, kind="stable")
    behind = np.searchsorted(ends[by_end], waiting.end, side="right")
    source = by_end[np.maximum(behind - 1, 0)]
    lag = waiting.end - ends[source]
    prompt = lag <= np.maximum(RESUMED_NS, (waiting.end - waiting.start) // 2)
    ended_within = (behind > 0) & (ends[source] >= waiting.start) & prompt
    following = by_end[np.minimum(behind, len(ends) - 1)]
    ended_after = ~ended_within & (behind < len(ends)) & (ends[following] - waiting.end <= RESUMED_NS)
    ended_after &= starts[following] < waiting.end
    source = np.where(ended_after, following, source)
    at = np.flatnonzero(ended_within | ended_after)
    inferred["pauses that end with a transfer"] += len(at)
    return source[at], at, (waiting.end - ends[source])[at]


def _point_lanes(rank: GraphInput, points: HostInstants, begin: Int64) -> tuple[Nodes, Int64]:
    """Points as nodes, those at `begin` followed by their transfer; and the node of each point."""
    thread, time, own_ns = points.as_arrays()
    work = np.full(len(time), -1, np.int64)
    work[begin] = np.arange(len(begin))
    order = np.lexsort((np.arange(len(time)), own_ns < 0, time, thread))
    row = np.repeat(order, np.where(work[order] >= 0, 2, 1))
    begins = intervals.begins(row)
    transfer = work[row]
    lane = np.unique(thread[row], return_inverse=True)[1]
    start, end = (
        time[row],
        np.where((transfer >= 0) & ~begins, np.append(rank.work.end, 0)[transfer], time[row]),
    )
    first = intervals.begins(lane)
    gap = np.where(first | ~begins, 0, start - np.roll(end, 1))
    gap = np.where(begins & (own_ns[row] >= 0), own_ns[row], gap)
    kind = np.where(transfer < 0, n.HOST, np.where(begins, n.ARRIVAL, n.TRANSFER))
    columns = (rank.work.step, rank.work.category, rank.work.name, rank.work.row)
    step, category, name, call = (np.append(column, -1)[transfer] for column in columns)
    nodes = n.blank_nodes(
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
    return nodes, np.flatnonzero(begins)[np.argsort(order)]
