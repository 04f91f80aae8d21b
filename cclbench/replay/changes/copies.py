# SPDX-License-Identifier: Apache-2.0
"""`copies[h2d].bandwidth=x2`, `copies.time=0`: another rate or time of copies."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from cclbench.replay.change import ChangeSubject
from cclbench.replay.changes.kernels import typical
from cclbench.replay.graph import Graph
from cclbench.replay.selection import Amount, NodeSelection, node_change

_DEFINITION = "copies of the directions named (h2d, d2h, d2d, p2p; all and memsets without)"


@node_change(
    "copies.time",
    values="x0.5, 0, median",
    definition=f"{_DEFINITION} take so many times as long; median: as of kernels",
)
def copies_time(subject: ChangeSubject, setting: tuple[NodeSelection, Amount]) -> Graph | str:
    """The graph with those durations."""
    return _scaled(subject, setting)


def _scaled(subject: ChangeSubject, setting: tuple[NodeSelection, Amount]) -> Graph | str:
    """The graph with those durations."""
    selected, amount = setting
    graph, nodes = subject.graph, subject.graph.nodes
    chosen = selected.nodes(subject)
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
    definition=f"{_DEFINITION} move so many times the bytes a second: the whole of each row's time, its"
    " latency too, is divided by the factor",
)
def copies_bandwidth(subject: ChangeSubject, setting: tuple[NodeSelection, Amount]) -> Graph | str:
    """The graph with those durations."""
    return _scaled(subject, setting)
