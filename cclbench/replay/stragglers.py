# SPDX-License-Identifier: Apache-2.0
"""How much stragglers slow a job down: its step over that of a replay in which no rank is slower than others.

Every row has a *place*: the step, how many collectives its rank launched before it in the step, its name, and
which of that name it is there.  The ranks of a *role* (those of one pipeline stage; all where there are no
stages) do the same work, so at each place they should take the same time.  In the replay

- a row takes the median over its role's ranks of what its place takes, 0 on a rank that has no such row;
- then roles are made even: rows of each name are scaled so that they take all roles equally long;
- a transfer takes the median of its kind, group size, dimension and payload;
- a row is launched as long after what it waits for as the median of its role's ranks.

Dependencies are those of any replay: order in streams, launches, waits, and the rendezvous of collectives
and of sends with their receives.  A part's slowdown is the step of a replay in which it alone is as measured,
over that in which nothing is (J. Lin et al., "Understanding Stragglers in Large Model Training Using What-if
Analysis", 2025, whose ideal durations are means and medians over all ranks and steps).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from cclbench.errors import InputError
from cclbench.intervals import Int64, Mask, begins
from cclbench.normalize.collectives import dimension_of
from cclbench.record.run import Run
from cclbench.replay import nodes as n
from cclbench.replay import tables
from cclbench.replay.graph import Graph, build
from cclbench.replay.simulate import simulate
from cclbench.replay.windows import Window, lengths, step_time, windows

Float = npt.NDArray[np.float64]

CAUSES: Final = ("compute", "copy", "uneven stages", "transfer", "launch")
"""What may be as measured in a replay: longer kernels, longer copies, roles with more work, longer transfers,
later launches."""
MOST_PIECE_RUNS: Final = 1_000_000
"""Pieces of the graph times replays up to which ranks and places are looked at: some 5 s."""
_MOST_PLACES: Final = 16
"""Places along a dimension up to which each is looked at."""
_MOST_UNSHARED: Final = 0.1
"""Share of the time of rows that most ranks of their role do not have, above which they do other work."""


class Slowdown(NamedTuple):
    """A step over that without stragglers, replayed: of the job, and with one part alone as measured.

    `ranks` are those of which most of the time is excess, or all; `places` by dimension and place in it.
    """

    job: float
    step_ns: float
    ideal_ns: float
    causes: dict[str, float]
    ranks: dict[int, float]
    places: dict[tuple[str, int], float]
    roles: int
    transfers: int
    """Parts of collectives whose transfer is told from waiting."""
    all_transfers: int


def slowdown(run: Run) -> Slowdown:
    """The run's; `InputError` where there is nothing to compare."""
    return of_graph(build(tables.ranks(run)), coordinates(run))


def coordinates(run: Run) -> dict[str, dict[int, int]]:
    """By parallel dimension each rank's place in its process group; of several the largest group's."""
    found: dict[str, dict[int, tuple[int, int]]] = {}
    for group in run.groups().to_pylist():
        for dimension in {dimension_of(text) for text in group["descriptions"]} - {None}:
            own = found.setdefault(str(dimension), {})
            for place, rank in enumerate(sorted(group["ranks"])):
                own[rank] = max(own.get(rank, (0, 0)), (len(group["ranks"]), place))
    placed = {
        dimension: {rank: place for rank, (_, place) in own.items()} for dimension, own in found.items()
    }
    return {dimension: own for dimension, own in placed.items() if len(set(own.values())) > 1}


