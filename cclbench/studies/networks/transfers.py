# SPDX-License-Identifier: Apache-2.0
"""Transfers that leave a node, and between which ranks they are."""

from __future__ import annotations

import numpy as np

from cclbench.ground.errors import InputError
from cclbench.ground.intervals import Int64
from cclbench.replay import nodes as n
from cclbench.replay.change import ChangeSubject

UNPLACED = "collectives of unknown group may cross the network or not"


def between_nodes(subject: ChangeSubject) -> Int64:
    """Transfers of groups that span several scale-up domains: their nodes in order of rank and of when their
    data began to move, of which an instance has one time; of two at once the one launched first.

    `InputError` where a group, or what shares a node, is not known.
    """
    nodes = subject.graph.nodes
    at = np.flatnonzero((nodes.kind == n.TRANSFER) & (nodes.call >= 0))
    members = group_ranks(subject, at)
    crosses = {own: _crosses_nodes(subject, own) for own in set(members)}
    at = at[np.array([crosses[own] for own in members], np.bool_)]
    gate = subject.graph.transfer_gates()[at]
    feeder = nodes.feeder[at - 1]  # a transfer is launched with its arrival, the node before it
    launched = np.full(len(nodes), np.iinfo(np.int64).max)
    np.minimum.at(launched, gate, np.where(feeder >= 0, nodes.start[feeder], nodes.start[at - 1]))
    return at[np.lexsort((at, gate, launched[gate], nodes.start[gate], nodes.rank[at]))]


def group_ranks(subject: ChangeSubject, at: Int64) -> list[tuple[int, ...]]:
    """The ranks of each transfer's process group; where no group is stated, those that take part in it.

    `InputError` where those are not known either.
    """
    nodes, calls = subject.graph.nodes, subject.graph.transfers
    call = nodes.call[at]
    met: dict[int, set[int]] = {}
    for rank, one, known in zip(
        nodes.rank[at].tolist(), calls.instance[call].tolist(), calls.known[call].tolist(), strict=True
    ):
        if known:
            met.setdefault(one, set()).add(rank)
    found = []
    for one in call.tolist():
        members = subject.groups.get(calls.group[one] or "") or sorted(met.get(int(calls.instance[one]), ()))
        if not members:
            raise InputError(UNPLACED, hint="the traces state no process groups")
        found.append(tuple(members))
    return found


def _crosses_nodes(subject: ChangeSubject, members: tuple[int, ...]) -> bool:
    tier = subject.machine.tier_of(members)
    if tier.value is None:
        raise InputError(tier.reason or "", hint="give --per-node N, or --system ID")
    return tier.value == "scale_out"
