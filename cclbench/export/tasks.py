# SPDX-License-Identifier: Apache-2.0
"""A rank's nodes of the replay as tasks that begin when all they wait for has ended.

The replay's edges have lags, those of execution traces have none.  A lag above 0 becomes a task of its own:
a host's time between two calls, a stream's gap, a launch's latency, a return.  Where a node goes on before
the end of what it waits for, that task is cut in two, and the node waits for the first part.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Final

import numpy as np

from cclbench.ground.intervals import Int64
from cclbench.replay import nodes as n
from cclbench.replay.graph import Graph
from cclbench.replay.simulate import NodeTimes

HOST, GAP, LAUNCH, WAIT, BEGIN, REST = "host", "gap", "launch", "wait", "begin", "rest"
"""Roles of tasks that are no node: own time of a thread, of a stream; latencies of a launch and of a return;
the time before a lane's first node; what is left of a node behind the place where another goes on."""
BY_CPU: Final = (HOST, WAIT, BEGIN)
"""Roles of tasks of the host."""


@dataclass(slots=True, eq=False)
class Task:
    """`node` is the graph's (−1 for none), `start` and `end` ns of the replay, `after` what it waits for."""

    node: int
    role: str
    start: int
    end: int
    after: list[Task] = field(default_factory=list)
    id: int = -1


@dataclass(frozen=True, slots=True, eq=False)
class Dependencies:
    """All that nodes wait for within their rank, arrays of shape (dependencies,), in order of target's rank.

    `role` is a code into `_ROLES`; times in ns.
    """

    source: Int64
    target: Int64
    lag: Int64
    role: Int64
    begin: Int64
    """Of each rank in order, and the end of the last, shape (ranks + 1,)."""


_ROLES: Final = (HOST, GAP, LAUNCH, WAIT)


def graph_dependencies(graph: Graph) -> Dependencies:
    """The graph's dependencies, rank by rank; a collective's arrival and transfer count as one, its transfer.

    The rendezvous of ranks is not among them: a task of a collective says which instance it is of.
    """
    nodes, cut = graph.nodes, graph.cut
    every = np.arange(len(nodes))
    lane = every[~nodes.first_of_lane & (nodes.kind != n.TRANSFER)]
    fed = every[nodes.feeder >= 0]
    stated = np.flatnonzero(~cut.own)
    stated = stated[
        (nodes.kind[cut.source[stated]] != n.RENDEZVOUS)
        & (nodes.kind[cut.head[cut.target[stated]]] != n.RENDEZVOUS)
    ]
    cpu_only = [w.rank for w in graph.windowed if w.on_host]
    by_thread = (nodes.kind == n.HOST) | np.isin(nodes.rank, cpu_only)
    waiting = cut.head[cut.target[stated]]
    source = np.concatenate([lane - 1, nodes.feeder[fed], cut.source[stated]])
    target = np.concatenate([lane, fed, waiting])
    lag = np.concatenate([nodes.gap[lane], nodes.feed_lag[fed], cut.lag[stated]])
    role = np.concatenate(
        [
            np.where(by_thread[lane], _ROLES.index(HOST), _ROLES.index(GAP)),
            np.full(len(fed), _ROLES.index(LAUNCH)),
            np.where(by_thread[waiting], _ROLES.index(WAIT), _ROLES.index(GAP)),
        ]
    )
    target = np.where(nodes.kind[target] == n.ARRIVAL, target + 1, target)
    rank = nodes.rank[target]
    order = np.argsort(rank, kind="stable")
    ranks = np.array([w.rank for w in graph.windowed], np.int64)
    begin = np.append(np.searchsorted(rank[order], ranks), len(order))
    return Dependencies(source[order], target[order], lag[order], role[order], begin)


@dataclass(frozen=True, slots=True, eq=False)
class RankTasks:
    """A rank's tasks in an order that their dependencies allow, and the first and last task of each node.

    `clipped` counts waits that end before what they wait for begins, by the ranks' clocks: those tasks begin
    when it does.
    """

    tasks: list[Task]
    first: dict[int, Task]
    last: dict[int, Task]
    clipped: int


