# SPDX-License-Identifier: Apache-2.0
"""Balance: whether the ranks have the same work, and who comes last."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Final

import numpy as np
import numpy.typing as npt

from cclbench.analyzers.metric import (
    MATCHED,
    REPLAY,
    Coverage,
    NotApplicable,
    Value,
    metric,
    run_metric,
)
from cclbench.analyzers.view.arrivals import (
    SPENT,
    UNKNOWN_BEFORE,
    Instances,
    arrivals_of,
    meetings,
    of_instances,
    parts_of,
)
from cclbench.analyzers.view.rank_view import RankView
from cclbench.analyzers.view.run_view import RunView
from cclbench.analyzers.view.values import NS_PER_S
from cclbench.intervals import Int64, Mask
from cclbench.units import humanise


def max_over_mean(ranks: Mapping[int, Sequence[Value]]) -> Iterable[Value]:
    """The largest rank's compute time over the mean of all ranks'."""
    values = [value for rank in sorted(ranks) for value in ranks[rank]]
    times = [value.value or 0.0 for value in values]
    if len(times) < 2:
        raise NotApplicable("balance compares ranks, and there is one")
    if not sum(times):
        raise NotApplicable("no rank computes in the window")
    worlds = [value.detail for value in values if isinstance(value.detail, int)]
    yield Value(
        value=max(times) * len(times) / sum(times),
        reason=f"over {len(times)} ranks",
        coverage=Coverage(len(times), max(worlds, default=len(times))),
    )


@metric(
    "balance.load_imbalance",
    definition="How much longer the busiest rank computes than the average one; kernels that wait in"
    " communication do not count. 1 is perfect balance. Partial where ranks of the world have no trace.",
    formula="max over ranks |C| / mean over ranks |C|, with |C| the rank's mean over its steps",
    unit="ratio",
    better="lower",
    not_applicable="there is one rank only, or none computes",
    combine=max_over_mean,
    rank_rows=False,
)
def load_imbalance(rank: RankView) -> Value:
    ns = rank.parts.compute_only + rank.parts.overlapped
    return Value(value=int(ns.sum()) / (len(ns) * NS_PER_S), detail=rank.facts.world_size)


_MATCHED = (MATCHED, "steps")
_NONE = "none of the window's collectives is matched across all the ranks of its group"


def delay_over_window(ranks: Mapping[int, Sequence[Value]]) -> Iterable[Value]:
    """Σ over instances, each counted once, over the mean of the ranks' ΣW."""
    found = meetings(ranks)
    middle = found.first + (found.count - 1) // 2, found.first + found.count // 2
    twice = 2 * found.latest_ns - found.arrival_ns[middle[0]] - found.arrival_ns[middle[1]]
    windows = [part.window_ns for part in parts_of(ranks).values()]
    delay = int(twice.sum()) * len(windows) / (2 * sum(windows))
    yield of_instances(ranks, found, delay, f"{len(twice)} instances")


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
    return arrivals_of(rank)


SIGNIFICANT: Final = 0.01
"""Probability, corrected for the number of ranks, below which a share of last arrivals is no chance."""


def most_often_last(ranks: Mapping[int, Sequence[Value]]) -> Iterable[Value]:
    """The rank whose share of last arrivals exceeds chance most; it is named where that can be no chance."""
    found = meetings(ranks).of_groups()
    last = _last_arrivals(found)
    if not any(one.last for one in last.values()):
        raise NotApplicable("all ranks arrive at every collective together")
    foremost = max(last, key=lambda rank: (last[rank].excess, last[rank].last, -rank))
    own = last[foremost]
    p = min(1.0, chance(own.last, own.sizes) * len(last))
    late_ns = float(np.median(_lateness(found)[_arrives_last(found) & (found.rank == foremost)]))
    residual_ns = max(part.clock_residual_ns for part in parts_of(ranks).values())
    said = f"rank {foremost} arrives last in {float(own.last):.4g} of {own.instances} collectives"
    after = f"{humanise(late_ns / NS_PER_S, 's')} after the median rank"
    if p >= SIGNIFICANT:
        reason = f"no rank stands out: {said}, which chance explains (p = {p:.2g})"
    elif late_ns <= residual_ns:
        clocks = f"the ranks' clocks agree to {humanise(residual_ns / NS_PER_S, 's')} only"
        reason = f"no rank stands out: {said}, {after}, and {clocks}"
    else:
        reason = f"{said}, {after}{_because(found, foremost, ranks)}"
    yield of_instances(ranks, found, own.share, reason)
    yield Value(value=p, stat="p_value", category=str(foremost), provenance="derived")
    for rank in sorted(last):
        yield Value(value=last[rank].share, category=str(rank))


