# SPDX-License-Identifier: Apache-2.0
"""Transfers that leave a node, and the ranks they connect."""

from __future__ import annotations

import numpy as np

from cclbench.ground.errors import InputError
from cclbench.ground.intervals import Int64
from cclbench.replay import nodes as n
from cclbench.replay.change import ChangeSubject

UNPLACED = "collectives whose process group is unknown may or may not cross the network"


def between_nodes(subject: ChangeSubject) -> Int64:
    """The graph's nodes that are transfers of groups spanning several scale-up domains.

    They are ordered by rank and by when their data began to move (one time per instance), ties by launch.
    `InputError` if a group, or which ranks share a node, is not known.
    """
    nodes = subject.graph.nodes
    transfers = np.flatnonzero((nodes.kind == n.TRANSFER) & (nodes.call >= 0))
    members = group_ranks(subject, transfers)
    crosses = {ranks: _crosses_nodes(subject, ranks) for ranks in set(members)}
    transfers = transfers[np.array([crosses[ranks] for ranks in members], np.bool_)]
    gate = subject.graph.transfer_gates()[transfers]
    feeder = nodes.feeder[transfers - 1]  # a transfer is launched with its arrival, the node before it
    launched = np.full(len(nodes), np.iinfo(np.int64).max)
    np.minimum.at(launched, gate, np.where(feeder >= 0, nodes.start[feeder], nodes.start[transfers - 1]))
    return transfers[np.lexsort((transfers, gate, launched[gate], nodes.start[gate], nodes.rank[transfers]))]


def group_ranks(subject: ChangeSubject, transfers: Int64) -> list[tuple[int, ...]]:
    """The ranks of each transfer's process group, or the ranks that take part in it if no group is stated.

    `InputError` if neither is known.
    """
    nodes, calls = subject.graph.nodes, subject.graph.transfers
    call = nodes.call[transfers]
    met: dict[int, set[int]] = {}
    for rank, instance, has_instance in zip(
        nodes.rank[transfers].tolist(),
        calls.instance[call].tolist(),
        calls.is_split[call].tolist(),
        strict=True,
    ):
        if has_instance:
            met.setdefault(instance, set()).add(rank)
    groups = []
    for call_index in call.tolist():
        members = subject.groups.get(calls.group[call_index] or "") or sorted(
            met.get(int(calls.instance[call_index]), ())
        )
        if not members:
            raise InputError(UNPLACED, hint="the traces state no process groups")
        groups.append(tuple(members))
    return groups


def _crosses_nodes(subject: ChangeSubject, members: tuple[int, ...]) -> bool:
    tier = subject.machine.tier_of(members)
    if tier.value is None:
        raise InputError(tier.reason or "", hint="give --per-node N, or --system ID")
    return tier.value == "scale_out"
