# SPDX-License-Identifier: Apache-2.0
"""The wait that a last rank alone causes: what a step gains at least where that rank is not late."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction

import numpy as np

from cclbench.analyzers.metric import MATCHED, NotApplicable, Value, metric
from cclbench.analyzers.view.arrivals import arrivals_of
from cclbench.analyzers.view.lateness import of_one_role
from cclbench.analyzers.view.meetings import CollectiveInstances, of_instances, rank_meetings
from cclbench.analyzers.view.rank_view import RankView
from cclbench.analyzers.view.values import NS_PER_S
from cclbench.ground.intervals import Int64


def caused_by_rank(ranks: Mapping[int, Sequence[Value]]) -> Iterable[Value]:
    """Of all ranks, and by rank (category), a step."""
    found = rank_meetings(ranks)
    caused, every, instances = _caused_waits(of_one_role(found))
    windows = caused.shape[1]
    total = Fraction(int(caused.sum()), windows * NS_PER_S)
    yield of_instances(ranks, found, float(total), f"{instances} instances in {windows} steps")
    for rank, ns in zip(every, caused.sum(axis=1).tolist(), strict=True):
        yield Value(value=float(Fraction(ns, windows * NS_PER_S)), category=str(rank))


def _caused_waits(found: Iterable[CollectiveInstances]) -> tuple[Int64, list[int], int]:
    """ns by which instances wait for the last rank alone, shape (ranks, steps); ranks; how many instances."""
    ranks: set[int] = set()
    parts = []
    for some in found:
        last = some.first + some.count - 1
        several = some.count > 1
        ns = np.where(several, some.arrival_ns[last] - some.arrival_ns[last - several], 0)
        parts.append(np.array([some.rank[last], some.step[last], ns, several]))
        ranks.update(np.unique(some.rank).tolist())
    rank, own_step, ns, several = np.concatenate(parts, axis=1)
    every = sorted(ranks)
    steps, step = np.unique(own_step, return_inverse=True)
    caused = np.zeros((len(every), len(steps)), np.int64)
    np.add.at(caused, (np.searchsorted(every, rank), step), ns)
    if not several.any():
        raise NotApplicable("no collective has several ranks")
    return caused, every, len(ns)


@metric(
    "balance.caused_wait",
    definition="Time by which collectives wait for their last rank alone, beyond the last but one, a step; of"
    " all ranks, and by the rank that they wait for (category). Sends and receives do not count, nor"
    " collectives across pipeline stages. Whether a rank is late by chance, and why, balance.straggler_rank"
    " says.",
    formula="Σ over matched collectives of (latest − second latest arrival) / steps",
    unit="s",
    better="lower",
    inputs=(MATCHED, "steps"),
    not_applicable="none of the window's collectives is matched across all the ranks of its group",
    version=2,
    combine=caused_by_rank,
    rank_rows=False,
)
def caused_wait(rank: RankView) -> Value:
    return arrivals_of(rank)
