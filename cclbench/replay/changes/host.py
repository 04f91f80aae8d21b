# SPDX-License-Identifier: Apache-2.0
"""`host.time=x0.5`, `host[sync].time=0`, `rank[3].host.time=median`: another speed of the host's threads."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np
import numpy.typing as npt

from cclbench.ground.intervals import Int64, Mask
from cclbench.replay import nodes as n
from cclbench.replay.change import ChangeSubject
from cclbench.replay.graph import Graph
from cclbench.replay.places import combination_codes, lower_medians, ranks_of, step_places
from cclbench.replay.selection import NodeSelection, TimeAmount, node_change
from cclbench.replay.simulate import cut_pieces

_PAUSE_NS: Final = 100_000
"""By how much a time exceeds twice its median at least where it is not usual."""


@node_change(
    "host.time",
    values="x0.5, 0, median, usual",
    definition="what threads that launch take of their own between two launches is scaled, of the causes"
    " named alone: cold_start (first calls, which load code), allocation, loader, sync, launch (with the time"
    " from a launch to its row's earliest start, up to the rank's median), operators, python, unrecorded."
    " sync at 0 drops the waits for the device, too. Where the CPU is the device: what threads take while"
    " they neither compute nor wait for a transfer, by the causes of time.idle_host_by; sync also what a"
    " transfer takes to begin after its call, and a thread to go on after a transfer. median: what comes"
    " before the launch at the same place of a step takes the median of the ranks, of a single rank that of"
    " its steps; usual: the median of its rank's steps, only where it takes more than twice that and 100"
    " us",
)
def host(subject: ChangeSubject, setting: tuple[NodeSelection, TimeAmount]) -> Graph | str:
    """The graph with those gaps, lags and waits."""
    selected, amount = setting
    graph, nodes = subject.graph, subject.graph.nodes
    inside = selected.nodes_in_windows(subject)
    of_cpu = inside & np.isin(nodes.rank, [rank.rank for rank in graph.windowed if rank.on_host])
    of_host = inside & (nodes.kind == n.HOST) & ~of_cpu
    causes = [n.HOST_CAUSES.index(word) for word in selected.words or n.HOST_CAUSES]
    held = nodes.held[:, causes].sum(axis=1)
    if amount.factor is None:
        saved = _beyond_usual(subject, of_host, held, only_long=amount.statistic == "usual")
        if not saved.any():
            return f"no such time of a host differs from the {amount.statistic} of its place"
        return replace(graph, nodes=_shortened(graph, causes, held, saved))
    launches = selected.words is None or "launch" in selected.words
    syncs = selected.words is None or "sync" in selected.words
    within = np.minimum(held, np.maximum(subject.since, 0))
    fed, waiting = _fed(graph, of_host) & (nodes.feed_lag > 0), np.zeros(len(nodes), np.bool_)
    waiting[graph.wait_edges()[1]] = True
    chosen = of_host | of_cpu
    shortened = chosen & (within > 0)
    touched = shortened | (launches & fed & (subject.since > 0)) | (syncs & waiting & chosen)
    if not touched.any():
        return "no thread of a host does that within the run's windows"
    saved = np.where(shortened, np.rint((1 - amount.factor) * within), 0).astype(np.int64)
    made = replace(graph, nodes=_shortened(graph, causes, held, saved))
    if launches:
        made = _sooner_begun(subject, made, fed, amount.factor)
    if syncs:
        made = _sooner_back(subject, made, of_host, amount.factor)
        made = _sooner_handed_over(subject, made, of_cpu, amount.factor)
    if syncs and selected.words is not None and not amount.factor:
        made = _without_waits(made, of_host)
    return made


def _shortened(graph: Graph, causes: list[int], held: Int64, saved: Int64) -> n.Nodes:
    """The nodes with gaps shorter by `saved` ns, which those causes lose in proportion."""
    nodes = graph.nodes
    left = nodes.held.copy()
    share = saved / np.maximum(held, 1)
    left[:, causes] -= np.rint(left[:, causes] * share[:, None]).astype(np.int64)
    return replace(nodes, gap=nodes.gap - saved, held=left)


def _fed(graph: Graph, of_host: Mask) -> Mask:
    """Nodes that chosen points of hosts launch."""
    nodes = graph.nodes
    return np.asarray((nodes.feeder >= 0) & of_host[nodes.feeder])


def _sooner_begun(subject: ChangeSubject, graph: Graph, chosen: Mask, factor: float) -> Graph:
    """The graph whose rows begin sooner after their launch, of each up to its rank's median."""
    nodes = graph.nodes
    usual = np.zeros(len(nodes), np.int64)
    fed = nodes.feeder >= 0
    for rank in np.unique(nodes.rank[fed]).tolist():
        own = fed & (nodes.rank == rank)
        usual[own] = int(np.median(nodes.feed_lag[own]))
    latency = np.minimum(np.where(fed & chosen, nodes.feed_lag, 0), usual)
    saved = _share(latency, subject.since, factor)
    return replace(graph, nodes=replace(nodes, feed_lag=nodes.feed_lag - saved))


