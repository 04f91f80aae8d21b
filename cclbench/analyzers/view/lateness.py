# SPDX-License-Identifier: Apache-2.0
"""Who arrives last at collectives: how often, how much later than the median rank, by chance or why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

import numpy as np
import numpy.typing as npt

from cclbench.analyzers.view.arrivals import SPENT, UNKNOWN_BEFORE
from cclbench.analyzers.view.meetings import Instances
from cclbench.intervals import Int64, Mask, begins

SIGNIFICANT: Final = 0.01
"""Probability, corrected for the number of ranks, below which a share of last arrivals is no chance."""


@dataclass(frozen=True, slots=True)
class LastArrivals:
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


@dataclass(frozen=True, slots=True)
class Foremost:
    """The rank that arrives last most above chance, and whether it stands out."""

    rank: int
    own: LastArrivals
    p: float
    """Probability of its share by chance, times the number of tests."""
    late_ns: float
    """Median of how long after the median rank it arrives where it is last."""
    residual_ns: float
    """What the ranks' clocks leave unexplained."""

    @property
    def by_chance(self) -> bool:
        """Whether chance explains its share."""
        return self.p >= SIGNIFICANT

    @property
    def within_clocks(self) -> bool:
        """Whether the clocks' own error explains its lateness."""
        return self.late_ns <= self.residual_ns

    @property
    def stands_out(self) -> bool:
        """Whether neither does."""
        return not self.by_chance and not self.within_clocks


def foremost(
    found: Iterable[Instances], last: Mapping[int, LastArrivals], residual_ns: float, tests: int = 1
) -> Foremost:
    """Of the ranks the one that is last most above chance; `tests` are asked at once, each of all ranks.

    The instances come in parts, as from `Meetings`, here and below.
    """
    rank = max(last, key=lambda rank: (last[rank].excess, last[rank].last, -rank))
    own = last[rank]
    p = min(1.0, chance(own.last, own.sizes) * len(last) * tests)
    late = np.concatenate([lateness(some)[arrives_last(some) & (some.rank == rank)] for some in found])
    late_ns = float(np.median(late)) if len(late) else 0.0
    return Foremost(rank, own, p, late_ns, residual_ns)


def arrives_last(found: Instances) -> Mask:
    """Which rows arrive last in instances in which not all arrive together, shape (rows,)."""
    apart = np.repeat(found.latest_ns > found.earliest_ns, found.count)
    return np.asarray(apart & (found.arrival_ns == np.repeat(found.latest_ns, found.count)))


def last_arrivals(found: Iterable[Instances]) -> dict[int, LastArrivals]:
    """By rank, how often it arrives last."""
    times: Counter[tuple[int, int]] = Counter()
    sizes: dict[int, Counter[int]] = {}
    instances: Counter[int] = Counter()
    for some in found:
        rows = arrives_last(some)
        together = np.bincount(some.of[rows], minlength=len(some.count))[some.of]
        times.update(_counted(some.rank[rows], together[rows]))
        apart = np.repeat(some.latest_ns > some.earliest_ns, some.count)
        of_size = _counted(some.rank[apart], np.repeat(some.count, some.count)[apart])
        for (rank, size), number in of_size.items():
            sizes.setdefault(rank, Counter())[size] += number
        ranks, numbers = np.unique(some.rank, return_counts=True)
        instances.update(dict(zip(ranks.tolist(), numbers.tolist(), strict=True)))
    shares: dict[int, Fraction] = {}
    for (rank, crowd), number in times.items():
        shares[rank] = shares.get(rank, Fraction(0)) + Fraction(number, crowd)
    return {
        rank: LastArrivals(shares.get(rank, Fraction(0)), number, dict(sorted(sizes.get(rank, {}).items())))
        for rank, number in sorted(instances.items())
    }


