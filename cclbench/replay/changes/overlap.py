# SPDX-License-Identifier: Apache-2.0
"""`overlap=off`: communication and compute of a rank never run at the same time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from cclbench.ground.errors import InputError
from cclbench.ground.intervals import Int64
from cclbench.replay import nodes as n
from cclbench.replay.change import ChangeSubject, change, read_choice
from cclbench.replay.graph import Graph
from cclbench.replay.nodes import Nodes
from cclbench.replay.simulate import cut_pieces


@change(
    "overlap",
    values="off",
    definition="a rank's kernels wait for all communication launched before them, and communication for all"
    " kernels launched before it; kernels still overlap kernels, communication overlaps communication, and"
    " copies overlap both",
    read=read_choice("off"),
)
def overlap(subject: ChangeSubject, _: int) -> Graph | str:
    """The graph with these waits; `InputError` where ranks would deadlock."""
    graph, nodes = subject.graph, subject.graph.nodes
    if any(rank.on_host for rank in graph.windowed):
        raise InputError("overlap=off: a CPU's operators, its kernels, have no rows in a replay")
    place = _launched(nodes, subject.since)
    source, target, lag = graph.wait_edges()
    # waits for rows that were launched later contradict the new order
    against = (
        (nodes.rank[source] == nodes.rank[target]) & (place[target] >= 0) & (place[source] > place[target])
    )
    source, target, lag = source[~against], target[~against], lag[~against]
    waits = [pair for rank in graph.windowed for pair in _waits(nodes, place, rank.rank)]
    if not waits:
        return "no rank both computes and communicates in the run's windows"
    before, behind = np.array(waits, np.int64).T
    try:
        serial = cut_pieces(
            nodes,
            np.concatenate([source, before]),
            np.concatenate([target, behind]),
            np.concatenate([lag, np.zeros(len(waits), np.int64)]),
        )
    except InputError as error:
        raise InputError(f"overlap=off: {error.what}", hint="ranks launch in different orders") from None
    return replace(graph, cut=serial)


def _launched(nodes: Nodes, since: Int64) -> Int64:
    """Position of each compute or communication node in launch order, −1 for others."""
    of_device = np.isin(nodes.kind, (n.COMPUTE, n.ARRIVAL, n.TRANSFER)) & (since >= 0)
    at = np.flatnonzero(of_device)
    row = at - (nodes.kind[at] == n.TRANSFER)  # a transfer is launched with its arrival, the node before it
    launched = np.where(nodes.feeder[row] >= 0, nodes.start[nodes.feeder[row]], nodes.start[row])
    order = np.lexsort((at, nodes.start[row], launched))
    place = np.full(len(nodes), -1, np.int64)
    place[at[order]] = np.arange(len(at))
    return place


def _waits(nodes: Nodes, place: Int64, rank: int) -> Iterator[tuple[int, int]]:
    """Pairs of a rank's nodes, the second of which waits for the first.

    Rows in launch order form stretches of compute or of communication. The first row of each lane in a
    stretch waits for the last row of each lane in the previous stretch, and so for all earlier ones.
    """
    at = np.flatnonzero((nodes.rank == rank) & (place >= 0))
    at = at[np.argsort(place[at], kind="stable")]
    before: dict[int, int] = {}
    last: dict[int, int] = {}
    communicates: bool | None = None
    for node, lane, computes in zip(
        at.tolist(), nodes.lane[at].tolist(), (nodes.kind[at] == n.COMPUTE).tolist(), strict=True
    ):
        if communicates is None or computes == communicates:
            before, last, communicates = last, {}, not computes
        if lane not in last:
            yield from ((earlier, node) for earlier in before.values())
        last[lane] = node
