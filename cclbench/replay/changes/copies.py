# SPDX-License-Identifier: Apache-2.0
"""`copies=x2`: another rate of copies between host and device."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from cclbench.replay.change import Subject, change, factor_of
from cclbench.replay.graph import Graph


@change(
    "copies",
    values="x2",
    definition="copies between host and device run so many times as fast: the whole of each row's time, its"
    " latency too, is divided by the factor",
    read=factor_of,
)
def copies(subject: Subject, factor: float) -> Graph | str:
    """The graph with those durations."""
    graph, nodes = subject.graph, subject.graph.nodes
    chosen = nodes.hosted & (subject.since >= 0)
    if not chosen.any():
        return "the run's steps copy nothing between host and device"
    dur = np.where(chosen, np.rint(nodes.dur / factor).astype(np.int64), nodes.dur)
    return replace(graph, nodes=replace(nodes, dur=dur))
