# SPDX-License-Identifier: Apache-2.0
"""`transfers[all_reduce].time=0`: other transfer times of collectives, after their last rank's arrival."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from cclbench.ground.intervals import Int64
from cclbench.replay import nodes as n
from cclbench.replay.change import ChangeSubject, LayoutEffect, Scale
from cclbench.replay.graph import Graph
from cclbench.replay.places import call_kinds, lower_medians
from cclbench.replay.selection import NodeSelection, TimeAmount, node_change


@node_change(
    "transfers.time",
    values="x0.5, 0, median",
    definition="collectives of the named kinds and group take this many times as long after the arrival of"
    " their last rank; median: of those of the same kind, group size and payload. Where wait and transfer"
    " cannot be separated, the bounds count all or none of the time as transfer",
)
def transfers(
    subject: ChangeSubject, setting: tuple[NodeSelection, TimeAmount]
) -> Graph | LayoutEffect | str:
    """The graph with other transfer times, or their bounds."""
    selected, amount = setting
    graph, nodes = subject.graph, subject.graph.nodes
    chosen = np.flatnonzero(selected.selected_nodes(subject))
    chosen = chosen[nodes.call[chosen] >= 0]
    if not len(chosen):
        return "the run's steps have no such collective"
    call, calls = nodes.call[chosen], graph.transfers
    is_separable = calls.is_split[call] | (calls.size[call] == 1)
    factor = np.ones(len(nodes))
    if amount.factor is None:
        factor[chosen] = _median(graph, chosen) / np.maximum(nodes.dur[chosen], 1)
    else:
        factor[chosen] = amount.factor
    if is_separable.all():
        return replace(graph, nodes=replace(nodes, dur=np.rint(nodes.dur * factor).astype(np.int64)))
    expected, unchanged = factor.copy(), factor.copy()
    expected[chosen[~is_separable]] = np.nan
    unchanged[chosen[~is_separable]] = 1.0
    return LayoutEffect(
        graph, scale=Scale(expected, np.minimum(factor, unchanged), np.maximum(factor, unchanged))
    )


def _median(graph: Graph, chosen: Int64) -> Int64:
    """Lower median of the transfers with the same kind, group size and payload, ns."""
    nodes = graph.nodes
    moving = np.flatnonzero((nodes.kind == n.TRANSFER) & (nodes.call >= 0))
    medians = np.zeros(len(nodes), np.int64)
    alike = call_kinds(graph, nodes.call[moving])
    medians[moving] = lower_medians(alike, nodes.dur[moving], np.zeros_like(alike))
    return medians[chosen]
