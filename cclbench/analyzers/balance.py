# SPDX-License-Identifier: Apache-2.0
"""Balance: whether the ranks have the same work, and who comes last."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction

import numpy as np

from cclbench.analyzers.arrivals import SPENT, UNKNOWN_BEFORE, Meetings, left_out, meetings, parts_of
from cclbench.analyzers.metric import MATCHED, NotApplicable, Value, metric
from cclbench.analyzers.values import NS_PER_S
from cclbench.analyzers.view import RankView
from cclbench.intervals import Int64, Mask
from cclbench.units import humanise


def max_over_mean(ranks: Mapping[int, Sequence[Value]]) -> Iterable[Value]:
    """The largest rank's compute time over the mean of all ranks'."""
    times = [value.value or 0.0 for rank in sorted(ranks) for value in ranks[rank]]
    if len(times) < 2:
        raise NotApplicable("balance compares ranks, and there is one")
    if not sum(times):
        raise NotApplicable("no rank computes in the window")
    yield Value(value=max(times) * len(times) / sum(times), reason=f"over {len(times)} ranks")


@metric(
    "balance.load_imbalance",
    definition="How much longer the busiest rank computes than the average one; kernels that wait in"
    " communication do not count. 1 is perfect balance.",
    formula="max over ranks |C| / mean over ranks |C|, with |C| the rank's mean over its steps",
    unit="ratio",
    better="lower",
    not_applicable="there is one rank only, or none computes",
    combine=max_over_mean,
    rank_rows=False,
)
def load_imbalance(rank: RankView) -> Value:
    ns = rank.parts.compute_only + rank.parts.overlapped
    return Value(value=int(ns.sum()) / (len(ns) * NS_PER_S))


_MATCHED = (MATCHED, "steps")
_NONE = "none of the window's collectives is matched across all the ranks of its group"


def _arrivals(rank: RankView) -> Value:
    found, others = rank.arrivals
    return Value(value=float(len(found.instance)), left_out=others, detail=found)


def delay_over_window(ranks: Mapping[int, Sequence[Value]]) -> Iterable[Value]:
    """Σ over instances, each counted once, over the mean of the ranks' ΣW."""
    found = meetings(ranks)
    middle = found.first + (found.count - 1) // 2, found.first + found.count // 2
    twice = 2 * found.latest_ns - found.arrival_ns[middle[0]] - found.arrival_ns[middle[1]]
    windows = [part.window_ns for part in parts_of(ranks).values()]
    yield Value(
        value=int(twice.sum()) * len(windows) / (2 * sum(windows)),
        reason=f"{len(twice)} instances",
        left_out=left_out(ranks, found),
    )


@metric(
    "balance.straggler_delay",
    definition="Share of the window that collectives wait for their last rank, beyond the median one.",
    formula="Σ over matched collectives of (latest − median arrival) / mean over ranks of ΣW",
    unit="1",
    better="lower",
    inputs=_MATCHED,
    not_applicable=_NONE,
    combine=delay_over_window,
    rank_rows=False,
)
def straggler_delay(rank: RankView) -> Value:
    return _arrivals(rank)


def most_often_last(ranks: Mapping[int, Sequence[Value]]) -> Iterable[Value]:
    """The rank that arrives last most often, of several the lowest, and its share of the instances."""
    found = meetings(ranks)
    arrived_last = found.arrival_ns == np.repeat(found.latest_ns, found.count)
    arrived_last &= np.repeat(found.latest_ns > found.earliest_ns, found.count)
    tied = np.bincount(found.of[arrived_last], minlength=len(found.count))[found.of]
    own, times = np.unique(np.stack([found.rank, tied])[:, arrived_last], axis=1, return_counts=True)
    often: dict[int, Fraction] = {}
    for rank, others, number in zip(*own.tolist(), times.tolist(), strict=True):
        often[rank] = often.get(rank, Fraction(0)) + Fraction(number, others)
    if not often:
        raise NotApplicable("all ranks arrive at every collective together")
    straggler = max(often, key=lambda rank: (often[rank], -rank))
    instances = len(found.count)
    times_last = f"{float(often[straggler]):.4g} of {instances} collectives"
    cause = _because(found, straggler, arrived_last, ranks)
    yield Value(
        value=float(often[straggler] / instances),
        reason=f"rank {straggler} arrives last in {times_last}{cause}",
        left_out=left_out(ranks, found),
    )
    for rank in sorted(often):
        yield Value(value=float(often[rank] / instances), category=str(rank))


_CAUSES = (
    "computes longer",
    "copies longer",
    "is held up in other communication",
    "is launched later by its host",
)
"""Of each of `arrivals.SPENT`: what it means that the last rank spent more of it."""


def _because(
    found: Meetings, straggler: int, arrived_last: Mask, ranks: Mapping[int, Sequence[Value]]
) -> str:
    """The cause: of what the rank does since its group's previous collective, what exceeds others' most.

    For each instance it is last in: its own ns less the median of the ranks that ran the same previous
    instance; mean over those instances.
    """
    mine = np.flatnonzero(arrived_last & (found.rank == straggler) & (found.before != UNKNOWN_BEFORE))
    place = np.full(len(found.count), -1, np.int64)
    place[found.of[mine]] = mine
    own = place[found.of]
    others = np.flatnonzero((own >= 0) & (found.rank != straggler) & (found.before == found.before[own]))
    if not len(others):
        return ""
    excess = [_mean_of_medians(found.of[others], one[own[others]] - one[others]) for one in found.spent]
    most = max(range(len(SPENT)), key=lambda n: excess[n])
    if excess[most] <= 0:
        return ""
    cause = _CAUSES[most]
    if SPENT[most] == "idle" and parts_of(ranks)[straggler].on_host:
        cause = "is longer outside its operators"
    more = humanise(excess[most] / NS_PER_S, "s")
    return f", because it {cause} ({more} more than the other ranks' median, on average)"


def _mean_of_medians(of: Int64, ns: Int64) -> float:
    """Mean over instances of the median of their rows' ns."""
    order = np.lexsort((ns, of))
    first = np.flatnonzero(np.diff(of[order], prepend=-1))
    count = np.diff(np.append(first, len(order)))
    low, high = ns[order][first + (count - 1) // 2], ns[order][first + count // 2]
    return float((low / 2 + high / 2).mean())


@metric(
    "balance.straggler_rank",
    definition="The rank that arrives last at most collectives, and the share of them it is last at; ranks"
    " that arrive last together share, and nobody is last where all arrive together. The rank, and why it is"
    " late, stand in the reason: of computing, copying, other communication and idling since its group's"
    " previous collective, what exceeds the other ranks' median most. By rank (category).",
    formula="max over ranks of instances it is last in / instances",
    unit="1",
    better="lower",
    inputs=_MATCHED,
    not_applicable=_NONE,
    combine=most_often_last,
    rank_rows=False,
)
def straggler_rank(rank: RankView) -> Value:
    return _arrivals(rank)