def one_at_a_time(graph: Graph) -> Graph:
    """The graph for a simulator whose rank does one thing of a kind at a time: no latency may keep it busy.

    Launches have no latency (the rank's median; what is above it stays), all lanes begin with the rank's
    first, a transfer is waited for whole, and nothing begins before what it waits for does.
    """
    nodes, cut = graph.nodes, graph.cut
    least = np.where(nodes.kind == n.TRANSFER, 0, -nodes.dur)
    alone = cut.head[(np.diff(cut.begin) == 0) & (nodes.feeder[cut.head] < 0)]
    start, feed_lag = nodes.start.copy(), nodes.feed_lag.copy()
    for rank in graph.windowed:
        fed = (nodes.rank == rank.rank) & (nodes.feeder >= 0)
        if fed.any():
            feed_lag[fed] = np.maximum(feed_lag[fed] - round(float(np.median(feed_lag[fed]))), 0)
        own = alone[nodes.rank[alone] == rank.rank]
        start[own] = start[own].min(initial=np.iinfo(np.int64).max)
    changed = replace(
        nodes,
        start=start,
        gap=np.where(nodes.first_of_lane, nodes.gap, np.maximum(nodes.gap, np.roll(least, 1))),
        feed_lag=feed_lag,
    )
    return replace(graph, nodes=changed, cut=replace(cut, lag=np.maximum(cut.lag, least[cut.source])))


def rank_tasks(
    graph: Graph, times: NodeTimes, needed: Dependencies, place: int, bounds: Iterable[int], *, chained: bool
) -> RankTasks:
    """The tasks of the rank at `place` of the graph's ranks.

    `bounds` are nodes that begin or end windows, which stay tasks of their own.  `chained` transfers follow
    one another, in the order that all ranks have: a simulator that runs one at a time would stop for ever
    where two ranks begin with different ones.
    """
    nodes = graph.nodes
    origin = int(times.start.min())
    own = np.flatnonzero((nodes.rank == graph.windowed[place].rank) & (nodes.kind != n.ARRIVAL))
    part = slice(int(needed.begin[place]), int(needed.begin[place + 1]))
    source, target, lag = needed.source[part], needed.target[part], needed.lag[part]
    role = needed.role[part]
    pieces, clipped = _task_pieces(graph, times, own, source, lag, origin)
    waits: dict[int, list[tuple[int, int, str]]] = defaultdict(list)
    for at, s, ns, code in zip(target.tolist(), source.tolist(), lag.tolist(), role.tolist(), strict=True):
        waits[at].append((s, ns, _ROLES[code]))
    kept = set(bounds)
    tasks: list[Task] = []
    roots = [node for node in pieces if node not in waits]
    # a transfer begins with its last rank, and is waited for from this rank's arrival on
    met = [int(times.start[node - (nodes.kind[node] == n.TRANSFER)]) - origin for node in roots]
    begins = {ns: _append_task(tasks, BEGIN, 0, ns) for ns in sorted(set(met)) if ns > 0}
    for node, ns in zip(roots, met, strict=True):
        pieces[node][0].after += [begins[ns]] if ns > 0 else []
    for node, parts in pieces.items():
        first, found = parts[0], waits.get(node, ())
        for s, ns, why in found:
            earlier = _part_at(pieces[s], ns)
            if ns <= 0:
                first.after.append(earlier)
            elif why == HOST == first.role and len(found) == 1 and node not in kept:
                # a point of a thread and its time before it are one task
                first.start -= ns
                first.after.append(earlier)
            else:
                delay = _append_task(tasks, why, earlier.end, earlier.end + ns)
                delay.after.append(earlier)
                first.after.append(delay)
        tasks += parts
    if chained:
        _chain_transfers(graph, times, own, pieces)
    first_of = {node: parts[0] for node, parts in pieces.items()}
    last_of = {node: parts[-1] for node, parts in pieces.items()}
    return RankTasks(_ordered_tasks(tasks), first_of, last_of, clipped)


