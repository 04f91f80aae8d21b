# SPDX-License-Identifier: Apache-2.0
"""`scale_out.fence=2us`: a proxy that drains the network interface after each message."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from cclbench.hardware.collectives.cost import ROUNDS
from cclbench.hardware.collectives.p2p import PAIRS
from cclbench.replay.change import ChangeSubject, change, time_of
from cclbench.replay.graph import Graph
from cclbench.studies.networks.transfers import between_nodes, group_ranks


@change(
    "scale_out.fence",
    values="2us",
    definition="a proxy that orders data and signal waits that long after each message to another node:"
    " transfers take messages x fence longer. An all-to-all sends one message to each peer on other nodes, a"
    " ring one per step, a send one; kernels that send their own tiles send more, which traces do not record",
    read=time_of,
)
def fence(subject: ChangeSubject, cost: int) -> Graph | str:
    """The graph with the new transfer durations."""
    graph, nodes, calls = subject.graph, subject.graph.nodes, subject.graph.transfers
    transfers = between_nodes(subject)
    transfers = transfers[subject.since[transfers] >= 0]
    if not len(transfers):
        return "no transfer within the run's windows leaves a node"
    dur = nodes.dur.copy()
    kinds = [calls.kind[call] or "" for call in nodes.call[transfers].tolist()]
    sends = list(zip(kinds, group_ranks(subject, transfers), strict=True))
    messages = {send: _count_messages(subject, *send) for send in set(sends)}
    dur[transfers] += np.array([messages[send] for send in sends], np.int64) * cost
    return replace(graph, nodes=replace(nodes, dur=dur))


def _count_messages(subject: ChangeSubject, kind: str, members: tuple[int, ...]) -> int:
    """Messages that one rank sends to other nodes in a call, one after another."""
    if kind in PAIRS:
        return 1
    if kind == "all_to_all":
        nodes = [subject.machine.node_of(rank) for rank in members]
        return max(len(nodes) - nodes.count(node) for node in nodes)
    return ROUNDS.get(kind, 1) * (len(members) - 1)
