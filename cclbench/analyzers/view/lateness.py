# SPDX-License-Identifier: Apache-2.0
"""How late each rank is in each step, beside its peers: the one computation of who is late, and by how much.

The unit is the step: who is late in one collective is late in the next.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from cclbench.analyzers.metric import NotApplicable
from cclbench.analyzers.view.arrivals import PAIRS, SPENT, UNKNOWN_BEFORE
from cclbench.analyzers.view.meetings import CollectiveInstances
from cclbench.ground.intervals import Int64, Mask, begins

Float = npt.NDArray[np.float64]

_COMMUNICATION, _IDLE = SPENT.index("communication"), SPENT.index("idle")
_PIPELINE: Final = "pp"
_EXCHANGE: Final = "send_recv"


@dataclass(frozen=True, slots=True, eq=False)
class Lateness:
    """How late ranks are in steps, beside the ranks of their role, ns; arrays of shape (ranks, steps).

    A rank is late at a collective from when the median of the others has arrived until it arrives itself,
    less the time that other communication held it up longer than them (and within a pipeline, that it
    idled: it may have waited for another stage), where that is more than clocks may be wrong; in a step
    for the union of these. `waited` is the union of what a rank waits at collectives after the median
    rank has arrived. `spent` is what a rank does longer than the others before it is late, each of
    `arrivals.SPENT`, shape (4, ranks, steps).
    """

    ranks: tuple[int, ...]
    steps: tuple[int | None, ...]
    role: Int64
    """A number of each rank: those of one role meet in collectives, and in no pipeline; shape (ranks,)."""
    late_ns: Float
    waited_ns: Float
    spent_ns: Float
    across: int
    """Collectives across pipeline stages, whose ranks come at different times by design: left out."""

    @property
    def latest_mask(self) -> Mask:
        """Which rank no other of its role is later than, or as late as, in the step."""
        found = np.zeros(self.late_ns.shape, np.bool_)
        for role in np.unique(self.role):
            own = np.flatnonzero(self.role == role)
            late = self.late_ns[own]
            most = late.max(axis=0)
            found[own] = (late == most) & (most > 0) & ((late == most).sum(axis=0) == 1)
        return found


def step_lateness(found: CollectiveInstances, residual_ns: float) -> Lateness:
    """Of the matched collectives of ranks of one role; not applicable without any."""
    roles: dict[int, int] = {}
    late, waited, spent = _Unions(), _Unions(), _Sums()
    instances = 0
    pipeline = np.array(sorted(_rank_pipelines(found)), np.int64)
    for kept in of_one_role(found):
        instances += len(kept.count)
        _join_sets(roles, kept.rank, np.repeat(np.minimum.reduceat(kept.rank, kept.first), kept.count))
        _add_lateness(kept, pipeline, residual_ns, late, waited, spent)
    ranks = sorted(roles)
    steps = np.unique(late.distinct_steps)
    shape = (ranks, steps)
    return Lateness(
        ranks=tuple(ranks),
        steps=tuple(None if step < 0 else int(step) for step in steps.tolist()),
        role=np.array([_set_root(roles, rank) for rank in ranks], np.int64),
        late_ns=late.union_lengths(*shape),
        waited_ns=waited.union_lengths(*shape),
        spent_ns=spent.total_excess(*shape),
        across=len(found.of_groups().count) - instances,
    )


def of_one_role(found: CollectiveInstances) -> Iterator[CollectiveInstances]:
    """The collectives of ranks of one role: no sends and receives, nothing across pipeline stages.

    Not applicable without any.
    """
    pipeline, none = _rank_pipelines(found), True
    for some in found.of_groups().parts():
        same = _in_one_role(some, pipeline)
        if same.any():
            none = False
            yield some if same.all() else some.select_instances(same)
    if none:
        raise NotApplicable(
            "all matched collectives are of ranks of several pipeline stages, which differ by design"
        )


def median_of_others(found: CollectiveInstances, values: Int64) -> Float:
    """Of each row the median of the other rows' values of its instance, 0 of one alone; shape (rows,).

    Rows of an instance are in order of their values.
    """
    count = np.repeat(found.count, found.count)
    first = np.repeat(found.first, found.count)
    place = np.arange(len(values)) - first
    others = count - 1

    def value_at(number: Int64) -> Int64:
        return np.asarray(values[np.minimum(first + number + (number >= place), first + count - 1)])

    middle = value_at(np.maximum(others - 1, 0) // 2) / 2 + value_at(others // 2) / 2
    return np.where(others > 0, middle, 0.0)


def _add_lateness(
    found: CollectiveInstances,
    pipeline: Int64,
    residual_ns: float,
    late: _Unions,
    waited: _Unions,
    spent: _Sums,
) -> None:
    """The lateness, waits and excess of some instances; `pipeline` are the ranks inside one."""
    step = np.repeat(found.step[found.first], found.count)
    # Since the first arrival: halves of an instant since the epoch are known to 256 ns only.
    since = found.arrival_ns - np.repeat(found.arrival_ns[found.first], found.count)
    behind = since - median_of_others(found, since)
    excess = _excess_spent(found)
    inside = np.isin(found.rank, pipeline)
    idle_in_pipeline = np.where(inside, excess[_IDLE], 0.0)
    excess[_IDLE] -= idle_in_pipeline
    held = np.maximum(excess[_COMMUNICATION], 0) + np.maximum(idle_in_pipeline, 0)
    own = np.where(found.count.repeat(found.count) > 1, behind - held, 0.0)
    is_late = own > residual_ns
    begin = found.arrival_ns - np.rint(np.maximum(own, 0)).astype(np.int64)
    late.add_intervals(found.rank, step, begin, np.where(is_late, found.arrival_ns, begin))
    spent.add_excess(found.rank[is_late], step[is_late], excess[:, is_late])
    latest = np.repeat(found.latest_ns, found.count)
    low, high = found.first + (found.count - 1) // 2, found.first + found.count // 2
    median = found.arrival_ns[low] + (found.arrival_ns[high] - found.arrival_ns[low]) // 2
    waited.add_intervals(
        found.rank, step, np.maximum(found.arrival_ns, np.repeat(median, found.count)), latest
    )


def _excess_spent(found: CollectiveInstances) -> Float:
    """What each row spent more than the median of the others that ran the same previous instance, ns.

    Shape (4, rows); 0 where none did.
    """
    of = found.of
    known = np.flatnonzero(found.before != UNKNOWN_BEFORE)
    excess = np.zeros(found.spent.shape)
    for kind, values in enumerate(found.spent):
        order = known[np.lexsort((values[known], found.before[known], of[known]))]
        first = np.flatnonzero(begins(of[order], found.before[order]))
        count = np.diff(np.append(first, len(order)))
        alike = CollectiveInstances(
            **dict.fromkeys(("rank", "arrival_ns", "before", "spent", "step", "label"), of[order]),
            labels=[],
            first=first,
            count=count,
            incomplete=0,
        )
        several = np.repeat(count, count) > 1
        excess[kind, order] = np.where(several, values[order] - median_of_others(alike, values[order]), 0.0)
    return excess


class _Unions:
    """Intervals of ranks and steps, of which unions are to be measured."""

    def __init__(self) -> None:
        self.parts: list[Int64] = []

    @property
    def distinct_steps(self) -> Int64:
        """The steps that any interval is of."""
        return np.concatenate([part[1] for part in self.parts])

    def add_intervals(self, rank: Int64, step: Int64, begin: Int64, end: Int64) -> None:
        """Those of some collectives; those of a rank and step that touch become one, empty ones stay."""
        self.parts.append(_unite_rows(np.array([rank, step, begin, end], np.int64)))

    def union_lengths(self, ranks: Sequence[int], steps: Int64) -> Float:
        """|∪| of each rank and step, ns, shape (ranks, steps)."""
        rank, step, begin, end = _unite_rows(np.concatenate(self.parts, axis=1))
        found = np.zeros((len(ranks), len(steps)))
        np.add.at(found, (np.searchsorted(ranks, rank), np.searchsorted(steps, step)), end - begin)
        return found


def _unite_rows(rows: Int64) -> Int64:
    """The union of each rank's and step's intervals; rows are rank, step, begin, end."""
    rank, step, begin, end = rows[:, np.lexsort((rows[2], rows[1], rows[0]))]
    group = np.cumsum(begins(rank, step)) - 1
    first = np.flatnonzero(begins(rank, step))
    origin = begin[first][group]
    span = int((end - origin).max(initial=0)) + 1
    reached = np.maximum.accumulate(end - origin + group * span)
    before = np.append(np.int64(-1), reached[:-1])
    opens = begins(rank, step) | (begin - origin + group * span > before)
    at = np.flatnonzero(opens)
    last = np.append(at[1:], len(begin)) - 1
    until = reached[last] - group[last] * span + origin[last]
    return np.array([rank[at], step[at], begin[at], until], np.int64)


class _Sums:
    """What ranks spend longer than others in steps, added up."""

    def __init__(self) -> None:
        self.parts: list[tuple[Int64, Int64, Float]] = []

    def add_excess(self, rank: Int64, step: Int64, excess: Float) -> None:
        """Of some rows, `excess` of shape (4, rows)."""
        self.parts.append((rank, step, excess))

    def total_excess(self, ranks: Sequence[int], steps: Int64) -> Float:
        """Of each of `SPENT`, rank and step, ns, shape (4, ranks, steps)."""
        found = np.zeros((len(SPENT), len(ranks), len(steps)))
        for rank, step, excess in self.parts:
            at = np.searchsorted(ranks, rank), np.searchsorted(steps, step)
            for kind, own in enumerate(excess):
                np.add.at(found[kind], at, own)
        return found


def _rank_pipelines(found: CollectiveInstances) -> dict[int, int]:
    """The pipeline of each rank of one, by a rank of it: what sends and receives, or a dimension pp, joins.

    Those within another dimension (a ring of cp) join none, nor does a send_recv in a group that runs
    collectives, too.
    """
    joined: dict[int, int] = {}
    meets = {one.group for one in found.labels if one.collective not in (*PAIRS, _EXCHANGE)}
    for some in found.parts():
        links = np.array(
            [
                one.dimension == _PIPELINE
                or (one.dimension is None and one.collective in PAIRS)
                or (one.dimension is None and one.collective == _EXCHANGE and one.group not in meets)
                for one in some.labels
            ],
            np.bool_,
        )
        chosen = links[some.label[some.first]] & (some.count > 1)
        if chosen.any():
            own = some.select_instances(chosen)
            _join_sets(joined, own.rank, np.repeat(np.minimum.reduceat(own.rank, own.first), own.count))
    return {rank: _set_root(joined, rank) for rank in joined}


def _in_one_role(found: CollectiveInstances, pipeline: dict[int, int]) -> Mask:
    """Which instances have no two ranks of one pipeline, shape (instances,)."""
    if not pipeline:
        return np.ones(len(found.count), np.bool_)
    own = np.array([pipeline.get(rank, -1 - rank) for rank in found.rank.tolist()], np.int64)
    of = found.of
    order = np.lexsort((own, of))
    twice = ~begins(of[order], own[order])
    return np.asarray(np.bincount(of[order][twice], minlength=len(found.count)) == 0)


def _join_sets(joined: dict[int, int], ranks: Int64, others: Int64) -> None:
    """Put each rank and the other one into one set."""
    for one, other in np.unique(np.stack([ranks, others], axis=1), axis=0).tolist():
        first, second = _set_root(joined, one), _set_root(joined, other)
        joined[max(first, second)] = min(first, second)


def _set_root(joined: dict[int, int], rank: int) -> int:
    joined.setdefault(rank, rank)
    while joined[rank] != rank:
        joined[rank] = rank = joined[joined[rank]]
    return rank
