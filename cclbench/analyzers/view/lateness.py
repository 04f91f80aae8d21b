# SPDX-License-Identifier: Apache-2.0
"""Lateness of each rank in each step relative to its peers.

The unit is the step, since lateness in one collective carries over to the next.
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
    """Lateness of ranks by step relative to the ranks of their role, ns; arrays of shape (ranks, steps).

    A rank is late at a collective from the arrival of the median of the others to its own, minus the extra
    time that other communication held it up (and within a pipeline its extra idle time, a possible wait for
    another stage), if that exceeds the clock error; in a step for the union of these. `waited_ns`: union of
    its waits at collectives after the median rank's arrival. `spent_ns`: excess over the others before it is
    late, each of `arrivals.SPENT`, shape (4, ranks, steps).
    """

    ranks: tuple[int, ...]
    steps: tuple[int | None, ...]
    role: Int64
    """Role of each rank: ranks of one role share collectives and no pipeline; shape (ranks,)."""
    late_ns: Float
    waited_ns: Float
    spent_ns: Float
    across: int
    """Number of collectives across pipeline stages, whose ranks arrive apart by design: left out."""

    @property
    def latest_mask(self) -> Mask:
        """Whether a rank is later than all others of its role in the step."""
        mask = np.zeros(self.late_ns.shape, np.bool_)
        for role in np.unique(self.role):
            of_role = np.flatnonzero(self.role == role)
            late = self.late_ns[of_role]
            most = late.max(axis=0)
            mask[of_role] = (late == most) & (most > 0) & ((late == most).sum(axis=0) == 1)
        return mask


def step_lateness(matched: CollectiveInstances, residual_ns: float) -> Lateness:
    """Lateness at matched collectives of ranks of one role; `NotApplicable` without any."""
    roles: dict[int, int] = {}
    late, waited, spent = _Unions(), _Unions(), _Sums()
    instances = 0
    pipeline = np.array(sorted(_rank_pipelines(matched)), np.int64)
    for part in single_role_instances(matched):
        instances += len(part.count)
        _join_sets(roles, part.rank, np.repeat(np.minimum.reduceat(part.rank, part.first), part.count))
        _add_lateness(part, pipeline, residual_ns, late, waited, spent)
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
        across=len(matched.of_groups().count) - instances,
    )


def single_role_instances(instances: CollectiveInstances) -> Iterator[CollectiveInstances]:
    """Collectives of ranks of one role, in parts: no sends and receives, none across pipeline stages.

    `NotApplicable` without any.
    """
    pipeline, no_instances = _rank_pipelines(instances), True
    for part in instances.of_groups().parts():
        is_single_role = _is_single_role(part, pipeline)
        if is_single_role.any():
            no_instances = False
            yield part if is_single_role.all() else part.select_instances(is_single_role)
    if no_instances:
        raise NotApplicable("all matched collectives span pipeline stages, whose arrivals differ by design")


def median_of_others(instances: CollectiveInstances, values: Int64) -> Float:
    """Median of the other rows' values in each row's instance, 0 without others; shape (rows,).

    Rows of an instance are ordered by value.
    """
    count = np.repeat(instances.count, instances.count)
    first = np.repeat(instances.first, instances.count)
    position = np.arange(len(values)) - first
    others = count - 1

    def value_at(number: Int64) -> Int64:
        return np.asarray(values[np.minimum(first + number + (number >= position), first + count - 1)])

    middle = value_at(np.maximum(others - 1, 0) // 2) / 2 + value_at(others // 2) / 2
    return np.where(others > 0, middle, 0.0)


def _add_lateness(
    instances: CollectiveInstances,
    pipeline: Int64,
    residual_ns: float,
    late: _Unions,
    waited: _Unions,
    spent: _Sums,
) -> None:
    """Add lateness, waits and excess of some instances; `pipeline`: ranks of pipelines."""
    step = np.repeat(instances.step[instances.first], instances.count)
    # relative to the first arrival: floats of ns since the epoch have a grid of 256 ns
    since = instances.arrival_ns - np.repeat(instances.arrival_ns[instances.first], instances.count)
    delay = since - median_of_others(instances, since)
    excess = _excess_spent(instances)
    inside = np.isin(instances.rank, pipeline)
    idle_in_pipeline = np.where(inside, excess[_IDLE], 0.0)
    excess[_IDLE] -= idle_in_pipeline
    excused = np.maximum(excess[_COMMUNICATION], 0) + np.maximum(idle_in_pipeline, 0)
    delay_ns = np.where(instances.count.repeat(instances.count) > 1, delay - excused, 0.0)
    is_late = delay_ns > residual_ns
    begin = instances.arrival_ns - np.rint(np.maximum(delay_ns, 0)).astype(np.int64)
    late.add_intervals(instances.rank, step, begin, np.where(is_late, instances.arrival_ns, begin))
    spent.add_excess(instances.rank[is_late], step[is_late], excess[:, is_late])
    latest = np.repeat(instances.latest_ns, instances.count)
    low, high = instances.first + (instances.count - 1) // 2, instances.first + instances.count // 2
    median = instances.arrival_ns[low] + (instances.arrival_ns[high] - instances.arrival_ns[low]) // 2
    waited.add_intervals(
        instances.rank, step, np.maximum(instances.arrival_ns, np.repeat(median, instances.count)), latest
    )


def _excess_spent(instances: CollectiveInstances) -> Float:
    """Excess of each row over the median of the others with the same previous instance, ns.

    Shape (4, rows); 0 without others.
    """
    instance_of_row = instances.instance_of_row
    with_previous = np.flatnonzero(instances.before != UNKNOWN_BEFORE)
    excess = np.zeros(instances.spent.shape)
    for kind, values in enumerate(instances.spent):
        order = with_previous[
            np.lexsort(
                (values[with_previous], instances.before[with_previous], instance_of_row[with_previous])
            )
        ]
        first = np.flatnonzero(begins(instance_of_row[order], instances.before[order]))
        count = np.diff(np.append(first, len(order)))
        alike = CollectiveInstances(
            **dict.fromkeys(
                ("rank", "arrival_ns", "before", "spent", "step", "label"), instance_of_row[order]
            ),
            labels=[],
            first=first,
            count=count,
            incomplete=0,
        )
        several = np.repeat(count, count) > 1
        excess[kind, order] = np.where(several, values[order] - median_of_others(alike, values[order]), 0.0)
    return excess


class _Unions:
    """Intervals by rank and step, whose unions are measured."""

    def __init__(self) -> None:
        self.parts: list[Int64] = []

    @property
    def distinct_steps(self) -> Int64:
        """The steps of the intervals, not unique."""
        return np.concatenate([part[1] for part in self.parts])

    def add_intervals(self, rank: Int64, step: Int64, begin: Int64, end: Int64) -> None:
        """Add intervals; touching ones of a rank and step are merged, empty ones stay."""
        self.parts.append(_unite_rows(np.array([rank, step, begin, end], np.int64)))

    def union_lengths(self, ranks: Sequence[int], steps: Int64) -> Float:
        """Length of the union by rank and step, ns, shape (ranks, steps)."""
        rank, step, begin, end = _unite_rows(np.concatenate(self.parts, axis=1))
        lengths = np.zeros((len(ranks), len(steps)))
        np.add.at(lengths, (np.searchsorted(ranks, rank), np.searchsorted(steps, step)), end - begin)
        return lengths


def _unite_rows(rows: Int64) -> Int64:
    """Union of the intervals of each rank and step; rows: rank, step, begin, end."""
    rank, step, begin, end = rows[:, np.lexsort((rows[2], rows[1], rows[0]))]
    group = np.cumsum(begins(rank, step)) - 1
    first = np.flatnonzero(begins(rank, step))
    origin = begin[first][group]
    span = int((end - origin).max(initial=0)) + 1
    reached = np.maximum.accumulate(end - origin + group * span)
    before = np.append(np.int64(-1), reached[:-1])
    opens = begins(rank, step) | (begin - origin + group * span > before)
    opening = np.flatnonzero(opens)
    last = np.append(opening[1:], len(begin)) - 1
    until = reached[last] - group[last] * span + origin[last]
    return np.array([rank[opening], step[opening], begin[opening], until], np.int64)


class _Sums:
    """Sums of excess time by rank and step."""

    def __init__(self) -> None:
        self.parts: list[tuple[Int64, Int64, Float]] = []

    def add_excess(self, rank: Int64, step: Int64, excess: Float) -> None:
        """Add the excess of rows, shape (4, rows)."""
        self.parts.append((rank, step, excess))

    def total_excess(self, ranks: Sequence[int], steps: Int64) -> Float:
        """Sum of the excess, ns, shape (4, ranks, steps)."""
        sums = np.zeros((len(SPENT), len(ranks), len(steps)))
        for rank, step, excess in self.parts:
            cell = np.searchsorted(ranks, rank), np.searchsorted(steps, step)
            for kind, amounts in enumerate(excess):
                np.add.at(sums[kind], cell, amounts)
        return sums


def _rank_pipelines(instances: CollectiveInstances) -> dict[int, int]:
    """The pipeline of each rank in one, identified by a rank; joined by send/recv, or dimension pp.

    Transfers within another dimension (a cp ring) do not count, nor send_recv in a group with collectives.
    """
    joined: dict[int, int] = {}
    collective_groups = {
        label.group for label in instances.labels if label.collective not in (*PAIRS, _EXCHANGE)
    }
    for part in instances.parts():
        links = np.array(
            [
                label.dimension == _PIPELINE
                or (label.dimension is None and label.collective in PAIRS)
                or (
                    label.dimension is None
                    and label.collective == _EXCHANGE
                    and label.group not in collective_groups
                )
                for label in part.labels
            ],
            np.bool_,
        )
        chosen = links[part.label[part.first]] & (part.count > 1)
        if chosen.any():
            linked = part.select_instances(chosen)
            _join_sets(
                joined, linked.rank, np.repeat(np.minimum.reduceat(linked.rank, linked.first), linked.count)
            )
    return {rank: _set_root(joined, rank) for rank in joined}


def _is_single_role(instances: CollectiveInstances, pipeline: dict[int, int]) -> Mask:
    """Instances without two ranks of the same pipeline, shape (instances,)."""
    if not pipeline:
        return np.ones(len(instances.count), np.bool_)
    pipeline_of_row = np.array([pipeline.get(rank, -1 - rank) for rank in instances.rank.tolist()], np.int64)
    instance_of_row = instances.instance_of_row
    order = np.lexsort((pipeline_of_row, instance_of_row))
    twice = ~begins(instance_of_row[order], pipeline_of_row[order])
    return np.asarray(np.bincount(instance_of_row[order][twice], minlength=len(instances.count)) == 0)


def _join_sets(joined: dict[int, int], ranks: Int64, others: Int64) -> None:
    """Merge the sets of each pair of ranks."""
    for rank, partner in np.unique(np.stack([ranks, others], axis=1), axis=0).tolist():
        root, partner_root = _set_root(joined, rank), _set_root(joined, partner)
        joined[max(root, partner_root)] = min(root, partner_root)


def _set_root(joined: dict[int, int], rank: int) -> int:
    joined.setdefault(rank, rank)
    while joined[rank] != rank:
        joined[rank] = rank = joined[joined[rank]]
    return rank
