# SPDX-License-Identifier: Apache-2.0
"""Wait caused by the last rank alone: the least that a step gains if that rank is not late."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction

import numpy as np

from cclbench.analyzers.metric import MATCHED, NotApplicable, Value, metric
from cclbench.analyzers.view.arrivals import arrivals_of
from cclbench.analyzers.view.lateness import single_role_instances
from cclbench.analyzers.view.meetings import CollectiveInstances, rank_meetings, value_over_instances
from cclbench.analyzers.view.rank_view import RankView
from cclbench.analyzers.view.values import NS_PER_S
from cclbench.ground.intervals import Int64


def caused_by_rank(ranks: Mapping[int, Sequence[Value]]) -> Iterable[Value]:
    """Sum over ranks, and by rank (category), per step."""
    meetings = rank_meetings(ranks)
    caused, all_ranks, count = _caused_waits(single_role_instances(meetings))
    windows = caused.shape[1]
    total = Fraction(int(caused.sum()), windows * NS_PER_S)
    yield value_over_instances(ranks, meetings, float(total), f"{count} instances in {windows} steps")
    for rank, ns in zip(all_ranks, caused.sum(axis=1).tolist(), strict=True):
        yield Value(value=float(Fraction(ns, windows * NS_PER_S)), category=str(rank))


def _caused_waits(instances: Iterable[CollectiveInstances]) -> tuple[Int64, list[int], int]:
    """Wait for the last rank alone, ns, shape (ranks, steps); the ranks; the number of instances."""
    ranks: set[int] = set()
    parts = []
    for part in instances:
        last = part.first + part.count - 1
        several = part.count > 1
        ns = np.where(several, part.arrival_ns[last] - part.arrival_ns[last - several], 0)
        parts.append(np.array([part.rank[last], part.step[last], ns, several]))
        ranks.update(np.unique(part.rank).tolist())
    rank, row_step, ns, several = np.concatenate(parts, axis=1)
    all_ranks = sorted(ranks)
    steps, step = np.unique(row_step, return_inverse=True)
    caused = np.zeros((len(all_ranks), len(steps)), np.int64)
    np.add.at(caused, (np.searchsorted(all_ranks, rank), step), ns)
    if not several.any():
        raise NotApplicable("no collective has more than one rank")
    return caused, all_ranks, len(ns)


@metric(
    "balance.caused_wait",
    definition="Time per step that collectives wait only for their last rank, after the second to last has"
    " arrived; of all ranks, and by the last rank (category). Sends, receives and collectives across pipeline"
    " stages do not count. balance.straggler_rank states whether a rank is late by chance, and why.",
    formula="Σ over matched collectives of (latest − second latest arrival) / steps",
    unit="s",
    better="lower",
    inputs=(MATCHED, "steps"),
    not_applicable="no collective in the window is matched across all ranks of its group",
    version=2,
    combine=caused_by_rank,
    rank_rows=False,
)
def caused_wait(rank: RankView) -> Value:
    return arrivals_of(rank)
