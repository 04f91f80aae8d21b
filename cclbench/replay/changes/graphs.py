# SPDX-License-Identifier: Apache-2.0
"""`launches=graph`: kernels between two waits of their host are launched at once, as by a CUDA graph."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from cclbench.ground.intervals import Int64, Mask, begins
from cclbench.replay import nodes as n
from cclbench.replay.change import ChangeSubject, change, read_choice
from cclbench.replay.graph import Graph

_KEPT: Final = [n.HOST_CAUSES.index(cause) for cause in ("cold_start", "allocation", "loader")]


@change(
    "launches",
    values="graph",
    definition="a launching thread takes no time between two launches without a wait between them, as if a"
    " CUDA or HIP graph launched both; launch latencies, wake-ups, data loaders, allocations, first calls,"
    " and gaps on the device stay. Whether the work can be captured is not checked",
    read=read_choice("graph"),
)
def launches(subject: ChangeSubject, _: int) -> Graph | str:
    """The graph without host time between such launches."""
    graph, nodes = subject.graph, subject.graph.nodes
    on_host = np.isin(nodes.rank, [rank.rank for rank in graph.windowed if rank.on_host])
    host = np.flatnonzero((nodes.kind == n.HOST) & ~on_host)
    launch = np.zeros(len(nodes), np.bool_)
    launch[nodes.feeder[nodes.feeder >= 0]] = True
    awaits = np.zeros(len(nodes), np.bool_)
    awaits[graph.wait_edges()[1]] = True
    # a stretch is after a launch, up to and including the next one
    stretch: Int64 = np.cumsum(launch[host]) - launch[host]
    first = begins(nodes.lane[host])

    def holds(what: Mask) -> Mask:
        return np.asarray((np.bincount(stretch, what, minlength=1) > 0)[stretch])

    between = holds(launch[host]) & ~holds(awaits[host] | first)
    host_ns = np.maximum(nodes.gap[host] - nodes.held[host][:, _KEPT].sum(axis=1), 0)
    saved = np.where(between, np.clip(subject.since[host], 0, host_ns), 0)
    if not (saved > 0).any():
        return "no host takes time between two launches in the run's windows"
    gap = nodes.gap.copy()
    gap[host] -= saved
    return replace(graph, nodes=replace(nodes, gap=gap))
