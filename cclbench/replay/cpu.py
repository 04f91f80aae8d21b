# SPDX-License-Identifier: Apache-2.0
"""The nodes of a CPU-only rank: its threads with measured gaps, its transfers, and what ties them."""

from __future__ import annotations

from collections import Counter
import numpy as np

from cclbench.intervals import Int64
from cclbench.replay import nodes as n
from cclbench.replay.accelerator import add_boundaries, add_turns
from cclbench.replay.host import Pauses, Points, pauses, tracks, turns
from cclbench.replay.nodes import Edges, Nodes, Part
from cclbench.replay.tables import RankRows
from cclbench.replay.waits import RESUMED_NS


def cpu(rank: RankRows) -> Part:
    """One rank's part of the graph.

    A transfer begins when its thread is free and its call was made; a thread that pauses until promptly
    after a transfer's end waits for it.  What a thread does besides keeps its measured time.
    """
    inferred: Counter[str] = Counter()
    points, edges = Points(), Edges()
    thread = tracks(rank.work)
    idle = pauses(rank)
    asked = _issues(rank, idle, points, inferred)
    awaited, back, lag, explained = _awaited(rank, idle, points, inferred)
    released, resumed = turns(idle, explained)
    handed = add_turns(idle, released, resumed, points, inferred)
    add_boundaries(rank, points)
    begin = points.add(thread, rank.work.start)
    whole, place = _lanes(rank, points, begin)
    start_of, end_of = place[begin], place[begin] + 1
    known = asked >= 0
    _by_call(whole, place[asked[known]], start_of[known], edges)
    edges.add(end_of[awaited], place[back], lag)
    for source, target, after in handed:
        edges.add(place[source], place[target], after)
    return Part(whole, edges, inferred)


def _by_call(whole: Nodes, issue: Int64, arrival: Int64, edges: Edges) -> None:
    """A transfer follows its call and what its thread did before, whichever is later, as far behind as measured."""
    before = np.where(whole.first[arrival], -(1 << 60), whole.end[arrival - 1])
    lag = whole.start[arrival] - np.maximum(before, whole.start[issue])
    whole.gap[arrival] = lag
    edges.add(issue, arrival, lag)


def _issues(rank: RankRows, idle: Pauses, points: Points, inferred: Counter[str]) -> Int64:
    """The point at which each transfer was asked for: its call's begin, else where the caller then was; −1."""
    calls = np.flatnonzero(rank.host.named("c10d::") & ~rank.host.named("barrier"))
    order = np.argsort(rank.work.start, kind="stable")
    own_thread = tracks(rank.work)
    asked = np.full(len(order), -1, np.int64)
    on_caller = np.isin(own_thread, tracks(rank.host))
    order = order[~on_caller[order]]
    starts = rank.host.start[calls]
    if len(calls) == len(order) and (starts <= rank.work.start[order]).all():
        asked[order] = points.add(tracks(rank.host)[calls], starts)
        inferred["transfers matched with calls by their order"] += len(order)
        return asked
    threads = tracks(rank.host)
    if not len(threads):
        return asked
    # else the thread that has most rows asks for all of them
    main = np.bincount(np.unique(threads, return_inverse=True)[1]).argmax()
    caller = int(np.unique(threads)[main])
    last = np.searchsorted(starts, rank.work.start[order], side="right") - 1
    at = np.where(last >= 0, starts[np.maximum(last, 0)], rank.work.start[order]) if len(starts) else None
    at = rank.work.start[order] if at is None else at
    asked[order] = points.add(np.full(len(order), caller), at)
    inferred["transfers asked for by the call before them"] += len(order)
    return asked


def _awaited(
    rank: RankRows, idle: Pauses, points: Points, inferred: Counter[str]
) -> tuple[Int64, Int64, Int64, Int64]:
    """Pauses that end promptly after a transfer: (transfer, point of going on, lag, pauses explained)."""
    by_end = np.argsort(rank.work.end, kind="stable")
    place = np.searchsorted(rank.work.end[by_end], idle.end, side="right") - 1
    source = by_end[np.maximum(place, 0)] if len(by_end) else np.zeros(len(idle.end), np.int64)
    ended = np.append(rank.work.end, 0)[source]
    hit = (place >= 0) & (ended >= idle.start) & (idle.end - ended <= RESUMED_NS)
    if len(by_end):
        hit &= tracks(rank.work)[source] != idle.thread
    at = np.flatnonzero(hit)
    points.add(idle.thread[at], idle.start[at])
    back = points.add(idle.thread[at], idle.end[at], np.zeros(len(at), np.int64))
    inferred["pauses that end with a transfer"] += len(at)
    return source[at], back, idle.end[at] - ended[at], at


def _lanes(rank: RankRows, points: Points, begin: Int64) -> tuple[Nodes, Int64]:
    """Points as nodes, those at `begin` followed by their transfer's node; and the node of each point."""
    thread, time, own = points.arrays()
    work = np.full(len(time), -1, np.int64)
    work[begin] = np.arange(len(begin))
    order = np.lexsort((np.arange(len(time)), own >= 0, time, thread))
    row = np.repeat(order, np.where(work[order] >= 0, 2, 1))
    begins = np.diff(row, prepend=-1) != 0
    of = work[row]
    lane = np.unique(thread[row], return_inverse=True)[1]
    start, end = time[row], np.where((of >= 0) & ~begins, np.append(rank.work.end, 0)[of], time[row])
    first = np.diff(lane, prepend=-1) != 0
    gap = np.where(first | ~begins, 0, start - np.roll(end, 1))
    gap = np.where(begins & (own[row] >= 0), own[row], gap)
    kind = np.where(of < 0, n.HOST, np.where(begins, n.ARRIVAL, n.TRANSFER))
    codes = {
        f: np.where(of >= 0, np.append(getattr(rank.work, f), -1)[of], -1)
        for f in ("step", "name", "category")
    }
    whole = n.blank(
        len(row),
        rank=rank.rank,
        lane=lane,
        kind=kind,
        start=start,
        end=end,
        gap=gap,
        dur=end - start,
        call=np.where(of >= 0, np.append(rank.work.row, -1)[of], -1),
        **codes,
    )
    place = np.empty(len(order), np.int64)
    place[row[begins]] = np.flatnonzero(begins)
    return whole, place