def _chain_transfers(graph: Graph, times: NodeTimes, own: Int64, pieces: dict[int, list[Task]]) -> None:
    """Let each matched transfer wait for the one that began before it; a receiving end holds nothing up.

    No circle comes of that: nothing begins before what it waits for, see `one_at_a_time`.
    """
    nodes, transfers = graph.nodes, graph.transfers
    at = own[nodes.kind[own] == n.TRANSFER]
    received = np.array([kind == "recv" for kind in transfers.kind], np.bool_)
    at = at[transfers.known[nodes.call[at]] & ~received[nodes.call[at]]]
    order = at[np.lexsort((transfers.instance[nodes.call[at]], times.end[at], times.start[at]))]
    for earlier, later in pairwise(order.tolist()):
        if times.start[earlier] < times.start[later]:
            pieces[later][0].after.append(pieces[earlier][-1])


def _append_task(tasks: list[Task], role: str, start: int, end: int) -> Task:
    tasks.append(Task(-1, role, start, end))
    return tasks[-1]


def _task_pieces(
    graph: Graph, times: NodeTimes, own: Int64, source: Int64, lag: Int64, origin: int
) -> tuple[dict[int, list[Task]], int]:
    """Each node as one task or several in a row, cut where others go on before its end."""
    early = np.flatnonzero(lag < 0)
    lasted = (times.end - times.start)[source[early]]
    cuts: dict[int, set[int]] = defaultdict(set)
    for node, ns in zip(source[early].tolist(), np.maximum(lasted + lag[early], 0).tolist(), strict=True):
        cuts[node].add(ns)
    clipped = int((-lag[early] > lasted).sum())
    roles = np.array(n.KINDS)[graph.nodes.kind[own]].tolist()
    starts, ends = (times.start[own] - origin).tolist(), (times.end[own] - origin).tolist()
    found: dict[int, list[Task]] = {}
    for node, role, start, end in zip(own.tolist(), roles, starts, ends, strict=True):
        stops = [*(start + ns for ns in sorted(cuts.get(node, ())) if start + ns < end), end]
        parts = [Task(node, role, start, stops[0])]
        for stop in stops[1:]:
            parts.append(Task(node, REST, parts[-1].end, stop, [parts[-1]]))
        found[node] = parts
    return found, clipped


def _part_at(parts: Sequence[Task], lag: int) -> Task:
    """The part after which a node goes on that follows the whole by `lag`."""
    if lag >= 0 or len(parts) == 1:
        return parts[-1]
    stop = parts[-1].end + lag
    return next((part for part in parts if part.end >= stop), parts[-1])


def _ordered_tasks(tasks: list[Task]) -> list[Task]:
    """The tasks in an order that their dependencies allow, of those ready the earliest first; numbered so."""
    followers: dict[int, list[int]] = defaultdict(list)
    number = {id(task): at for at, task in enumerate(tasks)}
    missing = [0] * len(tasks)
    for at, task in enumerate(tasks):
        # a node that waits twice for one task waits once
        task.after = list({id(each): each for each in task.after}.values())
        missing[at] = len(task.after)
        for each in task.after:
            followers[number[id(each)]].append(at)
    ready = [(tasks[at].start, at) for at, count in enumerate(missing) if not count]
    heapq.heapify(ready)
    order: list[Task] = []
    while ready:
        _, at = heapq.heappop(ready)
        tasks[at].id = len(order)
        order.append(tasks[at])
        for follower in followers[at]:
            missing[follower] -= 1
            if not missing[follower]:
                heapq.heappush(ready, (tasks[follower].start, follower))
    assert len(order) == len(tasks)  # noqa: S101  (the graph has no circle, see `simulate.pieces`)
    return order