@dataclass(frozen=True, slots=True)
class _LastArrivals:
    """How often a rank arrives last."""

    last: Fraction
    """Instances it is last in; ranks that are last together share one, all together are none."""
    instances: int
    """Instances it takes part in."""
    sizes: Mapping[int, int]
    """How many of those have how many ranks, of those in which not all arrive together."""

    @property
    def share(self) -> float:
        """Of the instances it takes part in, those it is last in."""
        return float(self.last / self.instances)

    @property
    def excess(self) -> float:
        """How many standard deviations more often it is last than by chance."""
        variance = sum(times * (n - 1) / n**2 for n, times in self.sizes.items())
        expected = sum(times / n for n, times in self.sizes.items())
        return float((float(self.last) - expected) / variance**0.5) if variance else 0.0


def _arrives_last(found: Instances) -> Mask:
    """Which rows arrive last in instances in which not all arrive together, shape (rows,)."""
    apart = np.repeat(found.latest_ns > found.earliest_ns, found.count)
    return np.asarray(apart & (found.arrival_ns == np.repeat(found.latest_ns, found.count)))


def _last_arrivals(found: Instances) -> dict[int, _LastArrivals]:
    """By rank, how often it arrives last."""
    rows = _arrives_last(found)
    together = np.bincount(found.of[rows], minlength=len(found.count))[found.of]
    shares: dict[int, Fraction] = {}
    for (rank, crowd), times in _counted(rows, found.rank, together):
        shares[rank] = shares.get(rank, Fraction(0)) + Fraction(times, crowd)
    sizes: dict[int, dict[int, int]] = {}
    apart = np.repeat(found.latest_ns > found.earliest_ns, found.count)
    for (rank, size), times in _counted(apart, found.rank, np.repeat(found.count, found.count)):
        sizes.setdefault(rank, {})[size] = times
    every, instances = np.unique(found.rank, return_counts=True)
    return {
        rank: _LastArrivals(shares.get(rank, Fraction(0)), number, sizes.get(rank, {}))
        for rank, number in zip(every.tolist(), instances.tolist(), strict=True)
    }


def _counted(rows: Mask, *columns: Int64) -> Iterator[tuple[list[int], int]]:
    """Each distinct combination of the columns among the rows, and how often it occurs."""
    found, times = np.unique(np.stack(columns)[:, rows], axis=1, return_counts=True)
    return zip(found.T.tolist(), times.tolist(), strict=True)


