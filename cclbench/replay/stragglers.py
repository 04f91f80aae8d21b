# SPDX-License-Identifier: Apache-2.0
"""How much stragglers slow a job down: its step over that of a replay in which no rank is slower than others.

Every row has a *place*: the step, how many collectives its rank launched before it in the step, its name, and
which of that name it is there.  The ranks of a *role* (those of one pipeline stage; all where there are no
stages) do the same work, so each should take as long for it.  In the replay

- the rows of a name take a rank and step what the median rank of the role takes for them, parted among the
  rows as its places take in the median step (of each the median over ranks);
- then roles are made even: rows of each name are scaled so that they take all roles equally long;
- a transfer takes the median of its kind, group size, dimension and payload;
- a row is launched as long after what it waits for as the median of its role's ranks.

A delay that exceeds what the call needs where its rank waits for nobody may be a wait that no row records.
It counts up to what the call needs and, where there is one role, so that no other stage may be what is
awaited, as far as the row begins later than its peers'.

Dependencies are those of any replay: order in streams, launches, waits, and the rendezvous of collectives
and of sends with their receives.  The ideal step is at most the measured one, and a part's slowdown, the step
of a replay in which it alone is as measured over the ideal, lies between 1 and the job's (J. Lin et al.,
"Understanding Stragglers in Large Model Training Using What-if Analysis", 2025, whose ideal durations are
means and medians over all ranks and steps, and whose replays have no launch delays).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np

from cclbench.ground.errors import InputError
from cclbench.ground.intervals import Int64, Mask
from cclbench.normalize.collectives import dimension_of
from cclbench.record.run import Run
from cclbench.replay import nodes as n
from cclbench.replay import tables
from cclbench.replay.graph import Graph, build_graph
from cclbench.replay.simulate import simulate_nodes
from cclbench.replay.typical_work import TypicalWork, rank_roles, separable_transfers, typical_work
from cclbench.replay.windows import RankWindow, rank_windows, step_time, window_lengths

CAUSES: Final = ("compute", "copy", "uneven stages", "transfer", "launch")
"""What may be as measured in a replay: longer kernels, longer copies, roles with more work, longer transfers,
later launches."""
MOST_PIECE_RUNS: Final = 4_000_000
"""Pieces of the graph times replays up to which ranks and places are looked at: some 8 s."""
_MOST_PLACES: Final = 16
"""Places along a dimension up to which each is looked at."""
_MOST_OPERATORS: Final = 4
"""Names of rows of compute that are looked at each."""


class StragglerSlowdown(NamedTuple):
    """A step over that without stragglers, replayed: of the job, and with one part alone as measured.

    `ranks` are those of which most of the time is excess, or all; `places` by dimension and place in it.
    """

    job: float
    bounds: tuple[float, float]
    """The job's with launch delays and without any, the least first."""
    step_ns: float
    ideal_ns: float
    causes: dict[str, float]
    operators: dict[str, float]
    """By name of the rows of compute that take most time beyond the ideal."""
    ranks: dict[int, float]
    places: dict[tuple[str, int], float]
    roles: int
    transfers: int
    """Parts of collectives whose transfer is separated from waiting."""
    all_transfers: int


def straggler_slowdown(run: Run) -> StragglerSlowdown:
    """The run's; `InputError` where there is nothing to compare."""
    return graph_slowdown(build_graph(tables.graph_inputs(run)), rank_coordinates(run))


def job_slowdown(run: Run) -> float:
    """That of the job alone, without its parts; `InputError` where there is nothing to compare."""
    replays = _typical_replays(build_graph(tables.graph_inputs(run)), rank_coordinates(run))[0]
    return replays.measured / replays.ideal


def rank_coordinates(run: Run) -> dict[str, dict[int, int]]:
    """By parallel dimension each rank's place in its process group; of several the largest group's."""
    by_dimension: dict[str, dict[int, tuple[int, int]]] = {}
    for group in run.groups().to_pylist():
        for dimension in {dimension_of(text) for text in group["descriptions"]} - {None}:
            by_rank = by_dimension.setdefault(str(dimension), {})
            for place, rank in enumerate(sorted(group["ranks"])):
                by_rank[rank] = max(by_rank.get(rank, (0, 0)), (len(group["ranks"]), place))
    placed = {
        dimension: {rank: place for rank, (_, place) in by_rank.items()}
        for dimension, by_rank in by_dimension.items()
    }
    return {dimension: by_rank for dimension, by_rank in placed.items() if len(set(by_rank.values())) > 1}


def graph_slowdown(graph: Graph, placed: Mapping[str, Mapping[int, int]]) -> StragglerSlowdown:
    """The slowdown of a graph whose ranks stand in those places, by dimension."""
    nodes = graph.nodes
    replays, ranks, role, is_matched = _typical_replays(graph, placed)
    causes = {cause: replays.step_ratio((cause,)) for cause in CAUSES}
    places: dict[tuple[str, int], float] = {}
    for dimension, of_rank in placed.items():
        at = np.array([of_rank.get(rank, -1) for rank in range(max(ranks) + 1)], np.int64)
        values = sorted({of_rank[rank] for rank in ranks if rank in of_rank})
        if 1 < len(values) <= _MOST_PLACES and replays.is_affordable(len(values)):
            for place in values:
                at_place = (nodes.rank >= 0) & (at[nodes.rank] == place)
                places[dimension, place] = replays.step_ratio(CAUSES, at_place)
    operators = {graph.names[name]: nodes.name == name for name in replays.longest_names(_MOST_OPERATORS)}
    return StragglerSlowdown(
        replays.measured / replays.ideal,
        replays.slowdown_bounds(),
        replays.measured,
        replays.ideal,
        {cause: ratio for cause, ratio in causes.items() if ratio != 1.0},
        {name: replays.step_ratio(("compute", "uneven stages"), mask) for name, mask in operators.items()},
        {rank: replays.step_ratio(CAUSES, nodes.rank == rank) for rank in replays.slowest_ranks(ranks)},
        places,
        len({int(role[rank]) for rank in ranks}),
        int(is_matched.sum()),
        len(is_matched),
    )


