# SPDX-License-Identifier: Apache-2.0
"""Kernels that run slower by a factor while communication runs: their durations in a replay."""

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
    """Share of each compute node that overlaps its rank's communication, 0 for other nodes."""
    nodes = graph.nodes
    share = np.zeros(len(nodes))
    for rank in graph.windowed:
        of_rank = np.flatnonzero(nodes.rank == rank.rank)
        transfers = of_rank[nodes.kind[of_rank] == n.TRANSFER]
        # a collective occupies the device from its arrival, the node before its transfer
        busy = intervals.union(start[transfers - 1], end[transfers])
        compute = of_rank[(nodes.kind[of_rank] == n.COMPUTE) & (end[of_rank] > start[of_rank])]
        overlap_ns = intervals.within(busy, start[compute], end[compute])
        share[compute] = overlap_ns / (end[compute] - start[compute])
    return share


def replay_contended(graph: Graph, factor: float) -> NodeTimes:
    """Replay nodes, with kernels at 1 / factor of their speed while communication runs.

    A kernel's work is measured · (1 − overlap share · (1 − 1 / factor)), and its new time is the work over
    the same factor with the new share; shares are found by repeated replays.
    """
    nodes, dur = graph.nodes, graph.nodes.dur
    if factor == 1.0:
        return simulate_nodes(nodes, graph.cut)
    lost = 1 - 1 / factor
    work = dur * (1 - lost * communication_shares(graph, nodes.start, nodes.end))
    durations = dur
    for _ in range(_ROUNDS):
        times = simulate_nodes(replace(nodes, dur=durations), graph.cut)
        next_durations = np.rint(
            work / (1 - lost * communication_shares(graph, times.start, times.end))
        ).astype(np.int64)
        next_durations = np.where(nodes.kind == n.COMPUTE, next_durations, dur)
        settled = bool(abs(next_durations - durations).max(initial=0) <= _SETTLED_NS)
        durations = next_durations
        if settled:
            break
    return simulate_nodes(replace(nodes, dur=durations), graph.cut)
