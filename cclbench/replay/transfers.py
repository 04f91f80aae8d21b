# SPDX-License-Identifier: Apache-2.0
"""Transfers that changes act on: those of groups within windows, and those that leave a node."""

from __future__ import annotations

import numpy as np

from cclbench.errors import InputError
from cclbench.intervals import Int64
from cclbench.replay import nodes as n
from cclbench.replay.change import ChangeSubject

UNPLACED = "collectives of unknown group may cross the network or not"


def of_groups(subject: ChangeSubject, *kinds: str) -> dict[tuple[str, str], Int64]:
    """Transfers of those kinds within windows by (kind, group) of several ranks, whose payload is known and
    whose waiting is told from transfer: their nodes."""
    nodes, calls = subject.graph.nodes, subject.graph.transfers
    at = np.flatnonzero((nodes.kind == n.TRANSFER) & (nodes.call >= 0) & (subject.since >= 0))
    call = nodes.call[at]
    at = at[calls.known[call] & (calls.bytes[call] > 0)]
    found: dict[tuple[str, str], list[int]] = {}
    for node, one in zip(at.tolist(), nodes.call[at].tolist(), strict=True):
        kind, group = calls.kind[one], calls.group[one]
        if kind in kinds and group is not None and len(subject.groups.get(group, ())) > 1:
            found.setdefault((kind, group), []).append(node)
    return {word: np.array(members, np.int64) for word, members in found.items()}


def between_nodes(subject: ChangeSubject) -> Int64:
    """Transfers of groups that span several scale-up domains: their nodes in order of rank and of when their
    data began to move, of which an instance has one time; of two at once the one launched first.

    `InputError` where a group, or what shares a node, is not known.
    """
    nodes = subject.graph.nodes
    at = np.flatnonzero((nodes.kind == n.TRANSFER) & (nodes.call >= 0))
    members = peers(subject, at)
    crosses = {own: _crosses(subject, own) for own in set(members)}
    at = at[np.array([crosses[own] for own in members], np.bool_)]
    gate = subject.graph.gates()[at]
    feeder = nodes.feeder[at - 1]  # a transfer is launched with its arrival, the node before it
    launched = np.full(len(nodes), np.iinfo(np.int64).max)
    np.minimum.at(launched, gate, np.where(feeder >= 0, nodes.start[feeder], nodes.start[at - 1]))
    return at[np.lexsort((at, gate, launched[gate], nodes.start[gate], nodes.rank[at]))]


def peers(subject: ChangeSubject, at: Int64) -> list[tuple[int, ...]]:
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


def _crosses(subject: ChangeSubject, members: tuple[int, ...]) -> bool:
    tier = subject.machine.tier(members)
    if tier.value is None:
        raise InputError(tier.reason or "", hint="give --per-node N, or --system ID")
    return tier.value == "scale_out"
