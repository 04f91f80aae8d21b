# SPDX-License-Identifier: Apache-2.0
"""Convert a rank's nodes of the replay to tasks that begin when their dependencies have ended.

The replay's edges have lags, those of execution traces do not.  A positive lag becomes a separate task: a
host's time between two calls, a stream's gap, a launch's latency, a return.  For a negative lag, the
preceding task is split, and the node depends on the first part.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from cclbench.ground.intervals import Int64
from cclbench.replay import nodes as n
from cclbench.replay.graph import Graph
from cclbench.replay.simulate import NodeTimes

HOST, GAP, LAUNCH, WAIT, BEGIN, REST = "host", "gap", "launch", "wait", "begin", "rest"
"""Roles of tasks without a node: time of a thread, of a stream; latencies of a launch and of a return; the
time before a lane's first node; the rest of a node after the point where another continues."""
BY_CPU: Final = (HOST, WAIT, BEGIN)
"""Roles of tasks of the host."""
DELAYS: Final = (GAP, LAUNCH, WAIT)
"""Roles of latencies, during which nothing runs."""


@dataclass(slots=True, eq=False)
class Task:
    """`node` is the graph's (−1: none), `start` and `end` are in ns of the replay, `after` dependencies.

    `behind` are dependencies of order alone; `alone` is when the task begins to occupy its resource, on which
    another ran until then (`resources`), None if it does so from its start.
    """

    node: int
    role: str
    start: int
    end: int
    after: list[Task] = field(default_factory=list)
    id: int = -1
    behind: list[Task] = field(default_factory=list)
    alone: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Dependencies:
    """Dependencies of nodes within their rank, arrays of shape (dependencies,), sorted by target's rank.

    `role` is a code into `_ROLES`; times in ns.
    """

    source: Int64
    target: Int64
    lag: Int64
    role: Int64
    begin: Int64
    """First dependency of each rank, and the end of the last, shape (ranks + 1,)."""


_ROLES: Final = (HOST, GAP, LAUNCH, WAIT)


def graph_dependencies(graph: Graph) -> Dependencies:
    """The graph's dependencies, rank by rank; a collective's arrival and transfer are one node, its transfer.

    The rendezvous of ranks is not included: tasks of collectives state their instance.
    """
    nodes, cut = graph.nodes, graph.cut
    every = np.arange(len(nodes))
    lane = every[~nodes.first_of_lane & (nodes.kind != n.TRANSFER)]
    fed = every[nodes.feeder >= 0]
    stated = np.flatnonzero(~cut.in_lane)
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
    """A rank's tasks in topological order, and the first and last task of each node.

    `clipped` counts waits that end before their dependency begins, by the ranks' clocks: those tasks begin
    when it does.
    """

    tasks: list[Task]
    first: dict[int, Task]
    last: dict[int, Task]
    clipped: int


def behind_transfers(graph: Graph) -> Graph:
    """The graph for a simulator of communication, where a transfer has one end, and all its waits end behind.

    No node begins before those that it depends on have begun, whatever the ranks' clocks say.
    """
    nodes, cut = graph.nodes, graph.cut
    least = np.where(nodes.kind == n.TRANSFER, 0, -nodes.dur)
    gap = np.where(nodes.first_of_lane, nodes.gap, np.maximum(nodes.gap, np.roll(least, 1)))
    lag = np.maximum(cut.lag, least[cut.source])
    return replace(graph, nodes=replace(nodes, gap=gap), cut=replace(cut, lag=lag))


