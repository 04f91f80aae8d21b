# SPDX-License-Identifier: Apache-2.0
"""`scale_out.reconfiguration=25ms`: circuits between nodes, reconfigured for each process group."""

from __future__ import annotations

import numpy as np

from cclbench.ground.errors import InputError
from cclbench.ground.intervals import Int64, begins
from cclbench.replay.change import ChangeSubject, change, time_of
from cclbench.replay.graph import Graph
from cclbench.studies.networks.transfers import between_nodes, group_ranks


@change(
    "scale_out.reconfiguration",
    values="25ms, 100us",
    definition="a circuit-switched network between nodes: ports connect a rank to the peers of one process"
    " group at a time, and switching to another one takes that long; it begins when the rank's last transfer"
    " with the previous group ends, and so is hidden if there is nothing to transfer meanwhile. The order of"
    " process groups and the times of transfers are those measured",
    read=time_of,
)
def reconfiguration(subject: ChangeSubject, latency: int) -> Graph | str:
    """The graph in which each phase of a rank waits for its previous one plus the latency."""
    graph, nodes = subject.graph, subject.graph.nodes
    transfers = between_nodes(subject)
    if not len(transfers):
        return "no transfer within the run's windows leaves a node"
    members = group_ranks(subject, transfers)
    code = {ranks: number for number, ranks in enumerate(dict.fromkeys(members))}
    group = np.array([code[ranks] for ranks in members], np.int64)
    rank = nodes.rank[transfers]
    phase = np.cumsum(begins(rank, group)) - 1
    last, first = (
        _first_by_lane(nodes.lane[transfers][::-1], phase[::-1]),
        _first_by_lane(nodes.lane[transfers], phase),
    )
    last = len(transfers) - 1 - last
    # consecutive phases of one rank: pairs of (last of a lane in one, first of a lane in the next)
    before, behind = _equal_pairs(phase[last] + 1, phase[first])
    source, target = last[before], first[behind]
    chosen = (rank[source] == rank[target]) & (subject.since[transfers[target]] >= 0)
    source, target = transfers[source[chosen]], graph.transfer_gates()[transfers[target[chosen]]]
    if not len(source):
        return "no rank communicates with more than one process group between nodes"
    try:
        return graph.with_waits(source, target, np.full(len(source), latency))
    except InputError as error:
        hint = "ranks use their process groups in different orders"
        raise InputError(f"scale_out.reconfiguration: {error.what}", hint=hint) from None


def _first_by_lane(lane: Int64, phase: Int64) -> Int64:
    """Index of the first entry of each lane in each phase."""
    return np.unique(np.stack([phase, lane]), axis=1, return_index=True)[1]


def _equal_pairs(left: Int64, right: Int64) -> tuple[Int64, Int64]:
    """Index pairs of equal values in both."""
    by_value = np.argsort(right, kind="stable")
    begin = np.searchsorted(right[by_value], left, side="left")
    count = np.searchsorted(right[by_value], left, side="right") - begin
    left_index = np.repeat(np.arange(len(left)), count)
    place = np.arange(len(left_index)) - np.repeat(np.cumsum(count) - count, count)
    return left_index, by_value[begin[left_index] + place]
