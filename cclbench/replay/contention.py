# SPDX-License-Identifier: Apache-2.0
"""Kernels that run slower beside communication by a factor: their durations in a replay."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from cclbench.ground import intervals
from cclbench.ground.intervals import Int64
from cclbench.replay import nodes as n
from cclbench.replay.graph import Graph
from cclbench.replay.pricing import Float
from cclbench.replay.simulate import NodeTimes, simulate_nodes

_ROUNDS: Final = 6
_SETTLED_NS: Final = 100


def communication_shares(graph: Graph, start: Int64, end: Int64) -> Float:
    """The share of each compute node that runs beside communication of its rank, 0 of other nodes."""
    nodes = graph.nodes
    share = np.zeros(len(nodes))
    for rank in graph.windowed:
        own = np.flatnonzero(nodes.rank == rank.rank)
        moving = own[nodes.kind[own] == n.TRANSFER]
        # a collective occupies the device from its arrival on, the node before its transfer
        busy = intervals.union(start[moving - 1], end[moving])
        compute = own[(nodes.kind[own] == n.COMPUTE) & (end[own] > start[own])]
        beside = intervals.within(busy, start[compute], end[compute])
        share[compute] = beside / (end[compute] - start[compute])
    return share


def replay_contended(graph: Graph, factor: float) -> NodeTimes:
    """A replay of nodes with their durations, where kernels go on at 1 / factor beside communication.

    A kernel's work is measured · (1 − share beside · (1 − 1 / factor)), and its new time is that over the
    same with the new share; shares are found by repeated replays.
    """
    nodes, dur = graph.nodes, graph.nodes.dur
    if factor == 1.0:
        return simulate_nodes(nodes, graph.cut)
    lost = 1 - 1 / factor
    work = dur * (1 - lost * communication_shares(graph, nodes.start, nodes.end))
    now = dur
    for _ in range(_ROUNDS):
        times = simulate_nodes(replace(nodes, dur=now), graph.cut)
        new = np.rint(work / (1 - lost * communication_shares(graph, times.start, times.end))).astype(
            np.int64
        )
        new = np.where(nodes.kind == n.COMPUTE, new, dur)
        settled = bool(abs(new - now).max(initial=0) <= _SETTLED_NS)
        now = new
        if settled:
            break
    return simulate_nodes(replace(nodes, dur=now), graph.cut)
