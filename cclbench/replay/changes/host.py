# SPDX-License-Identifier: Apache-2.0
"""`host.time=x0.5`, `host[sync].time=0`, `rank[3].host.time=median`: another speed of host threads."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np
import numpy.typing as npt

from cclbench.ground.codes import combination_codes
from cclbench.ground.intervals import Int64, Mask, begins
from cclbench.replay import nodes as n
from cclbench.replay.change import ChangeSubject
from cclbench.replay.graph import Graph
from cclbench.replay.places import lower_medians, occurrences, step_places
from cclbench.replay.selection import NodeSelection, TimeAmount, node_change
from cclbench.replay.simulate import cut_pieces

_PAUSE_NS: Final = 100_000
"""An unusual time exceeds twice its median by at least this."""


@node_change(
    "host.time",
    values="x0.5, 0, median, usual",
    definition="scales the time of launching threads between two launches, or only that of the named causes:"
    " cold_start (first calls, which load code), allocation, loader, sync, launch (including launch latency,"
    " up to the rank's median), operators, python, unrecorded. sync at 0 also removes the waits for the"
    " device. Where the CPU is the device: time in which threads neither compute nor wait for a transfer, by"
    " the causes of time.idle_host_by; sync also includes the latency from a call to its transfer, and from a"
    " transfer to a thread that resumes. median: host time before the launch at the same place of a step"
    " takes the median of the ranks, for a single rank that of its steps; usual: the median of the rank's"
    " steps, only where it takes more than twice that and 100 us",
)
def host(subject: ChangeSubject, setting: tuple[NodeSelection, TimeAmount]) -> Graph | str:
    """The graph with changed gaps, lags and waits of hosts."""
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
            return f"no such host time differs from the {amount.statistic} of its place"
        return replace(graph, nodes=_shortened(graph, causes, held, saved))
    launches = selected.words is None or "launch" in selected.words
    syncs = selected.words is None or "sync" in selected.words
    in_windows = np.minimum(held, np.maximum(subject.since, 0))
    fed, is_waiting = _fed(graph, of_host) & (nodes.feed_lag > 0), np.zeros(len(nodes), np.bool_)
    is_waiting[graph.wait_edges()[1]] = True
    chosen = of_host | of_cpu
    shortened = chosen & (in_windows > 0)
    touched = shortened | (launches & fed & (subject.since > 0)) | (syncs & is_waiting & chosen)
    if not touched.any():
        return "no host thread does that in the run's windows"
    saved = np.where(shortened, np.rint((1 - amount.factor) * in_windows), 0).astype(np.int64)
    changed = replace(graph, nodes=_shortened(graph, causes, held, saved))
    if launches:
        changed = _sooner_begun(subject, changed, fed, amount.factor)
    if syncs:
        changed = _sooner_back(subject, changed, of_host, amount.factor)
        changed = _sooner_handed_over(subject, changed, of_cpu, amount.factor)
    if syncs and selected.words is not None and not amount.factor:
        changed = _without_waits(changed, of_host)
    return changed


def _shortened(graph: Graph, causes: list[int], held: Int64, saved: Int64) -> n.Nodes:
    """The nodes with gaps shorter by `saved` ns, taken from the causes in proportion."""
    nodes = graph.nodes
    remaining, at = nodes.held.copy(), np.flatnonzero(saved)
    share = saved[at] / np.maximum(held[at], 1)
    of_causes = remaining[at][:, causes]
    remaining[at[:, None], causes] = of_causes - np.rint(of_causes * share[:, None]).astype(np.int64)
    return replace(nodes, gap=nodes.gap - saved, held=remaining)


def _fed(graph: Graph, of_host: Mask) -> Mask:
    """Nodes launched by the chosen host points."""
    nodes = graph.nodes
    return np.asarray((nodes.feeder >= 0) & of_host[nodes.feeder])


def _sooner_begun(subject: ChangeSubject, graph: Graph, chosen: Mask, factor: float) -> Graph:
    """The graph with shorter launch latencies, each counted up to its rank's median."""
    nodes = graph.nodes
    median_lag = np.zeros(len(nodes), np.int64)
    fed = nodes.feeder >= 0
    for rank in np.unique(nodes.rank[fed]).tolist():
        of_rank = fed & (nodes.rank == rank)
        median_lag[of_rank] = int(np.median(nodes.feed_lag[of_rank]))
    latency = np.minimum(np.where(fed & chosen, nodes.feed_lag, 0), median_lag)
    saved = _share(latency, subject.since, factor)
    return replace(graph, nodes=replace(nodes, feed_lag=nodes.feed_lag - saved))


