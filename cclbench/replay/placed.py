# SPDX-License-Identifier: Apache-2.0
"""Collectives that a new layout adds to the graph, where the framework would call them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, Literal, NamedTuple

import numpy as np

from cclbench.ground.intervals import begins
from cclbench.replay import nodes as n
from cclbench.replay.change import PlacedTransfer
from cclbench.replay.graph import Graph
from cclbench.replay.simulate import cut_pieces

Case = Literal["low", "expected", "high"]


class RankSpread(NamedTuple):
    """Standard deviation of ranks' own work in a step, as a share of its mean."""

    low: float
    expected: float
    high: float


SPREAD: Final = RankSpread(0.0, 0.012, 0.11)
"""Median and maximum of four accelerator jobs with traces of 2 to 16 ranks, without their waiting: 0.45 % and
0.6 % (J. Lin et al. 2025, jobs ST and AR, medians over steps and stages), 1.8 % (two GPUs, traced by nsys),
11 % (DLRM on eight V100)."""
HOST_BOUND_SPREAD: Final = SPREAD._replace(high=0.36)
"""Where the host bounds the step: 90 % limit for one more job, by a log-normal distribution over five.
Two are among the four; of three others (2, 8 and 128 ranks, of which one or two are traced) all exposed
communication counts as waiting, so that their spreads are upper bounds: 8.7 %, 16 % and 13 %."""


def graph_with_transfers(graph: Graph, placed: Sequence[PlacedTransfer], case: Case) -> Graph:
    """The graph with these transfers, each rank's one behind the other on a stream of their own."""
    nodes, calls, count = graph.nodes, graph.transfers, len(placed)
    after = np.array([transfer.after for transfer in placed], np.int64)
    arrival = len(nodes) + 2 * np.arange(count)
    rank = np.array([transfer.rank for transfer in placed], np.int32)
    times = [getattr(transfer.time, case) for transfer in placed]
    added = n.blank_nodes(
        2 * count,
        kind=np.tile(np.array([n.ARRIVAL, n.TRANSFER], np.int8), count),
        lane=np.repeat(int(nodes.lane.max()) + 1 + np.cumsum(begins(rank)) - 1, 2),
        rank=np.repeat(rank, 2),
        start=np.repeat(nodes.end[after], 2),
        end=np.repeat(nodes.end[after], 2),
        step=np.repeat(nodes.step[after], 2),
        dur=np.stack([np.zeros(count), np.rint(times)], 1).astype(np.int64).ravel(),
        call=np.repeat(len(calls.kind) + np.arange(count), 2),
    )
    joined = n.join_nodes([nodes, added])
    before = np.array([transfer.before for transfer in placed], np.int64)
    # what begins before a transfer of the chain is ready cannot wait for it
    latest = np.concatenate([np.maximum.accumulate(nodes.end[after[rank == r]]) for r in np.unique(rank)])
    awaited = np.flatnonzero((before >= 0) & (nodes.start[before] >= latest))
    source, target, lag = graph.wait_edges()
    return replace(
        graph,
        nodes=joined,
        cut=cut_pieces(
            joined,
            np.concatenate([source, after, arrival[awaited] + 1]),
            np.concatenate([target, arrival, before[awaited]]),
            np.concatenate([lag, np.zeros(count + len(awaited), np.int64)]),
        ),
        transfers=replace(
            calls,
            kind=(*calls.kind, *(transfer.kind for transfer in placed)),
            group=(*calls.group, *(None for _ in placed)),
            size=np.append(calls.size, [transfer.ranks for transfer in placed]),
            bytes=np.append(calls.bytes, [round(transfer.nbytes) for transfer in placed]),
            is_split=np.append(calls.is_split, np.zeros(count, np.bool_)),
            instance=np.append(calls.instance, np.full(count, -1)),
        ),
    )
