# SPDX-License-Identifier: Apache-2.0
"""Steps of a replay: the windows of the measured run, at the times that the replay gives their nodes."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from cclbench.ground.errors import UsageError
from cclbench.ground.intervals import Int64, Mask
from cclbench.replay import nodes as n
from cclbench.replay.graph import Graph
from cclbench.replay.tables import Windowed

_LEAST_STEPS: Final = 3
"""Least closed steps of each rank for which those after the first show how a job goes on."""


@dataclass(frozen=True, slots=True, eq=False)
class RankWindow:
    """A rank's window: the nodes whose earliest start begins it and whose latest end ends it.

    It begins and ends as far from those as was measured; a `joined` one ends where the next begins, but not
    before its own work has ended, less `overlap`: what of it ran beside the next when measured, ns.  Without
    that a host that runs ahead would begin, and so end, all steps at once.  An open one states where the
    window before it ends, and is in no mean.
    """

    rank: int
    step: int | None
    measured_ns: int
    openers: Int64
    members: Int64
    before: int
    behind: int
    joined: bool
    overlap: int
    open: bool


def rank_windows(graph: Graph) -> list[RankWindow]:
    """The windows of all ranks, each rank's in order of time, the open ones last."""
    windows: list[RankWindow] = []
    at = np.flatnonzero(graph.nodes.rank >= 0)
    order = at[np.argsort(graph.nodes.rank[at], kind="stable")]
    owner = graph.nodes.rank[order]
    for rank in graph.windowed:
        first, last = np.searchsorted(owner, [rank.rank, rank.rank + 1])
        windows += _windows_of_rank(graph, rank, order[first:last])
    return windows


def _windows_of_rank(graph: Graph, rank: Windowed, rank_nodes: Int64) -> list[RankWindow]:
    windows: list[RankWindow] = []
    nodes = graph.nodes
    work = rank_nodes[nodes.kind[rank_nodes] != n.HOST]
    listed = [*rank.windows, *rank.open_windows]
    for i, (step, start, end) in enumerate(listed):
        if rank.policy == "annotation":
            members = rank_nodes[
                ((nodes.start[rank_nodes] == start) | (nodes.end[rank_nodes] == end))
                & (nodes.kind[rank_nodes] == n.HOST)
            ]
        elif rank.policy == "device":
            members = work[nodes.step[work] == step]
        else:
            members = work if len(work) else rank_nodes
        if not len(members):
            if windows:
                windows[-1] = replace(windows[-1], joined=False)
            continue
        kernels = members[nodes.kind[members] != n.COPY]
        openers = kernels if rank.policy == "device" and len(kernels) else members
        before = start - int(nodes.start[openers].min())
        behind = end - int(nodes.end[members].max())
        overlap = max(-behind, 0)
        joined = i + 1 < len(listed) and listed[i + 1][1] == end and rank.policy == "device"
        still_open = i >= len(rank.windows)
        windows.append(
            RankWindow(
                rank.rank, step, end - start, openers, members, before, behind, joined, overlap, still_open
            )
        )
    return windows


def window_bounds(windows: list[RankWindow], start: Int64, end: Int64) -> tuple[Int64, Int64]:
    """Begin and end of each window where nodes have those starts and ends, ns, shape (windows,)."""
    begins = [int(start[w.openers].min()) + w.before for w in windows]
    done = [int(end[w.members].max()) for w in windows]
    ends = [
        max(begins[i + 1], done[i] - w.overlap) if w.joined else done[i] + w.behind
        for i, w in enumerate(windows)
    ]
    return np.array(begins, np.int64), np.array(ends, np.int64)


def window_lengths(windows: list[RankWindow], start: Int64, end: Int64) -> Int64:
    """How long each window is in a replay whose nodes have those starts and ends, ns, shape (windows,)."""
    begins, ends = window_bounds(windows, start, end)
    return ends - begins


def step_time(windows: list[RankWindow], length: Int64) -> float:
    """Mean over steps of the maximum over ranks, ns: what `time.step` is."""
    longest: dict[int | None, int] = {}
    for window, ns in zip(windows, length.tolist(), strict=True):
        if window.open:
            continue
        longest[window.step] = max(longest.get(window.step, 0), ns)
    return sum(longest.values()) / len(longest) if longest else 0.0


def _saved_share(ranks: Iterable[tuple[int, int, int]]) -> float:
    """The share by which steps are shorter: of each rank their count, their time, how much later it ends."""
    listed = [*ranks]
    old = max(total / count for count, total, _ in listed)
    new = max((total + later) / count for count, total, later in listed)
    return 1 - new / old if old > 0 else 0.0


