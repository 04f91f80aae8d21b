# SPDX-License-Identifier: Apache-2.0
"""Transfers that changes act on: those of groups within windows."""

from __future__ import annotations

import numpy as np

from cclbench.ground.intervals import Int64
from cclbench.replay import nodes as n
from cclbench.replay.change import ChangeSubject


def transfers_by_group(subject: ChangeSubject, *kinds: str) -> dict[tuple[str, str], Int64]:
    """Nodes of transfers of those kinds within windows, by (kind, group): of groups of several ranks, with a
    known payload and with waiting separated from transfer."""
    nodes, calls = subject.graph.nodes, subject.graph.transfers
    at = np.flatnonzero((nodes.kind == n.TRANSFER) & (nodes.call >= 0) & (subject.since >= 0))
    call = nodes.call[at]
    at = at[calls.is_split[call] & (calls.bytes[call] > 0)]
    by_group: dict[tuple[str, str], list[int]] = {}
    for node, call_index in zip(at.tolist(), nodes.call[at].tolist(), strict=True):
        kind, group = calls.kind[call_index], calls.group[call_index]
        if kind in kinds and group is not None and len(subject.groups.get(group, ())) > 1:
            by_group.setdefault((kind, group), []).append(node)
    return {word: np.array(members, np.int64) for word, members in by_group.items()}
