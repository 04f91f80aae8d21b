# SPDX-License-Identifier: Apache-2.0
"""`loader=none`: data loaders and checkpoints that hold no launching thread."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from cclbench.replay.change import Subject, change, share_of
from cclbench.replay.graph import Graph


@change(
    "loader",
    values="x0.5, none",
    definition="the time that a launching thread is in a data loader's or a checkpoint's range (`loading` of"
    " time.idle_host_by) is scaled",
    read=share_of,
)
def loader(subject: Subject, factor: float) -> Graph | str:
    """The graph with those gaps."""
    graph, nodes = subject.graph, subject.graph.nodes
    apart = [rank.rank for rank in graph.windowed if not rank.on_host]
    loading = np.where(np.isin(nodes.rank, apart), np.minimum(nodes.loading, subject.since), 0)
    if not (loading > 0).any():
        return "no launching thread is in a data loader's range within the run's windows"
    saved = np.rint((1 - factor) * np.maximum(loading, 0)).astype(np.int64)
    return replace(graph, nodes=replace(nodes, gap=nodes.gap - saved, loading=nodes.loading - saved))