def chance(last: Fraction, sizes: Mapping[int, int]) -> float:
    """P(X ≥ ⌊last⌋) where in each instance every rank is equally likely to be last.

    X sums independent trials of probability 1/n, `sizes[n]` of them; its distribution is the inverse Fourier
    transform of its characteristic function (Hong, Computational Statistics & Data Analysis 59, 2013).
    """
    trials = sum(sizes.values())
    turn = np.exp(-2j * np.pi * np.arange((trials + 1) // 2 + 1) / (trials + 1))
    characteristic = np.prod([(1 - 1 / n + turn / n) ** times for n, times in sizes.items()], axis=0)
    density = np.fft.irfft(characteristic[: (trials + 1) // 2 + 1], trials + 1)
    return float(np.clip(density[int(last) :].sum(), 0.0, 1.0))


def _lateness(found: Instances) -> npt.NDArray[np.float64]:
    """How long after the median rank of its instance each row arrives, ns, shape (rows,)."""
    low, high = found.first + (found.count - 1) // 2, found.first + found.count // 2
    median = found.arrival_ns[low] / 2 + found.arrival_ns[high] / 2
    return np.asarray(found.arrival_ns - np.repeat(median, found.count))


_CAUSES = (
    "computes longer",
    "copies longer",
    "is held up in other communication",
    "is launched later by its host",
)
"""Of each of `arrivals.SPENT`: what it means that the last rank spent more of it."""


def _because(found: Instances, straggler: int, ranks: Mapping[int, Sequence[Value]]) -> str:
    """The cause: of what the rank does since its group's previous collective, what exceeds others' most.

    For each instance it is last in: its own ns less the median of the ranks that ran the same previous
    instance; mean over those instances.
    """
    mine = np.flatnonzero(_arrives_last(found) & (found.rank == straggler) & (found.before != UNKNOWN_BEFORE))
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
    definition="The rank that arrives last at more collectives than chance explains, and the share of its own"
    " that it is last at; ranks that arrive last together share, and nobody is last where all arrive"
    " together; sends and receives, in which one side waits by design, do not count. The rank is named in the"
    " reason only where the share cannot be chance (p < 0.01, corrected for the number of ranks: stat"
    " p_value) and its median lateness exceeds what the clocks leave unexplained; else no rank stands out."
    " With the rank stands why it is late: of computing, copying, other communication and idling since its"
    " group's previous collective, what exceeds the other ranks' median most. By rank (category).",
    formula="instances the rank is last in / instances it takes part in; p = P(X ≥ last) · ranks, X a sum of"
    " trials of probability 1/n, one for each of its instances, n their ranks",
    unit="1",
    better="lower",
    inputs=_MATCHED,
    not_applicable=_NONE,
    version=2,
    combine=most_often_last,
    rank_rows=False,
)
def straggler_rank(rank: RankView) -> Value:
    return arrivals_of(rank)


@run_metric(
    "balance.straggler_slowdown",
    definition="How much slower the job is than one without stragglers: its step over that of a replay in"
    " which every kernel takes the median over the ranks of its role (those of one pipeline stage; all"
    " without stages) of what its place in the step takes, roles are even, every transfer takes the median of"
    " its like and every launch comes as late as the median rank's. By cause (category: compute, copy, uneven"
    " stages, transfer, launch), rank, and place in a parallel dimension (category: pp 3): the step of a"
    " replay in which that alone is as measured, over the same. Below 1: it does less than others.",
    formula="replayed step / replayed step with typical durations; of a part: step with that part as measured"
    " / the same",
    unit="ratio",
    better="lower",
    inputs=("events", "steps", MATCHED, REPLAY),
    not_applicable="there is one rank only, no collective is matched, ranks do different work, or the device"
    " is a CPU; unless asked for by name, or shown in a report or a comparison of runs that are not large",
)
def straggler_slowdown(run: RunView) -> Iterator[Value]:
    """As Lin et al., "Understanding Stragglers in Large Model Training Using What-if Analysis" (2025)."""
    if run.slowdown is None:
        raise NotApplicable("a step without stragglers is modelled, and models are switched off")
    found = run.slowdown()
    reason = (
        f"{humanise(found.step_ns / NS_PER_S, 's')} a step, and {humanise(found.ideal_ns / NS_PER_S, 's')}"
        " without stragglers, both replayed"
    )
    modelled = partial(Value, provenance="modelled")
    yield modelled(value=found.job, reason=reason, coverage=Coverage(found.transfers, found.all_transfers))
    for cause, ratio in found.causes.items():
        yield modelled(value=ratio, category=cause)
    for (dimension, place), ratio in found.places.items():
        yield modelled(value=ratio, category=f"{dimension} {place}")
    for rank, ratio in found.ranks.items():
        yield modelled(value=ratio, rank=rank)
