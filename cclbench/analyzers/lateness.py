# SPDX-License-Identifier: Apache-2.0
"""Lateness: how long collectives wait for each rank alone, and whether it is the same rank's in each step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from math import comb

import numpy as np

from cclbench.analyzers.balance import excess
from cclbench.analyzers.metric import MATCHED, NotApplicable, Value, metric
from cclbench.analyzers.view.arrivals import arrivals_of
from cclbench.analyzers.view.lateness import cause
from cclbench.analyzers.view.meetings import Instances, meetings, of_instances, parts_of
from cclbench.analyzers.view.rank_view import RankView
from cclbench.analyzers.view.values import NS_PER_S
from cclbench.intervals import Int64


def caused_by_rank(ranks: Mapping[int, Sequence[Value]]) -> Iterable[Value]:
    """Of all ranks, and by rank (category), a step; p_value of the rank that causes most in most steps."""
    found = meetings(ranks).of_groups()
    caused, every, instances = _caused(found)
    windows = caused.shape[1]
    whole = Fraction(int(caused.sum()), windows * NS_PER_S)
    yield of_instances(ranks, found, float(whole), f"{instances} instances in {windows} steps")
    for rank, ns in zip(every, caused.sum(axis=1).tolist(), strict=True):
        yield Value(value=float(Fraction(ns, windows * NS_PER_S)), category=str(rank))
    if not caused.any():
        return
    most = (caused == caused.max(axis=0)) & (caused > 0)
    steps = [sum(Fraction(1, crowd) for crowd in most[:, own].sum(axis=0).tolist()) for own in most]
    place = max(range(len(every)), key=lambda one: (steps[one], int(caused[one].sum())))
    foremost = str(every[place])
    p = min(1.0, _chance(int(steps[place]), windows, len(every)) * len(every))
    yield Value(value=p, stat="p_value", category=foremost, provenance="derived", unit="1")
    yield Value(value=float(steps[place]), stat="steps", category=foremost, unit="count")
    parts = parts_of(ranks)
    residual_ns = max(part.clock_residual_ns for part in parts.values())
    yield Value(value=residual_ns / NS_PER_S, stat="clock_residual", category=foremost)
    if why := cause(found, every[place], on_host=parts[every[place]].on_host):
        yield excess(every[place], why)


def _caused(found: Iterable[Instances]) -> tuple[Int64, list[int], int]:
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


def _chance(steps: int, windows: int, ranks: int) -> float:
    """P(X ≥ steps) where in each window every rank is equally likely to be the one."""
    p = Fraction(1, ranks)
    return float(sum(comb(windows, k) * p**k * (1 - p) ** (windows - k) for k in range(steps, windows + 1)))


@metric(
    "balance.caused_wait",
    definition="Time by which collectives wait for their last rank alone, beyond the last but one, a step; of"
    " all ranks, and by the rank that they wait for (category). Sends and receives do not count. Stats of the"
    " rank that causes most of it in most steps: steps, how many those are; p_value, how likely that is where"
    " every rank is as likely to be the one in each step, corrected for the number of ranks; excess_compute,"
    " _copy, _communication or _idle, what it does longer than the other ranks' median before the"
    " collectives that it is last in; clock_residual, what the ranks' clocks leave unexplained.",
    formula="Σ over matched collectives of (latest − second latest arrival) / steps;"
    " p = P(X ≥ steps) · ranks, X binomial of 1/ranks",
    unit="s",
    better="lower",
    inputs=(MATCHED, "steps"),
    not_applicable="none of the window's collectives is matched across all the ranks of its group",
    combine=caused_by_rank,
    rank_rows=False,
)
def caused_wait(rank: RankView) -> Value:
    return arrivals_of(rank)