def _sooner_back(subject: ChangeSubject, graph: Graph, of_host: Mask, factor: float) -> Graph:
    """The graph whose hosts go on sooner after what they waited for."""
    cut = graph.cut
    head = cut.head[cut.target]
    back = np.where(of_host[head] & ~cut.own, cut.lag, 0)
    return replace(graph, cut=replace(cut, lag=cut.lag - _share(back, subject.since[head], factor)))


def _sooner_handed_over(subject: ChangeSubject, graph: Graph, of_cpu: Mask, factor: float) -> Graph:
    """The graph in which transfers begin sooner after their call, and threads go on sooner after transfers,
    where the CPU is the device."""
    nodes = graph.nodes
    begun = np.where(of_cpu & (nodes.kind == n.ARRIVAL), nodes.gap - nodes.busy - nodes.held.sum(axis=1), 0)
    gap = nodes.gap - _share(begun, subject.since, factor)
    return _sooner_back(subject, replace(graph, nodes=replace(nodes, gap=gap)), of_cpu, factor)


def _share(time: Int64, within: Int64, factor: float) -> Int64:
    """What is saved of a time that ends at a node, as far as it lies within windows, ns."""
    return np.rint((1 - factor) * np.clip(np.minimum(time, within), 0, None)).astype(np.int64)


def _without_waits(graph: Graph, of_host: Mask) -> Graph:
    """The graph whose chosen points of hosts wait for no row of a device."""
    nodes = graph.nodes
    source, target, lag = graph.wait_edges()
    kept = ~of_host[target] | (nodes.kind[source] == n.HOST)
    return replace(graph, cut=cut_pieces(nodes, source[kept], target[kept], lag[kept]))


def _beyond_usual(subject: ChangeSubject, of_host: Mask, held: Int64, *, only_long: bool) -> Int64:
    """How much longer points take than the median at their launch's place, ns, shape (nodes,).

    It is the median of a step's ranks; with `only_long`, or of a single rank, that of the rank's steps.
    What a thread does between two launches belongs to the latter, whose first row gives the place.
    """
    graph, nodes = subject.graph, subject.graph.nodes
    where = step_places(graph)
    fed = nodes.feeder[where.at] >= 0
    at, rank, step, place = (column[fed] for column in (where.at, where.rank, where.step, where.place))
    launch, first = np.unique(nodes.feeder[at], return_index=True)
    inside = subject.since[at[first]] >= 0
    first = first[inside]
    launch, of_rank = launch[inside], rank[first]
    role = subject.stage_roles[of_rank]
    ranks = np.unique(of_rank)
    of_steps = len(ranks) > 1 and not only_long
    like = (
        combination_codes(role, step[first], place[first])
        if of_steps
        else combination_codes(of_rank, place[first])
    )
    expected = ranks_of(role, subject.stage_roles[ranks]) if of_steps else np.zeros(len(first), np.int64)
    # a stretch is what lies behind a launch, up to the next one and with that
    points = np.flatnonzero(nodes.kind == n.HOST)
    launches = np.zeros(len(nodes), np.bool_)
    launches[nodes.feeder[nodes.feeder >= 0]] = True
    stretch = (
        np.cumsum(launches[points]) - launches[points] + np.cumsum(nodes.first_of_lane[points]) * len(nodes)
    )
    stretch = np.unique(stretch, return_inverse=True)[1]
    within = np.clip(np.minimum(held[points], subject.since[points]), 0, None)
    total = np.bincount(stretch, within, minlength=1).astype(np.int64)
    of_launch = stretch[np.searchsorted(points, launch)]
    taken = total[of_launch]
    usual = lower_medians(like, taken, expected)
    if only_long:
        usual = np.where(taken > 2 * usual + _PAUSE_NS, usual, taken)
    factor: npt.NDArray[np.float64] = np.ones(len(total))
    factor[of_launch] = np.where(taken > 0, usual / np.maximum(taken, 1), 1.0)
    saved = np.zeros(len(nodes), np.int64)
    saved[points] = np.rint(within * (1 - factor[stretch])).astype(np.int64)
    return np.where(of_host, saved, 0)
