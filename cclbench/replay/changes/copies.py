# SPDX-License-Identifier: Apache-2.0
"""`copies[h2d].bandwidth=x2`, `copies.time=0`: other bandwidth or duration of copies."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from cclbench.replay.change import ChangeSubject
from cclbench.replay.changes.kernels import typical
from cclbench.replay.graph import Graph
from cclbench.replay.selection import NodeSelection, TimeAmount, node_change

_DEFINITION = "copies of the named directions (h2d, d2h, d2d, p2p; by default all, and memsets)"


@node_change(
    "copies.time",
    values="x0.5, 0, median",
    definition=f"{_DEFINITION} take this many times as long; median: as for kernels",
)
def copies_time(subject: ChangeSubject, setting: tuple[NodeSelection, TimeAmount]) -> Graph | str:
    """The graph with those durations."""
    return _scaled(subject, setting)


def _scaled(subject: ChangeSubject, setting: tuple[NodeSelection, TimeAmount]) -> Graph | str:
    """The graph with those durations."""
    selected, amount = setting
    graph, nodes = subject.graph, subject.graph.nodes
    chosen = selected.selected_nodes(subject)
    if not chosen.any():
        return "the run's steps have no such copy"
    if amount.factor is None:
        dur = typical(subject, chosen, nodes.dur, amount.statistic or "")
    else:
        dur = np.where(chosen, np.rint(nodes.dur * amount.factor), nodes.dur).astype(np.int64)
    return replace(graph, nodes=replace(nodes, dur=dur))


@node_change(
    "copies.bandwidth",
    values="x2",
    definition=f"{_DEFINITION} have this many times the bandwidth: each copy's whole time, including latency,"
    " is divided by the factor",
)
def copies_bandwidth(subject: ChangeSubject, setting: tuple[NodeSelection, TimeAmount]) -> Graph | str:
    """The graph with those durations."""
    return _scaled(subject, setting)