def _typical_replays(
    graph: Graph, placed: Mapping[str, Mapping[int, int]]
) -> tuple[_TypicalReplays, list[int], Int64, Mask]:
    """The replays, the ranks, the role of each, and which parts of collectives are matched."""
    ranks, role = rank_roles(graph, placed)
    several = graph.nodes.call[graph.nodes.kind == n.TRANSFER]
    is_matched = separable_transfers(graph)[several[graph.transfers.size[several] != 1]]
    if not is_matched.any():
        raise InputError("no collective is matched across its ranks: waiting can't be told from transfer")
    replays = _TypicalReplays(graph, rank_windows(graph), typical_work(graph, role, ranks))
    if not replays.ideal:
        raise InputError("holds no steps to replay")
    return replays, ranks, role, is_matched


class _TypicalReplays:
    """Replays of a graph in which some causes, of some nodes, are as measured and all else is typical."""

    def __init__(self, graph: Graph, windows: Sequence[RankWindow], typical: TypicalWork) -> None:
        self.graph, self.windows, self.typical = graph, list(windows), typical
        self.left = MOST_PIECE_RUNS
        self.measured = self._replayed_step(graph.nodes.dur, np.zeros(len(graph.nodes), np.int64))
        self.ideal = min(self.measured, self._replayed_step(*self._node_durations(())))

    def step_ratio(self, causes: Sequence[str], where: Mask | None = None) -> float:
        """The step with those causes as measured in the nodes `where`, all by default, over the ideal.

        Evening out roles gives some of them more work, so that a part alone may replay shorter than the
        ideal or longer than the measured step: it lies between the two.
        """
        changed = self._node_durations(causes, where)
        if all(map(np.array_equal, changed, self._node_durations(()))):
            return 1.0
        return min(max(self._replayed_step(*changed), self.ideal), self.measured) / self.ideal

    def slowdown_bounds(self) -> tuple[float, float]:
        """The job's slowdown with launch delays and without any, the least first."""
        undelayed = self.typical.undelayed
        measured = self._replayed_step(self.graph.nodes.dur, undelayed)
        ideal = min(measured, self._replayed_step(self._node_durations(())[0], undelayed))
        ratios = sorted((self.measured / self.ideal, measured / ideal if ideal else 1.0))
        return ratios[0], ratios[1]

    def _node_durations(self, causes: Sequence[str], where: Mask | None = None) -> tuple[Int64, Int64]:
        """How long nodes take, and how much later than measured they are launched, shape (nodes,)."""
        nodes, typical = self.graph.nodes, self.typical
        in_scope = np.ones(len(nodes), np.bool_) if where is None else where
        kept = {cause: in_scope if cause in causes else np.zeros(len(nodes), np.bool_) for cause in CAUSES}
        longer = np.select(
            [nodes.kind == kind for kind in (n.COMPUTE, n.COPY, n.TRANSFER)],
            [kept[cause] for cause in ("compute", "copy", "transfer")],
            default=True,
        )
        dur = np.where(longer, nodes.dur, typical.dur) * np.where(kept["uneven stages"], 1.0, typical.even)
        lead = np.where(kept["launch"], typical.awaited, typical.lead)
        return np.rint(dur).astype(np.int64), lead

    def _replayed_step(self, dur: Int64, lead: Int64) -> float:
        nodes, cut = self.graph.nodes, self.graph.cut
        changed = replace(nodes, dur=dur, gap=nodes.gap + lead)
        times = simulate_nodes(changed, replace(cut, lag=cut.lag + lead[cut.head[cut.target]]))
        self.left -= len(cut.head)
        return step_time(self.windows, window_lengths(self.windows, times.start, times.end))

    def is_affordable(self, runs: int) -> bool:
        """Whether so many further replays are worth their time."""
        return runs * len(self.graph.cut.head) <= self.left

    def slowest_ranks(self, ranks: Sequence[int]) -> list[int]:
        """The ranks with most time beyond the typical, all where there is time for all; in their order."""
        nodes = self.graph.nodes
        excess = np.maximum(nodes.dur - self.typical.dur, 0)
        excess += np.maximum(self.typical.awaited - self.typical.lead, 0)
        of_rank = {rank: float(excess[nodes.rank == rank].sum()) for rank in ranks}
        most = max(self.left, 0) // max(len(self.graph.cut.head), 1)
        return sorted(sorted(ranks, key=lambda rank: -of_rank[rank])[:most])

    def longest_names(self, most: int) -> list[int]:
        """Codes of the names of compute with most time beyond the ideal, as many as there is time for."""
        nodes = self.graph.nodes
        at = np.flatnonzero((nodes.kind == n.COMPUTE) & (nodes.name >= 0))
        ideal = self.typical.dur[at] * self.typical.even[at]
        excess = np.bincount(nodes.name[at], np.maximum(nodes.dur[at] - ideal, 0))
        names = np.argsort(-excess, kind="stable")[:most]
        return [int(name) for name in names if excess[name] > 0] if self.is_affordable(most) else []
