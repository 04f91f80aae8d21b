# SPDX-License-Identifier: Apache-2.0
"""`straggler=none`: no rank computes slower than the others of its role."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from cclbench.replay.change import Subject, change, word
from cclbench.replay.graph import Graph
from cclbench.replay.stragglers import usual_compute


@change(
    "straggler",
    values="none",
    definition="kernels of a name take a rank and step what they take the median rank of its role, as in"
    " balance.straggler_slowdown; ranks that were faster than the median become slower",
    read=word("none"),
)
def straggler(subject: Subject, _: float) -> Graph | str:
    """The graph with those durations."""
    graph, nodes = subject.graph, subject.graph.nodes
    dur = np.where(subject.since >= 0, usual_compute(graph, subject.placed), nodes.dur)
    if np.array_equal(dur, nodes.dur):
        return "no rank's kernels take another time than the median rank's"
    return replace(graph, nodes=replace(nodes, dur=dur))
