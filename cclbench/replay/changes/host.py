# SPDX-License-Identifier: Apache-2.0
"""`host=x0.5`: another speed of the threads that launch."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from cclbench.intervals import Int64
from cclbench.replay import nodes as n
from cclbench.replay.change import Subject, change, share_of
from cclbench.replay.graph import Graph


@change(
    "host",
    values="x0.5, x0",
    definition="all that a launching host takes of its own is scaled: its time between calls, from a launch"
    " to its row's earliest start (up to the rank's median), and from the end of what it waited for until it"
    " goes on; x0: the device never waits for its host",
    read=share_of,
)
def host(subject: Subject, factor: float) -> Graph | str:
    """The graph with those gaps and lags."""
    graph, nodes, cut, since = subject.graph, subject.graph.nodes, subject.graph.cut, subject.since
    apart = [rank.rank for rank in graph.windowed if not rank.on_host]
    of_host = (nodes.kind == n.HOST) & np.isin(nodes.rank, apart)
    usual = np.zeros(len(nodes), np.int64)
    for rank in apart:
        fed = (nodes.rank == rank) & (nodes.feeder >= 0)
        if fed.any():
            usual[fed] = int(np.median(nodes.feed_lag[fed]))
    gap = np.where(of_host, nodes.gap, 0)
    latency = np.minimum(np.where(nodes.feeder >= 0, nodes.feed_lag, 0), usual)
    head = cut.head[cut.target]
    back = np.where(of_host[head] & ~cut.own, cut.lag, 0)

    def saved(time: Int64, within: Int64) -> Int64:
        """What is saved of a time that ends at a node, as far as it lies within windows."""
        return np.rint((1 - factor) * np.clip(np.minimum(time, within), 0, None)).astype(np.int64)

    if not (np.minimum(gap, since).max(initial=0) > 0 or np.minimum(latency, since).max(initial=0) > 0):
        return "no host launches anything within the run's windows"
    changed = replace(
        nodes,
        gap=nodes.gap - saved(gap, since),
        loading=nodes.loading - saved(nodes.loading, since),
        feed_lag=nodes.feed_lag - saved(latency, since),
    )
    return replace(graph, nodes=changed, cut=replace(cut, lag=cut.lag - saved(back, since[head])))