def _counted(rank: Int64, size: Int64) -> dict[tuple[int, int], int]:
    """How often each pair of a rank and a number of ranks occurs; shape (rows,)."""
    sizes = int(size.max(initial=0)) + 1
    found, times = np.unique(rank.astype(np.int64) * sizes + size, return_counts=True)
    pairs = zip(*(part.tolist() for part in np.divmod(found, sizes)), strict=True)
    return dict(zip(pairs, times.tolist(), strict=True))


def chance(last: Fraction, sizes: Mapping[int, int]) -> float:
    """P(X ≥ ⌊last⌋) where in each instance every rank is equally likely to be last.

    X sums independent trials of probability 1/n, `sizes[n]` of them; its distribution is the inverse Fourier
    transform of its characteristic function (Hong, Computational Statistics & Data Analysis 59, 2013).
    """
    trials = sum(sizes.values())
    turn = np.exp(-2j * np.pi * np.fft.rfftfreq(trials + 1))
    factors = [(1 - 1 / n + turn / n) ** times for n, times in sizes.items()]
    characteristic = np.prod([np.ones_like(turn), *factors], axis=0)
    density = np.fft.irfft(characteristic, trials + 1)
    return float(density[int(last) :].sum().clip(0.0, 1.0))


def lateness(found: Instances) -> npt.NDArray[np.float64]:
    """How long after the median rank of its instance each row arrives, ns, shape (rows,)."""
    low, high = found.first + (found.count - 1) // 2, found.first + found.count // 2
    median = found.arrival_ns[low] / 2 + found.arrival_ns[high] / 2
    return np.asarray(found.arrival_ns - np.repeat(median, found.count))


_CAUSES: Final = (
    "computes longer",
    "copies longer",
    "is held up in other communication",
    "is launched later by its host",
)
"""Of each of `arrivals.SPENT`: what it means that the last rank spent more of it."""
_ON_HOST: Final = "is longer outside its operators"
"""The last of these where the device is the host itself."""


@dataclass(frozen=True, slots=True)
class Cause:
    """What a late rank does longer, and by how much than the others' median, mean over instances."""

    spent: str
    """One of `arrivals.SPENT`."""
    words: str
    excess_ns: float


def cause(found: Iterable[Instances], straggler: int, *, on_host: bool) -> Cause | None:
    """Of what the rank does since its group's previous collective, what exceeds others' most, if anything.

    For each instance it is last in: its own ns less the median of the ranks that ran the same previous
    instance; mean over those instances.
    """
    medians = np.concatenate([_excess(some, straggler) for some in found], axis=1)
    if not medians.size:
        return None
    excess = [float(one.mean()) for one in medians]
    most = max(range(len(SPENT)), key=lambda n: excess[n])
    if excess[most] <= 0:
        return None
    words = _ON_HOST if SPENT[most] == "idle" and on_host else _CAUSES[most]
    return Cause(SPENT[most], words, excess[most])


def _excess(found: Instances, straggler: int) -> npt.NDArray[np.float64]:
    """Of instances that the rank is last in, what it spent more than the median of others, ns.

    Shape (4, instances), without those in which nobody ran the same previous instance.
    """
    mine = np.flatnonzero(arrives_last(found) & (found.rank == straggler) & (found.before != UNKNOWN_BEFORE))
    place = np.full(len(found.count), -1, np.int64)
    place[found.of[mine]] = mine
    own = place[found.of]
    others = np.flatnonzero((own >= 0) & (found.rank != straggler) & (found.before == found.before[own]))
    of = found.of[others]
    return np.array([_medians(of, one[own[others]] - one[others]) for one in found.spent], np.float64)


def _medians(of: Int64, ns: Int64) -> npt.NDArray[np.float64]:
    """The median of each instance's rows' ns, in order of the instances."""
    order = np.lexsort((ns, of))
    first = np.flatnonzero(begins(of[order]))
    count = np.diff(np.append(first, len(order)))
    low, high = ns[order][first + (count - 1) // 2], ns[order][first + count // 2]
    return np.asarray(low / 2 + high / 2)