def of_graph(graph: Graph, placed: Mapping[str, Mapping[int, int]]) -> Slowdown:
    """The slowdown of a graph whose ranks stand in those places, by dimension."""
    nodes = graph.nodes
    ranks, role = _roles(graph, placed)
    told = _told(graph)
    several = nodes.call[nodes.kind == n.TRANSFER]
    known = told[several[graph.transfers.size[several] != 1]]
    if not known.any():
        raise InputError("no collective is matched across its ranks: waiting can't be told from transfer")
    found = windows(graph)
    replays = _Replays(graph, found, _typical(graph, role, ranks))
    ideal = replays.ideal
    if not ideal:
        raise InputError("holds no steps to replay")
    share = {cause: replays.step((cause,)) / ideal for cause in CAUSES}
    own = {rank: replays.step(CAUSES, nodes.rank == rank) / ideal for rank in replays.slowest(ranks)}
    places: dict[tuple[str, int], float] = {}
    for dimension, of_rank in placed.items():
        at = np.array([of_rank.get(rank, -1) for rank in range(max(ranks) + 1)], np.int64)
        values = sorted({of_rank[rank] for rank in ranks if rank in of_rank})
        if 1 < len(values) <= _MOST_PLACES and replays.affordable(len(values)):
            for place in values:
                here = (nodes.rank >= 0) & (at[nodes.rank] == place)
                places[dimension, place] = replays.step(CAUSES, here) / ideal
    measured = replays.step(CAUSES)
    causes = {cause: ratio for cause, ratio in share.items() if ratio != 1.0}
    return Slowdown(
        measured / ideal,
        measured,
        ideal,
        causes,
        own,
        places,
        len({int(role[rank]) for rank in ranks}),
        int(known.sum()),
        len(known),
    )


def usual_compute(graph: Graph, placed: Mapping[str, Mapping[int, int]]) -> Int64:
    """What nodes take where no rank's compute is slower than its role's others, ns, shape (nodes,).

    A row of compute takes the median of its place, as in a replay without stragglers, and all else what was
    measured.  `InputError` where ranks cannot be compared.
    """
    nodes = graph.nodes
    ranks, role = _roles(graph, placed)
    usual = np.rint(_typical(graph, role, ranks).dur).astype(np.int64)
    return np.where(nodes.kind == n.COMPUTE, usual, nodes.dur)


