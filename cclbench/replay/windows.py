# SPDX-License-Identifier: Apache-2.0
"""Steps of a replay: the windows of the measured run, at the times that the replay gives their nodes."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from cclbench.intervals import Int64
from cclbench.replay import nodes as n
from cclbench.replay.graph import Graph
from cclbench.replay.tables import Windowed


@dataclass(frozen=True, slots=True, eq=False)
class Window:
    """A rank's window: the nodes whose earliest start begins it and whose latest end ends it.

    It begins and ends as far from those as was measured; a `joined` one ends where the next begins.  An open
    one tells where the window before it ends, and is in no mean.
    """

    rank: int
    step: int | None
    measured_ns: int
    openers: Int64
    members: Int64
    before: int
    behind: int
    joined: bool
    open: bool


def windows(graph: Graph) -> list[Window]:
    """The windows of all ranks, each rank's in order of time, the open ones last."""
    found: list[Window] = []
    at = np.flatnonzero(graph.nodes.rank >= 0)
    order = at[np.argsort(graph.nodes.rank[at], kind="stable")]
    owner = graph.nodes.rank[order]
    for rank in graph.windowed:
        first, last = np.searchsorted(owner, [rank.rank, rank.rank + 1])
        found += _of_rank(graph, rank, order[first:last])
    return found


def _of_rank(graph: Graph, rank: Windowed, own: Int64) -> list[Window]:
    found: list[Window] = []
    nodes = graph.nodes
    work = own[nodes.kind[own] != n.HOST]
    listed = [*rank.windows, *rank.open_windows]
    for i, (step, start, end) in enumerate(listed):
        if rank.policy == "annotation":
            members = own[
                ((nodes.start[own] == start) | (nodes.end[own] == end)) & (nodes.kind[own] == n.HOST)
            ]
        elif rank.policy == "device":
            members = work[nodes.step[work] == step]
        else:
            members = work if len(work) else own
        if not len(members):
            if found:
                found[-1] = replace(found[-1], joined=False)
            continue
        kernels = members[nodes.kind[members] != n.COPY]
        openers = kernels if rank.policy == "device" and len(kernels) else members
        before = start - int(nodes.start[openers].min())
        behind = end - int(nodes.end[members].max())
        joined = i + 1 < len(listed) and listed[i + 1][1] == end and rank.policy == "device"
        still_open = i >= len(rank.windows)
        found.append(
            Window(rank.rank, step, end - start, openers, members, before, behind, joined, still_open)
        )
    return found


def lengths(found: list[Window], start: Int64, end: Int64) -> Int64:
    """How long each window is in a replay whose nodes have those starts and ends, ns, shape (windows,)."""
    begins = [int(start[w.openers].min()) + w.before for w in found]
    ends = [begins[i + 1] if w.joined else int(end[w.members].max()) + w.behind for i, w in enumerate(found)]
    return np.array(ends, np.int64) - np.array(begins, np.int64)


def step_time(found: list[Window], length: Int64) -> float:
    """Mean over steps of the maximum over ranks, ns: what `time.step` is."""
    longest: dict[int | None, int] = {}
    for window, ns in zip(found, length.tolist(), strict=True):
        if window.open:
            continue
        longest[window.step] = max(longest.get(window.step, 0), ns)
    return sum(longest.values()) / len(longest) if longest else 0.0