def rank_tasks(
    graph: Graph,
    times: NodeTimes,
    needed: Dependencies,
    place: int,
    bounds: Iterable[int],
    *,
    simulated: bool,
) -> RankTasks:
    """The tasks of the rank at `place` of the graph's ranks.

    `bounds` are nodes that begin or end windows, which stay separate tasks.  With `simulated`, latencies that
    delayed nothing are no tasks: each would occupy a resource of the simulator.
    """
    nodes = graph.nodes
    origin = int(times.start.min())
    own_nodes = np.flatnonzero((nodes.rank == graph.windowed[place].rank) & (nodes.kind != n.ARRIVAL))
    part = slice(int(needed.begin[place]), int(needed.begin[place + 1]))
    source, target, lag = needed.source[part], needed.target[part], needed.lag[part]
    role = needed.role[part]
    pieces, clipped = _task_pieces(graph, times, own_nodes, source, lag, origin)
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
        first, node_waits = parts[0], waits.get(node, ())
        for s, ns, why in node_waits:
            earlier = _part_at(pieces[s], ns)
            if ns <= 0:
                first.after.append(earlier)
            elif why == HOST == first.role and len(node_waits) == 1 and node not in kept:
                # a point of a thread and its time before it are one task
                first.start -= ns
                first.after.append(earlier)
            else:
                delay = _append_task(tasks, why, earlier.end, earlier.end + ns)
                delay.after.append(earlier)
                first.after.append(delay)
        tasks += parts
    if simulated:
        tasks = _without_slack(tasks)
    first_of = {node: parts[0] for node, parts in pieces.items()}
    last_of = {node: parts[-1] for node, parts in pieces.items()}
    return RankTasks(_ordered_tasks(tasks), first_of, last_of, clipped)


def _without_slack(tasks: list[Task]) -> list[Task]:
    """The tasks without latencies that delay nothing: what follows them waits for something else as long."""
    slack: set[int] = set()
    for task in tasks:
        ready = max((each.end for each in task.after), default=0)
        met = any(each.end == ready for each in task.after if each.role not in DELAYS)
        for place, each in enumerate(task.after):
            if each.role in DELAYS:
                if met or each.end < ready:
                    slack.add(id(each))
                    task.after[place] = each.after[0]
                else:
                    met = True
    return [task for task in tasks if id(task) not in slack]


def _append_task(tasks: list[Task], role: str, start: int, end: int) -> Task:
    tasks.append(Task(-1, role, start, end))
    return tasks[-1]


def _task_pieces(
    graph: Graph, times: NodeTimes, own_nodes: Int64, source: Int64, lag: Int64, origin: int
) -> tuple[dict[int, list[Task]], int]:
    """Each node as one or several consecutive tasks, split where others continue before its end."""
    early = np.flatnonzero(lag < 0)
    lasted = (times.end - times.start)[source[early]]
    cuts: dict[int, set[int]] = defaultdict(set)
    for node, ns in zip(source[early].tolist(), np.maximum(lasted + lag[early], 0).tolist(), strict=True):
        cuts[node].add(ns)
    clipped = int((-lag[early] > lasted).sum())
    roles = np.array(n.KINDS)[graph.nodes.kind[own_nodes]].tolist()
    starts, ends = (times.start[own_nodes] - origin).tolist(), (times.end[own_nodes] - origin).tolist()
    pieces: dict[int, list[Task]] = {}
    for node, role, start, end in zip(own_nodes.tolist(), roles, starts, ends, strict=True):
        stops = [*(start + ns for ns in sorted(cuts.get(node, ())) if start + ns < end), end]
        parts = [Task(node, role, start, stops[0])]
        for stop in stops[1:]:
            parts.append(Task(node, REST, parts[-1].end, stop, [parts[-1]]))
        pieces[node] = parts
    return pieces, clipped


def _part_at(parts: Sequence[Task], lag: int) -> Task:
    """The part on which a node with that `lag` depends."""
    if lag >= 0 or len(parts) == 1:
        return parts[-1]
    stop = parts[-1].end + lag
    return next((part for part in parts if part.end >= stop), parts[-1])


def _ordered_tasks(tasks: list[Task]) -> list[Task]:
    """The tasks in topological order, the earliest ready one first, and numbered in this order."""
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
