# SPDX-License-Identifier: Apache-2.0
"""`kernels[gemm].time=x0.5`, `rank[3].kernels.time=median`: another time of kernels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np

from cclbench.ground.errors import InputError
from cclbench.ground.intervals import Int64, Mask, begins
from cclbench.replay import nodes as n
from cclbench.replay.change import ChangeSubject, LayoutEffect
from cclbench.replay.graph import Graph
from cclbench.replay.places import code_means, combination_codes, lower_medians, ranks_of, step_places
from cclbench.replay.rooflines import (
    as_one_kernel,
    at_roofline,
    has_roofline,
    in_chains,
    on_tensor_cores,
    without_tensor_cores,
)
from cclbench.replay.selection import NodeSelection, TimeAmount, node_change

_SHORT_GAP_NS: Final = 10_000


class RoofValue(NamedTuple):
    """A value that bounds times by what the catalog's device can do: what it makes of the chosen kernels, and
    which of them it touches."""

    bound: Callable[[ChangeSubject, Mask], LayoutEffect | str]
    touched: Callable[[ChangeSubject, Mask], Mask]


ROOFS: Final[dict[str | None, RoofValue]] = {
    "roofline": RoofValue(at_roofline, has_roofline),
    "tensor_cores": RoofValue(on_tensor_cores, without_tensor_cores),
    "fused": RoofValue(as_one_kernel, in_chains),
}


@node_change(
    "kernels.time",
    values="x0.5, 0, median, mean, fastest, roofline, tensor_cores, fused",
    definition="kernels take so many times as long; median, mean: what their place in the step (how many"
    " collectives before, name, which of that name) takes on the ranks, of two the shorter; of a single rank"
    " in its steps, 0 on a rank that has no such kernel; fastest: what they would take at the speed of their"
    " rank's fastest step; roofline: what their FLOPs and bytes allow on the catalog's device at their"
    " precision, between data sheet and practice; tensor_cores: what products of fp32 that do without would"
    " take with, between a 16-bit type and TF32, if precision allows; fused: what each chain of calls"
    " (attention, norm, activation, rotary, optimizer) would take as one kernel at the roofline",
)
def kernels(subject: ChangeSubject, setting: tuple[NodeSelection, TimeAmount]) -> Graph | LayoutEffect | str:
    """The graph with those durations, or their bounds."""
    selected, amount = setting
    graph, nodes = subject.graph, subject.graph.nodes
    chosen = selected.selected_nodes(subject)
    # what CPU-only ranks compute lies in the gaps of their host nodes, which have no category or name
    on_host = np.zeros(len(nodes), np.bool_)
    if selected.words is None and selected.name is None and selected.chain is None:
        on_host = selected.nodes_in_windows(subject) & (nodes.busy > 0)
    if not (chosen.any() or on_host.any()):
        return "no such kernel runs within the run's windows"
    if amount.statistic in ROOFS:
        if on_host.any():
            raise InputError("the kernels of a CPU are its operators, which have no rows of their own")
        chosen &= ~_at_earlier_roofs(subject, setting)
        if not chosen.any():
            return "another setting bounds all of them"
        return ROOFS[amount.statistic].bound(subject, chosen)
    if amount.factor is None:
        if on_host.any() and amount.statistic == "fastest":
            raise InputError("the kernels of a CPU are its operators, whose speed is not told")
        dur = typical(subject, chosen, nodes.dur, amount.statistic or "")
        busy = _typical_busy(subject, on_host, amount.statistic or "")
        if np.array_equal(dur, nodes.dur) and np.array_equal(busy, nodes.busy):
            return f"no such kernel takes another time than the {amount.statistic} of its place"
        return replace(graph, nodes=replace(nodes, dur=dur, gap=nodes.gap + busy - nodes.busy, busy=busy))
    dur = np.where(chosen, np.rint(nodes.dur * amount.factor), nodes.dur).astype(np.int64)
    saved = np.where(on_host, np.rint(nodes.busy * (1 - amount.factor)), 0).astype(np.int64)
    return replace(graph, nodes=replace(nodes, dur=dur, gap=nodes.gap - saved, busy=nodes.busy - saved))


@node_change(
    "kernels.gap",
    values="x0.5, 0",
    definition="the time between the end of one kernel on a stream and the begin of the next, where that is"
    " less than 10 us and nothing else holds the next one up, is scaled, as where both are one kernel",
)
def kernels_gap(subject: ChangeSubject, setting: tuple[NodeSelection, TimeAmount]) -> Graph | str:
    """The graph with those gaps."""
    selected, amount = setting
    graph, nodes = subject.graph, subject.graph.nodes
    chosen = (
        selected.selected_nodes(subject)
        & ~nodes.first_of_lane
        & (nodes.gap > 0)
        & (nodes.gap < _SHORT_GAP_NS)
    )
    if not chosen.any():
        return "no such kernel follows another within 10 us"
    gap = np.where(chosen, np.rint(nodes.gap * (amount.factor or 0.0)), nodes.gap).astype(np.int64)
    return replace(graph, nodes=replace(nodes, gap=gap))


def _at_earlier_roofs(subject: ChangeSubject, setting: tuple[NodeSelection, TimeAmount]) -> Mask:
    """Nodes whose bounds another setting of the scenario gives before this one, shape (nodes,)."""
    found = np.zeros(len(subject.graph.nodes), np.bool_)
    for _, other in sorted(subject.settings.items()):
        if other is setting:
            break
        if isinstance(other, tuple) and isinstance(other[1], TimeAmount) and other[1].statistic in ROOFS:
            found |= ROOFS[other[1].statistic].touched(subject, other[0].selected_nodes(subject))
    return found


def typical(subject: ChangeSubject, chosen: Mask, dur: Int64, statistic: str) -> Int64:
    """What the chosen nodes take where their places take the statistic, and all else as it is; ns.

    A rank of a role that has no row at a place takes 0 there: what most ranks do not do is not usual.
    """
    found, where = dur.copy(), step_places(subject.graph)
    inside = subject.since[where.at] >= 0
    at, rank, step, place = (column[inside] for column in (where.at, where.rank, where.step, where.place))
    role = subject.stage_roles[rank]
    if statistic == "fastest":
        usual = _at_fastest(rank, step, combination_codes(rank, place), dur[at])
    else:
        ranks = np.unique(rank)
        several = len(ranks) > 1
        like = combination_codes(role, step, place) if several else place
        expected = ranks_of(role, subject.stage_roles[ranks]) if several else np.zeros(len(at), np.int64)
        usual = (code_means if statistic == "mean" else lower_medians)(like, dur[at], expected)
    here = chosen[at]
    found[at[here]] = usual[here]
    return found


def _typical_busy(subject: ChangeSubject, chosen: Mask, statistic: str) -> Int64:
    """What operators of CPU-only ranks take where those between two collectives of a step take the statistic
    of the ranks, ns, shape (nodes,)."""
    nodes = subject.graph.nodes
    at = np.flatnonzero(chosen | ((nodes.kind == n.ARRIVAL) & (subject.since >= 0)))
    at = at[np.lexsort((nodes.start[at], nodes.rank[at]))]
    rank, step = nodes.rank[at].astype(np.int64), subject.step[at]
    arrives = nodes.kind[at] == n.ARRIVAL
    before = np.cumsum(arrives) - arrives
    first = begins(combination_codes(rank, step))
    segment = before - np.repeat(before[first], np.diff(np.append(np.flatnonzero(first), len(at))))
    place = combination_codes(subject.stage_roles[rank], step, segment)
    own = combination_codes(rank, place)
    taken = np.bincount(own, nodes.busy[at], minlength=1).astype(np.int64)
    one_each = np.unique(own, return_index=True)[1]
    ranks = np.unique(rank)
    expected = ranks_of(subject.stage_roles[rank], subject.stage_roles[ranks])
    usual = np.zeros_like(taken)
    if len(one_each):
        statistics = code_means if statistic == "mean" else lower_medians
        usual[own[one_each]] = statistics(place[one_each], taken[own[one_each]], expected[one_each])
    factor = np.where(taken > 0, usual / np.maximum(taken, 1), 1.0)
    busy = nodes.busy.copy()
    busy[at] = np.where(chosen[at], np.rint(nodes.busy[at] * factor[own]), nodes.busy[at]).astype(np.int64)
    return busy


def _at_fastest(rank: Int64, step: Int64, place: Int64, dur: Int64) -> Int64:
    """What rows take at the speed of their rank's fastest step, ns.

    A step's speed is the median, over its places, of what each takes over the place's median of all steps.
    """
    usual = np.maximum(lower_medians(place, dur, np.zeros_like(place)), 1)
    ratio, of_step = dur / usual, combination_codes(rank, step)
    order = np.lexsort((ratio, of_step))
    first = np.flatnonzero(begins(of_step[order]))
    count = np.diff(np.append(first, len(of_step)))
    slowness = ratio[order][first + (count - 1) // 2]
    ranks = rank[order][first]
    least = np.full(int(rank.max(initial=0)) + 1, np.inf)
    # a step that the capture cuts has too few rows to tell its speed
    complete = 2 * count >= int(count.max(initial=0))
    np.minimum.at(least, ranks[complete], slowness[complete])
    factor = np.where(complete, least[ranks] / np.maximum(slowness, 1e-9), 1.0)
    return np.asarray(np.rint(dur * factor[of_step]), np.int64)
