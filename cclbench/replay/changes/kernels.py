# SPDX-License-Identifier: Apache-2.0
"""`kernels[gemm].time=x0.5`, `rank[3].kernels.time=median`: other durations of kernels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np

from cclbench.ground.codes import combination_codes
from cclbench.ground.errors import InputError
from cclbench.ground.intervals import Int64, Mask, begins
from cclbench.replay import nodes as n
from cclbench.replay.change import ChangeSubject, LayoutEffect
from cclbench.replay.graph import Graph
from cclbench.replay.places import code_means, lower_medians, occurrences, step_places
from cclbench.replay.rooflines import (
    as_one_kernel,
    at_roofline,
    has_roofline,
    in_chains,
    on_tensor_cores,
    without_launches,
    without_tensor_cores,
)
from cclbench.replay.selection import NodeSelection, TimeAmount, node_change

_SHORT_GAP_NS: Final = 10_000


class RoofValue(NamedTuple):
    """A value that bounds times by the catalog's device: its effect on the chosen kernels, and which of them
    it affects."""

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
    definition="kernels take this many times as long; median, mean: over the ranks at the same place of the"
    " step (number of earlier collectives, name, count of that name), the lower of two, 0 on a rank without"
    " such a kernel; for a single rank, over its steps; fastest: at the speed of the rank's fastest step;"
    " roofline: the time that their FLOPs and bytes need on the catalog's device at their precision, between"
    " data sheet and practice; tensor_cores: fp32 products without tensor cores take their time with them,"
    " between a 16-bit type and TF32, if precision allows; fused: each chain of calls (attention, norm,"
    " activation, rotary, optimizer, neighbours: elementwise calls, copies and reductions that follow one"
    " another on as many elements) takes the roofline time of one kernel. The condition recomputed selects"
    " kernels of forward operators that run again for the backward pass, at 0 without the host's calls",
)
def kernels(subject: ChangeSubject, setting: tuple[NodeSelection, TimeAmount]) -> Graph | LayoutEffect | str:
    """The graph with other durations of kernels, or their bounds."""
    selected, amount = setting
    graph, nodes = subject.graph, subject.graph.nodes
    chosen = selected.selected_nodes(subject)
    # compute of CPU-only ranks is in the gaps of their host nodes, which have no category or name
    on_host = np.zeros(len(nodes), np.bool_)
    if not selected.narrows_kernels:
        on_host = selected.nodes_in_windows(subject) & (nodes.busy > 0)
    if not (chosen.any() or on_host.any()):
        return "no such kernel runs in the run's windows"
    if amount.statistic in ROOFS:
        if on_host.any():
            raise InputError("a CPU's operators, its kernels, have no rows in a replay")
        chosen &= ~_at_earlier_roofs(subject, setting)
        if not chosen.any():
            return "another setting already bounds all of them"
        return ROOFS[amount.statistic].bound(subject, chosen)
    if amount.factor is None:
        if on_host.any() and amount.statistic == "fastest":
            raise InputError("the speed of a CPU's operators, its kernels, is unknown")
        dur = typical(subject, chosen, nodes.dur, amount.statistic or "")
        busy = _typical_busy(subject, on_host, amount.statistic or "")
        if np.array_equal(dur, nodes.dur) and np.array_equal(busy, nodes.busy):
            return f"every such kernel takes the {amount.statistic} of its place already"
        return replace(graph, nodes=replace(nodes, dur=dur, gap=nodes.gap + busy - nodes.busy, busy=busy))
    if selected.recomputed and not amount.factor:
        graph = without_launches(subject, chosen)
        nodes = graph.nodes
    dur = np.where(chosen, np.rint(nodes.dur * amount.factor), nodes.dur).astype(np.int64)
    saved = np.where(on_host, np.rint(nodes.busy * (1 - amount.factor)), 0).astype(np.int64)
    return replace(graph, nodes=replace(nodes, dur=dur, gap=nodes.gap - saved, busy=nodes.busy - saved))


@node_change(
    "kernels.gap",
    values="x0.5, 0",
    definition="scales the gap between successive kernels on a stream, where it is less than 10 us and"
    " nothing else holds the second one up, as if both were one kernel",
)
def kernels_gap(subject: ChangeSubject, setting: tuple[NodeSelection, TimeAmount]) -> Graph | str:
    """The graph with other gaps between kernels."""
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
    """Nodes that an earlier setting of the scenario bounds, shape (nodes,)."""
    touched = np.zeros(len(subject.graph.nodes), np.bool_)
    for _, value in sorted(subject.settings.items()):
        if value is setting:
            break
        if isinstance(value, tuple) and isinstance(value[1], TimeAmount) and value[1].statistic in ROOFS:
            touched |= ROOFS[value[1].statistic].touched(subject, value[0].selected_nodes(subject))
    return touched


def typical(subject: ChangeSubject, chosen: Mask, dur: Int64, statistic: str) -> Int64:
    """Durations with the chosen nodes at their places' statistic, ns, shape (nodes,).

    A rank without a row at a place counts as 0, so that what most ranks do not do becomes 0.
    """
    durations, places = dur.copy(), step_places(subject.graph)
    inside = subject.since[places.at] >= 0
    at, rank, step, place = (column[inside] for column in (places.at, places.rank, places.step, places.place))
    role = subject.stage_roles[rank]
    if statistic == "fastest":
        typical_ns = _at_fastest(rank, step, combination_codes(rank, place), dur[at])
    else:
        ranks = np.unique(rank)
        several = len(ranks) > 1
        alike = combination_codes(role, step, place) if several else place
        expected = occurrences(role, subject.stage_roles[ranks]) if several else np.zeros(len(at), np.int64)
        typical_ns = (code_means if statistic == "mean" else lower_medians)(alike, dur[at], expected)
    is_chosen = chosen[at]
    durations[at[is_chosen]] = typical_ns[is_chosen]
    return durations


def _typical_busy(subject: ChangeSubject, chosen: Mask, statistic: str) -> Int64:
    """Operator time of CPU-only ranks with the time between two collectives of a step at the statistic of the
    ranks, ns, shape (nodes,)."""
    nodes = subject.graph.nodes
    at = np.flatnonzero(chosen | ((nodes.kind == n.ARRIVAL) & (subject.since >= 0)))
    at = at[np.lexsort((nodes.start[at], nodes.rank[at]))]
    rank, step = nodes.rank[at].astype(np.int64), subject.step[at]
    arrives = nodes.kind[at] == n.ARRIVAL
    before = np.cumsum(arrives) - arrives
    first = begins(combination_codes(rank, step))
    segment = before - np.repeat(before[first], np.diff(np.append(np.flatnonzero(first), len(at))))
    place = combination_codes(subject.stage_roles[rank], step, segment)
    segment_code = combination_codes(rank, place)
    busy_ns = np.bincount(segment_code, nodes.busy[at], minlength=1).astype(np.int64)
    one_each = np.unique(segment_code, return_index=True)[1]
    ranks = np.unique(rank)
    expected = occurrences(subject.stage_roles[rank], subject.stage_roles[ranks])
    usual = np.zeros_like(busy_ns)
    if len(one_each):
        statistics = code_means if statistic == "mean" else lower_medians
        usual[segment_code[one_each]] = statistics(
            place[one_each], busy_ns[segment_code[one_each]], expected[one_each]
        )
    factor = np.where(busy_ns > 0, usual / np.maximum(busy_ns, 1), 1.0)
    busy = nodes.busy.copy()
    busy[at] = np.where(chosen[at], np.rint(nodes.busy[at] * factor[segment_code]), nodes.busy[at]).astype(
        np.int64
    )
    return busy


def _at_fastest(rank: Int64, step: Int64, place: Int64, dur: Int64) -> Int64:
    """Durations at the speed of the rank's fastest step, ns.

    A step's speed is the median over its places of the duration relative to the place's median of all steps.
    """
    usual = np.maximum(lower_medians(place, dur, np.zeros_like(place)), 1)
    ratio, of_step = dur / usual, combination_codes(rank, step)
    order = np.lexsort((ratio, of_step))
    first = np.flatnonzero(begins(of_step[order]))
    count = np.diff(np.append(first, len(of_step)))
    slowness = ratio[order][first + (count - 1) // 2]
    ranks = rank[order][first]
    fastest = np.full(int(rank.max(initial=0)) + 1, np.inf)
    # a step that the capture cuts off has too few rows
    complete = 2 * count >= int(count.max(initial=0))
    np.minimum.at(fastest, ranks[complete], slowness[complete])
    factor = np.where(complete, fastest[ranks] / np.maximum(slowness, 1e-9), 1.0)
    return np.asarray(np.rint(dur * factor[of_step]), np.int64)
