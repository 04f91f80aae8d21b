# SPDX-License-Identifier: Apache-2.0
"""`transfers[all_reduce].time=0`: another time of collectives, from the arrival of their last rank on."""

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
    definition="collectives of the kinds and group named take so many times as long from the arrival of their"
    " last rank on; median: what those of their kind, group size and payload take. Where waiting cannot be"
    " told from transfer, the bounds take all and none of it for the transfer",
)
def transfers(
    subject: ChangeSubject, setting: tuple[NodeSelection, TimeAmount]
) -> Graph | LayoutEffect | str:
    """The graph with those durations."""
    selected, amount = setting
    graph, nodes = subject.graph, subject.graph.nodes
    chosen = np.flatnonzero(selected.selected_nodes(subject))
    chosen = chosen[nodes.call[chosen] >= 0]
    if not len(chosen):
        return "the run's steps have no such collective"
    known = graph.transfers.known[nodes.call[chosen]] | (graph.transfers.size[nodes.call[chosen]] == 1)
    factor = np.ones(len(nodes))
    if amount.factor is None:
        factor[chosen] = _median(graph, chosen) / np.maximum(nodes.dur[chosen], 1)
    else:
        factor[chosen] = amount.factor
    if known.all():
        return replace(graph, nodes=replace(nodes, dur=np.rint(nodes.dur * factor).astype(np.int64)))
    expected, kept = factor.copy(), factor.copy()
    expected[chosen[~known]] = np.nan
    kept[chosen[~known]] = 1.0
    return LayoutEffect(graph, scale=Scale(expected, np.minimum(factor, kept), np.maximum(factor, kept)))


def _median(graph: Graph, chosen: Int64) -> Int64:
    """The lower median of what each transfer's like take: kind, group size and payload."""
    nodes = graph.nodes
    at = np.flatnonzero((nodes.kind == n.TRANSFER) & (nodes.call >= 0))
    usual = np.zeros(len(nodes), np.int64)
    like = call_kinds(graph, nodes.call[at])
    usual[at] = lower_medians(like, nodes.dur[at], np.zeros_like(like))
    return usual[chosen]