class StepPace:
    """How long steps of changed replays are, by when ranks are done with their windows.

    The step is the unchanged replay's, `step_ns`, times the ratio of the longest rank's mean window, new over
    old, where a rank's windows together are as much shorter as its last one ends earlier.  To measure each
    from its own new begin would not do: a rank that is faster begins earlier to wait for the others, which
    makes its windows, and the maximum over ranks, longer.  So changes act on nodes `nodes_in_windows`
    windows only.
    """

    def __init__(self, windows: list[RankWindow], start: Int64, end: Int64) -> None:
        self.windows = windows
        begins, self.ends = window_bounds(windows, start, end)
        length = self.ends - begins
        self.step_ns = step_time(windows, length)
        closed = [i for i, w in enumerate(windows) if not w.open]
        steps: dict[int, set[int | None]] = {w.rank: set() for w in windows}
        for i in closed:
            steps[windows[i].rank].add(windows[i].step)
        common = set.intersection(*steps.values()) if steps else set()
        shared = [i for i in closed if windows[i].step in common] or closed
        by_rank: dict[int, list[int]] = {}
        for i in shared:
            by_rank.setdefault(windows[i].rank, []).append(i)
        self.ranks = {rank: (len(each), int(length[each].sum()), each[-1]) for rank, each in by_rank.items()}
        self.firsts = {rank: each[0] for rank, each in by_rank.items()}
        self.open = {
            rank: last + 1
            for rank, (_, _, last) in self.ranks.items()
            if last + 1 < len(windows) and windows[last + 1].rank == rank and windows[last + 1].open
        }
        earliest = min((int(begins[each[0]]) for each in by_rank.values()), default=0)
        self.begun = {rank: np.append(earliest, begins[each[1:]]) for rank, each in by_rank.items()}
        self.numbers = {
            rank: np.array([-1 if windows[i].step is None else windows[i].step for i in each], np.int64)
            for rank, each in by_rank.items()
        }
        self.done = {rank: self.ends[each] for rank, each in by_rank.items()}

    def mean_step_ns(self, start: Int64, end: Int64, ranks: Collection[int] | None = None) -> float:
        """The step, of some ranks, of a replay whose nodes have those starts and ends, ns.

        `UsageError` where none of them has a window.
        """
        if ranks is not None and not {*ranks} & {*self.ranks}:
            raise UsageError("no rank of the replay is left", hint="choose others with --ranks")
        later = window_bounds(self.windows, start, end)[1] - self.ends
        old = max(total / count for count, total, _ in self.ranks.values())
        new = max(
            (total + int(later[last])) / count
            for rank, (count, total, last) in self.ranks.items()
            if ranks is None or rank in ranks
        )
        return self.step_ns * (max(new, 1.0) / old)

    def saved_shares(self, start: Int64, end: Int64) -> list[float]:
        """By which share of them steps are shorter in such a replay: all closed ones; of three and more also
        all but the first; and all with the open one that follows them, where every rank has one.

        What came before the capture made the first step what it is, and no change can reach that.  Where an
        open step ends is not known, but what is saved until its last row is: a host that runs ahead of its
        device shows only there what it lost before.
        """
        later = window_bounds(self.windows, start, end)[1] - self.ends
        closed_steps = [(count, total, int(later[last])) for count, total, last in self.ranks.values()]
        shares = [_saved_share(closed_steps)]
        if min(count for count, *_ in closed_steps) >= _LEAST_STEPS:
            shares.append(
                _saved_share(
                    (count - 1, int(self.ends[last] - self.ends[first]), int(later[last] - later[first]))
                    for (count, _, last), first in zip(self.ranks.values(), self.firsts.values(), strict=True)
                )
            )
        if len(self.open) == len(self.ranks):
            shares.append(
                _saved_share(
                    (count + 1, total + int(self.ends[after] - self.ends[last]), int(later[after]))
                    for (count, total, last), after in zip(
                        self.ranks.values(), map(self.open.__getitem__, self.ranks), strict=True
                    )
                )
            )
        return shares

    def time_since_windows(self, graph: Graph, start: Int64) -> Int64:
        """How long before each node begins the windows of its rank had begun, one behind the other without a
        break, ns; −1 of nodes before all windows or between them, shape (nodes,).

        A rank's first window begins here with the earliest of all ranks: others may wait for what it does.
        The point of a host's thread at a window's end belongs to it: what the thread does before lies within.
        """
        nodes = graph.nodes
        elapsed_ns = np.zeros(len(nodes), np.int64)
        for rank, begun in self.begun.items():
            rank_nodes = np.flatnonzero(nodes.rank == rank)
            place = np.searchsorted(begun, start[rank_nodes], side="right") - 1
            last = place == len(begun) - 1
            of_host = nodes.kind[rank_nodes] == n.HOST
            in_window = (place >= 0) & (last | (start[rank_nodes] < self.done[rank][place] + of_host))
            breaks = np.append(True, begun[1:] > self.done[rank][:-1])
            opened = begun[np.maximum.accumulate(np.where(breaks, np.arange(len(begun)), 0))]
            elapsed_ns[rank_nodes] = np.where(in_window, start[rank_nodes] - opened[place], -1)
        return elapsed_ns

    def steps_of_nodes(self, graph: Graph, start: Int64) -> Int64:
        """The step in whose window each node begins, −1 outside of all, shape (nodes,)."""
        nodes = graph.nodes
        steps = np.full(len(nodes), -1, np.int64)
        for rank, begun in self.begun.items():
            rank_nodes = np.flatnonzero(nodes.rank == rank)
            place = np.searchsorted(begun, start[rank_nodes], side="right") - 1
            of_host = nodes.kind[rank_nodes] == n.HOST
            in_window = (place >= 0) & (start[rank_nodes] < self.done[rank][place] + of_host)
            steps[rank_nodes] = np.where(in_window, self.numbers[rank][place], -1)
        return steps

    def nodes_in_windows(self, graph: Graph, since: Int64) -> Mask:
        """Which nodes begin neither before their rank's windows nor between them, by `since`, shape (nodes,).

        Of a transfer it is enough that one rank's part does.
        """
        nodes = graph.nodes
        in_window = since >= 0
        parts = np.flatnonzero((nodes.kind == n.TRANSFER) & (nodes.call >= 0))
        parts = parts[graph.transfers.is_split[nodes.call[parts]]]
        _, instance = np.unique(graph.transfers.instance[nodes.call[parts]], return_inverse=True)
        in_window[parts] = np.bincount(instance, in_window[parts])[instance] > 0
        return in_window