def _sooner_back(subject: ChangeSubject, graph: Graph, of_host: Mask, factor: float) -> Graph:
    """The graph whose hosts resume sooner after their waits."""
    cut = graph.cut
    head = cut.head[cut.target]
    lags = np.where(of_host[head] & ~cut.in_lane, cut.lag, 0)
    return replace(graph, cut=replace(cut, lag=cut.lag - _share(lags, subject.since[head], factor)))


def _sooner_handed_over(subject: ChangeSubject, graph: Graph, of_cpu: Mask, factor: float) -> Graph:
    """The graph with shorter latencies from calls to transfers and from transfers to threads, for ranks whose
    device is the CPU."""
    nodes = graph.nodes
    latency = np.where(of_cpu & (nodes.kind == n.ARRIVAL), nodes.gap - nodes.busy - nodes.held.sum(axis=1), 0)
    gap = nodes.gap - _share(latency, subject.since, factor)
    return _sooner_back(subject, replace(graph, nodes=replace(nodes, gap=gap)), of_cpu, factor)


def _share(time: Int64, within: Int64, factor: float) -> Int64:
    """Saving of a time that ends at a node, as far as it is within windows, ns."""
    return np.rint((1 - factor) * np.clip(np.minimum(time, within), 0, None)).astype(np.int64)


def _without_waits(graph: Graph, of_host: Mask) -> Graph:
    """The graph whose chosen host points do not wait for device rows."""
    nodes = graph.nodes
    source, target, lag = graph.wait_edges()
    keep = ~of_host[target] | (nodes.kind[source] == n.HOST)
    return replace(graph, cut=cut_pieces(nodes, source[keep], target[keep], lag[keep]))


def _beyond_usual(subject: ChangeSubject, of_host: Mask, held: Int64, *, only_long: bool) -> Int64:
    """Excess time of points over the median at their launch's place, ns, shape (nodes,).

    The median is over the ranks in a step; with `only_long`, or for a single rank, over the rank's steps. A
    launch that most of them lack takes no time in the median.
    Time between two launches belongs to the second, whose first row gives the place.
    """
    graph, nodes = subject.graph, subject.graph.nodes
    places = step_places(graph)
    fed = nodes.feeder[places.at] >= 0
    at, rank, step, place = (column[fed] for column in (places.at, places.rank, places.step, places.place))
    feeder = nodes.feeder[at]
    first_row = np.full(len(nodes), -1, np.int64)
    first_row[feeder[::-1]] = np.arange(len(at))[::-1]
    launch = np.flatnonzero(first_row >= 0)
    first = first_row[launch]
    inside = subject.since[at[first]] >= 0
    first = first[inside]
    launch, of_rank = launch[inside], rank[first]
    role = subject.stage_roles[of_rank]
    ranks = np.unique(of_rank)
    of_steps = len(ranks) > 1 and not only_long
    alike = (
        combination_codes(role, step[first], place[first])
        if of_steps
        else combination_codes(of_rank, place[first])
    )
    rank_steps = np.unique(combination_codes(of_rank, step[first]), return_index=True)[1]
    expected = (
        occurrences(role, subject.stage_roles[ranks])
        if of_steps
        else occurrences(of_rank, of_rank[rank_steps])
    )
    # a stretch is after a launch, up to and including the next one
    points = np.flatnonzero(nodes.kind == n.HOST)
    launches = np.zeros(len(nodes), np.bool_)
    launches[nodes.feeder[nodes.feeder >= 0]] = True
    ended: Int64 = np.cumsum(launches[points]) - launches[points]
    stretch = np.cumsum(begins(ended, np.cumsum(nodes.first_of_lane[points]))) - 1
    within = np.clip(np.minimum(held[points], subject.since[points]), 0, None)
    total = np.bincount(stretch, within, minlength=1).astype(np.int64)
    of_launch = stretch[np.searchsorted(points, launch)]
    stretch_ns = total[of_launch]
    usual = lower_medians(alike, stretch_ns, expected)
    if only_long:
        usual = np.where(stretch_ns > 2 * usual + _PAUSE_NS, usual, stretch_ns)
    factor: npt.NDArray[np.float64] = np.ones(len(total))
    factor[of_launch] = np.where(stretch_ns > 0, usual / np.maximum(stretch_ns, 1), 1.0)
    saved = np.zeros(len(nodes), np.int64)
    saved[points] = np.rint(within * (1 - factor[stretch])).astype(np.int64)
    return np.where(of_host, saved, 0)