def _roles(graph: Graph, placed: Mapping[str, Mapping[int, int]]) -> tuple[list[int], Int64]:
    """The ranks, and each one's role by its number; `InputError` where they cannot be compared."""
    nodes = graph.nodes
    ranks: list[int] = np.unique(nodes.rank[nodes.rank >= 0]).tolist()
    if len(ranks) < 2:
        raise InputError("stragglers are told by comparing ranks, and there is one")
    if any(rank.on_host for rank in graph.windowed):
        raise InputError("the kernels of a CPU are its operators, whose times are no part of a replay's rows")
    stages = placed.get("pp", {})
    return ranks, np.array([stages.get(rank, -1) for rank in range(max(ranks) + 1)], np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class _Typical:
    """What nodes take without stragglers, ns, arrays of shape (nodes,).

    `dur` is that of their place; `even` times it where roles are even; `lead` how much later than measured
    each is launched.
    """

    dur: Float
    even: Float
    lead: Int64


class _Replays:
    """Replays of a graph in which some causes, of some nodes, are as measured and all else is typical."""

    def __init__(self, graph: Graph, found: Sequence[Window], typical: _Typical) -> None:
        self.graph, self.windows, self.typical = graph, list(found), typical
        self.left = MOST_PIECE_RUNS
        self.ideal = self._replayed(*self._durations(()))

    def step(self, causes: Sequence[str], where: Mask | None = None) -> float:
        """The step with those causes as measured in the nodes `where`, all by default; ns."""
        changed = self._durations(causes, where)
        if all(map(np.array_equal, changed, self._durations(()))):
            return self.ideal
        return self._replayed(*changed)

    def _durations(self, causes: Sequence[str], where: Mask | None = None) -> tuple[Int64, Int64]:
        """How long nodes take, and how much later than measured they are launched, shape (nodes,)."""
        nodes, typical = self.graph.nodes, self.typical
        here = np.ones(len(nodes), np.bool_) if where is None else where
        kept = {cause: here if cause in causes else np.zeros(len(nodes), np.bool_) for cause in CAUSES}
        longer = np.select(
            [nodes.kind == kind for kind in (n.COMPUTE, n.COPY, n.TRANSFER)],
            [kept[cause] for cause in ("compute", "copy", "transfer")],
            default=True,
        )
        dur = np.where(longer, nodes.dur, typical.dur) * np.where(kept["uneven stages"], 1.0, typical.even)
        lead = np.where(kept["launch"], 0, typical.lead)
        return np.rint(dur).astype(np.int64), lead

    def _replayed(self, dur: Int64, lead: Int64) -> float:
        nodes, cut = self.graph.nodes, self.graph.cut
        changed = replace(nodes, dur=dur, gap=nodes.gap + lead)
        times = simulate(changed, replace(cut, lag=cut.lag + lead[cut.head[cut.target]]))
        self.left -= len(cut.head)
        return step_time(self.windows, lengths(self.windows, times.start, times.end))

    def affordable(self, runs: int) -> bool:
        """Whether so many further replays are worth their time."""
        return runs * len(self.graph.cut.head) <= self.left

    def slowest(self, ranks: Sequence[int]) -> list[int]:
        """The ranks with most time beyond the typical, all where there is time for all; in their order."""
        nodes = self.graph.nodes
        excess = np.maximum(nodes.dur - self.typical.dur, 0) + np.maximum(-self.typical.lead, 0)
        of_rank = {rank: float(excess[nodes.rank == rank].sum()) for rank in ranks}
        most = max(self.left, 0) // (2 * max(len(self.graph.cut.head), 1))
        return sorted(sorted(ranks, key=lambda rank: -of_rank[rank])[:most])


def _typical(graph: Graph, role: Int64, ranks: Sequence[int]) -> _Typical:
    """`InputError` where ranks of a role do not do the same work."""
    nodes = graph.nodes
    works = np.isin(nodes.kind, (n.COMPUTE, n.COPY, n.ARRIVAL)) & (nodes.step >= 0)
    at = np.flatnonzero(works)
    own_role = role[nodes.rank[at]]
    size = {int(one): sum(int(role[rank]) == one for rank in ranks) for one in np.unique(own_role)}
    place = _codes(own_role, nodes.step[at], *_place_in_step(graph, at))
    of_role = np.zeros(int(place.max(initial=-1)) + 1, np.int64)
    of_role[place] = np.array([size[one] for one in own_role.tolist()], np.int64)
    usual = _medians(place, nodes.dur[at], of_role)
    here = np.bincount(place, minlength=len(of_role))[place]
    unshared = (2 * here < of_role[place]) & (nodes.kind[at] != n.ARRIVAL)
    total = int(nodes.dur[at].sum())
    if total and nodes.dur[at[unshared]].sum() / total > _MOST_UNSHARED:
        share = nodes.dur[at[unshared]].sum() / total
        raise InputError(f"ranks do different work: {share:.0%} of its time has no counterpart on most ranks")
    dur = nodes.dur.astype(np.float64)
    dur[at] = usual
    even = np.ones(len(nodes))
    computes = nodes.kind[at] == n.COMPUTE
    even[at[computes]] = _evening(own_role[computes], nodes.name[at[computes]], usual[computes], size)
    transfers = np.flatnonzero((nodes.kind == n.TRANSFER) & (nodes.step >= 0))
    transfers = transfers[_told(graph)[nodes.call[transfers]]]
    dur[transfers] = _usual_transfers(graph, transfers)
    lead = np.zeros(len(nodes), np.int64)
    launched, taken = _leads(graph, at)
    present = np.maximum(np.bincount(place, minlength=len(of_role)), 1)
    present = np.where(2 * present < of_role, of_role, present)
    lead[launched] = np.rint(_medians(place, taken, present)).astype(np.int64) - taken
    return _Typical(dur, even, lead)


def _told(graph: Graph) -> Mask:
    """Calls whose transfer is told from waiting, of one rank too: nobody waits there; shape (calls,)."""
    return np.asarray(graph.transfers.known | (graph.transfers.size == 1))


def _place_in_step(graph: Graph, at: Int64) -> tuple[Int64, Int64, Int64]:
    """Of each node the collectives that its rank launched before it in the step, its name, and its number.

    Nodes of a name are numbered between two collectives, collectives of a kind in the step.
    """
    nodes = graph.nodes
    fed = nodes.feeder[at] >= 0
    launched = np.where(fed, nodes.start[nodes.feeder[at]], nodes.start[at])
    arrives = nodes.kind[at] == n.ARRIVAL
    order = np.lexsort((at, launched, nodes.step[at], nodes.rank[at]))
    of = _codes(nodes.rank[at], nodes.step[at])
    calls = np.cumsum(arrives[order]) - arrives[order]
    first = begins(of[order])
    segment = np.empty(len(at), np.int64)
    segment[order] = calls - np.repeat(calls[first], np.diff(np.append(np.flatnonzero(first), len(at))))
    name = nodes.name[at] + 1
    name[arrives] = -1 - _call_kinds(graph, nodes.call[at[arrives]])
    segment[arrives] = -1
    crowd = _codes(of, segment, name)
    return segment, name, _occurrence(crowd, order)


def _call_kinds(graph: Graph, call: Int64) -> Int64:
    """A code of each call's kind, group size and payload, and whether it is a send or a receive."""
    kinds = {kind: code for code, kind in enumerate(dict.fromkeys(graph.transfers.kind))}
    code = np.array([kinds[kind] for kind in graph.transfers.kind], np.int64)
    return _codes(code[call], graph.transfers.size[call], graph.transfers.bytes[call])


def _usual_transfers(graph: Graph, at: Int64) -> Float:
    """The median of each transfer's like: kind, group size and payload; where that is not told, its place.

    The place is which of its kind and group size it is on its rank in the step.
    """
    nodes = graph.nodes
    kind = _call_kinds(graph, nodes.call[at])
    order = np.lexsort((at, nodes.start[at], nodes.step[at], nodes.rank[at]))
    place = _occurrence(_codes(nodes.rank[at], nodes.step[at], kind), order)
    like = _codes(kind, np.where(graph.transfers.bytes[nodes.call[at]] >= 0, -1, place))
    return _medians(like, nodes.dur[at], np.bincount(like))


def _evening(role: Int64, name: Int64, usual: Float, size: Mapping[int, int]) -> Float:
    """By what rows are scaled so that their name takes a rank of each role equally long, shape (rows,).

    1 of a name that not all roles have: such work cannot be shared out.
    """
    if not size:
        return np.ones(len(role))
    roles = {one: number for number, one in enumerate(size)}
    names, of_name = np.unique(name, return_inverse=True)
    total = np.zeros((len(roles), len(names)))
    np.add.at(total, (np.array([roles[one] for one in role.tolist()], np.int64), of_name), usual)
    each = total / np.array([*size.values()])[:, None]
    shared = (each > 0).all(axis=0)
    scale = np.where(shared, each.mean(axis=0) / np.where(each > 0, each, 1.0), 1.0)
    return np.asarray(scale[np.array([roles[one] for one in role.tolist()], np.int64), of_name])


def _leads(graph: Graph, at: Int64) -> tuple[Int64, Int64]:
    """The node that decides when each of those is launched, and how long after what that waits for; ns.

    It is the point of the host that launches it, else the row itself.
    """
    nodes, cut = graph.nodes, graph.cut
    taken = nodes.gap.copy()
    waited = nodes.start[cut.head[cut.target]] - nodes.end[cut.source]
    least = np.full(len(cut.head), np.iinfo(np.int64).max)
    np.minimum.at(least, cut.target, waited)
    taken[cut.head] = np.where(np.diff(cut.begin) > 0, least, 0)
    launched = np.where(nodes.feeder[at] >= 0, nodes.feeder[at], at)
    own = np.where(nodes.feeder[at] >= 0, nodes.gap[launched], taken[launched])
    return launched, own


def _medians(of: Int64, values: Int64, count: Int64) -> Float:
    """The median of the values of each code, of which there are `count`; those not there are 0.

    `of` and `values` have shape (rows,), `count` (codes,); as does `of` the result.
    """
    here = np.bincount(of, minlength=len(count))
    lacking = np.maximum(count - here, 0)
    every = np.concatenate([of, np.repeat(np.arange(len(count)), lacking)])
    value = np.concatenate([values, np.zeros(int(lacking.sum()), np.int64)])
    value = value[np.lexsort((value, every))]
    number = here + lacking
    first = np.cumsum(number) - number
    low, high = value[first + (number - 1) // 2], value[first + number // 2]
    return np.asarray((low / 2 + high / 2)[of])


def _codes(*columns: npt.NDArray[np.signedinteger]) -> Int64:
    """A number for each distinct combination, from 0, shape of the columns."""
    code = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        values, index = np.unique(column, return_inverse=True)
        code = np.unique(code * len(values) + index, return_inverse=True)[1]
    return code


def _occurrence(of: Int64, order: Int64) -> Int64:
    """Which of its code each row is, in that order of rows, from 0."""
    by_code = order[np.argsort(of[order], kind="stable")]
    first = np.flatnonzero(begins(of[by_code]))
    count = np.diff(np.append(first, len(of)))
    place = np.empty(len(of), np.int64)
    place[by_code] = np.arange(len(of)) - np.repeat(first, count)
    return place
