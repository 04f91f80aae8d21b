# SPDX-License-Identifier: Apache-2.0
"""Whether a rank is late by more than chance, how often, since when, and with what period."""

from __future__ import annotations

from dataclasses import dataclass
from math import erfc, sqrt
from typing import Final

import numpy as np

from cclbench.analyzers.view.arrivals import SPENT
from cclbench.analyzers.view.lateness import Float, Lateness
from cclbench.ground.intervals import Int64, Mask
from cclbench.ground.units import humanise

SIGNIFICANT: Final = 0.01
"""Significance level, after correction for the number of ranks."""
LEAST_SHARE: Final = 0.01
"""Least lateness of a rank that stands out, as a share of the step."""
ALWAYS: Final = 0.8
"""Least share of late steps for a rank that is always late."""
_SELDOM, _BEFORE = 0.1, 0.2
"""Before an onset: largest share of late steps, and largest lateness relative to that after it."""
_CELLS, _FEWEST_CELLS = 1 << 13, 32
"""Cells of the grid of a sum's distribution, and least cells of a single step's."""
_TESTS: Final = 2
"""Tests per rank: by how much it is late, and how often it is the latest."""
_FEWEST_BEFORE: Final = 3
"""Least steps before and after an onset."""
_FEWEST_STEPS: Final = 4
"""Least steps to estimate their autocorrelation."""
_BIAS: Final = 1.25
"""Bias of an autocorrelation, times the number of steps (Kendall, Biometrika 41, 1954)."""
_OF_ORDER: Final = 1.15
"""Autocorrelation of lateness over that of the order of ranks by lateness."""
_MOST_ALIKE: Final = 0.95
"""Largest autocorrelation that is assumed."""
_APART: Final = 2.0
"""A rank stands apart if it is at least this many times as late as any other rank ever is."""
_FEWEST_APART: Final = 4
"""Least number of such steps, where they are not all steps."""
_FEWEST_BLOCKS, _MOST_BLOCKS = 8, 16
_NS_PER_S: Final = 10**9


@dataclass(frozen=True, slots=True)
class StragglerVerdict:
    """The rank whose lateness is least likely by chance.

    It `stands_out` if p < 0.01 and it is late by more than 1 % of the mean step.
    """

    rank: int
    p: float
    """Probability that any of equal ranks is as late, or as often the latest."""
    late_ns: float
    """Mean lateness over the steps."""
    step_ns: float
    """Mean length of a step."""
    latest: int
    """Number of steps in which no rank of its role is as late."""
    steps: int
    excess_ns: tuple[float, ...]
    """Excess time over the others before it arrives, each of `SPENT`, mean over the steps."""
    pattern: str
    """always, drifting, periodic, since, intermittent; one step."""
    period: int | None
    since: int | None
    """The first step of its lateness, if late since then."""
    drift: tuple[float, float, float] | None
    """Lateness in the first and the last quarter of the steps, ns, and the p-value of the trend."""

    @property
    def stands_out(self) -> bool:
        """Whether the rank is late by more than chance, and by enough to matter."""
        return self.p < SIGNIFICANT and self.late_ns > LEAST_SHARE * self.step_ns

    @property
    def pattern_words(self) -> str:
        """How often and when the rank is late, in words."""
        words = f"latest in {self.latest} of {self.steps} steps"
        if self.period is not None:
            return f"{words}: in every {_ordinal_words(self.period)} step"
        if self.since is not None:
            return f"{words}: since step {self.since}"
        if self.drift is not None:
            first, last, p = self.drift
            begin, end = (humanise(ns / _NS_PER_S, "s") for ns in (first, last))
            return f"{words}; its lateness drifts, from {begin} to {end} (p = {p:.1g})"
        return words

    @property
    def verdict_words(self) -> str:
        """The verdict in a sentence, without its cause."""
        late = humanise(self.late_ns / _NS_PER_S, "s")
        if self.stands_out:
            return f"rank {self.rank} is late by {late} a step, {self.pattern_words} (p = {self.p:.2g})"
        words = f"no rank stands out: rank {self.rank} is late by {late} a step, latest in {self.latest} of"
        words = f"{words} {self.steps} step{'s'[: self.steps != 1]}"
        if self.steps == 1:
            return f"{words}, and one step does not show whether it is late again"
        if self.p >= SIGNIFICANT:
            return f"{words}, which chance explains (p = {self.p:.2g})"
        return f"{words}, no more than {LEAST_SHARE:.0%} of a step".replace("%", " %")


def late_rank(lateness: Lateness, step_ns: float) -> StragglerVerdict:
    """The latest of the significantly late ranks, else the one with the smallest p-value.

    `step_ns`: mean length of a step.
    """
    latest = lateness.latest_mask
    p = np.ones(len(lateness.ranks))
    for role in np.unique(lateness.role):
        of_role = np.flatnonzero(lateness.role == role)
        p[of_role] = np.minimum(1.0, chance_of_lateness(lateness.late_ns[of_role]) * len(lateness.ranks))
    mean = lateness.late_ns.mean(axis=1)
    least = p if p.min() >= SIGNIFICANT else p >= SIGNIFICANT
    chosen = min(range(len(p)), key=lambda index: (least[index], -mean[index], lateness.ranks[index]))
    pattern, period, since, drift = _lateness_pattern(
        lateness.late_ns[chosen], latest[chosen], lateness.steps
    )
    return StragglerVerdict(
        rank=lateness.ranks[chosen],
        p=float(p[chosen]),
        late_ns=float(mean[chosen]),
        step_ns=step_ns,
        latest=int(latest[chosen].sum()),
        steps=len(lateness.steps),
        excess_ns=tuple(lateness.spent_ns[kind, chosen].mean() for kind in range(len(SPENT))),
        pattern=pattern,
        period=period,
        since=since,
        drift=drift,
    )


def chance_of_lateness(late: Float) -> Float:
    """P-value of each rank's lateness over the steps, or of how often it is the latest; shape (ranks,).

    Null hypothesis: ranks are equal, and each step's lateness is assigned to them in random order
    (permutation of whole steps). A rank's sum is then a sum of independent draws, one from each step's
    values, and the number of steps in which it is the latest is binomial. Both distributions are exact (on a
    grid), so that p is at least ranks^(−steps). The smaller p of the two tests counts, doubled. For
    correlated steps the excess over the mean is divided by √g, g being the inflation of a mean's variance by
    the lag-1 autocorrelation of the other ranks; except for a rank that stands apart, which such a
    correlation does not explain, since it would affect the other ranks as well.
    """
    ranks, steps = late.shape
    if ranks < 2:
        return np.ones(ranks)
    most = late.max(axis=0)
    late_steps = np.flatnonzero(most > 0)
    if not len(late_steps):
        return np.ones(ranks)
    p = np.ones((_TESTS, ranks))
    shrink = np.where(_stands_apart(late), 1.0, 1 / np.sqrt(_variance_inflation(late)))
    cells = max(_CELLS // steps, _FEWEST_CELLS)
    grid = np.floor(late * ((cells - 1) / most.max())).astype(np.int64)
    tail = _tail_of_sum(grid, cells)
    total, expected = grid.sum(axis=1), grid.sum() / ranks
    p[0] = tail[np.floor(expected + (total - expected) * shrink).astype(np.int64).clip(0)]
    is_latest = (late == most)[:, late_steps]
    latest_counts = (is_latest & (is_latest.sum(axis=0) == 1)).sum(axis=1)
    expected = len(late_steps) / ranks
    fewer = (expected + (latest_counts - expected) * shrink).clip(0)
    tail = np.log(np.maximum(_binomial_tail(len(late_steps), 1 / ranks), np.finfo(float).tiny))
    p[1] = np.exp(np.interp(fewer, np.arange(len(tail)), tail))
    return np.asarray((p.min(axis=0) * _TESTS).clip(0.0, 1.0))


def _stands_apart(late: Float) -> Mask:
    """Ranks that are at least twice as late as any other ever is, in every step or from one on; (ranks,).

    From one step on means: in at least four steps and a third of all, and in none before. For equal ranks (4
    to 16, 4 to 40 steps, autocorrelation up to 0.8) this names 0 to 2 % with up to six steps, 0 with more.
    """
    steps = late.shape[1]
    most = late.max(axis=1)
    first, second = np.sort(most)[:-3:-1]
    other_ranks = np.where(most == first, second, first)
    apart = late > _APART * other_ranks[:, None]
    since = steps - apart.sum(axis=1)
    lasting = (apart == (np.arange(steps) >= since[:, None])).all(axis=1)
    enough = (since == 0) | (steps - since >= max(_FEWEST_APART, steps / 3))
    return np.asarray(lasting & enough)


def _tail_of_sum(grid: Int64, cells: int) -> Float:
    """P(X ≥ x) of the sum of one random value of each column, by its characteristic function."""
    ranks, steps = grid.shape
    length = 1 << int(np.ceil(np.log2(max(cells * steps, 2))))
    product = np.ones(length // 2 + 1, np.complex128)
    for column in grid.T:
        product *= np.fft.rfft(np.bincount(column, minlength=cells) / ranks, length)
    density = np.fft.irfft(product, length).clip(0.0)
    return np.asarray(density[::-1].cumsum()[::-1].clip(0.0, 1.0))


def _binomial_tail(trials: int, p: float) -> Float:
    """P(X ≥ x) of a binomial distribution, for each x up to `trials`."""
    density = np.zeros(trials + 1)
    density[0] = 1.0
    for _ in range(trials):
        density[1:] = density[1:] * (1 - p) + density[:-1] * p
        density[0] *= 1 - p
    return np.asarray(density[::-1].cumsum()[::-1].clip(0.0, 1.0))


def _variance_inflation(late: Float) -> Float:
    """Variance of a mean over correlated steps relative to independent ones; shape (ranks,).

    From the lag-1 autocorrelation of the other ranks' order in the steps, plus its bias in few steps and its
    standard error: the rank itself is excluded, since a cause of its own also correlates its steps. With two
    ranks, from the autocorrelation of their difference.
    """
    ranks, steps = late.shape
    if steps < _FEWEST_STEPS:
        return np.ones(ranks)
    if ranks > 2:
        order = np.array([_value_ranks(column) for column in late.T], np.float64).T
    else:
        order = np.array([_value_ranks(late[0] - late[1])])
    order -= order.mean(axis=1, keepdims=True)
    covariance, variance = (order[:, 1:] * order[:, :-1]).sum(axis=1), (order**2).sum(axis=1)
    error = _BIAS / steps + 1 / sqrt(max(ranks - 1, 1) * steps)
    if ranks > 2:
        covariance, variance = covariance.sum() - covariance, variance.sum() - variance
    correlation = np.divide(covariance, variance, out=np.zeros(len(covariance)), where=variance > 0)
    rho = np.broadcast_to(_OF_ORDER * correlation + error, ranks).clip(0.0, _MOST_ALIKE)
    lags = np.arange(1, steps)
    return np.asarray(1 + 2 * ((1 - lags / steps) * rho[:, None] ** lags).sum(axis=1))


def _value_ranks(values: Float) -> Float:
    """Ranks of the values; equal values share theirs."""
    ordered = np.sort(values)
    return np.asarray(
        (np.searchsorted(ordered, values, "left") + np.searchsorted(ordered, values, "right")) / 2
    )


def _lateness_pattern(
    late: Float, latest: Mask, steps: tuple[int | None, ...]
) -> tuple[str, int | None, int | None, tuple[float, float, float] | None]:
    """The pattern of a rank's lateness over the steps: name, period, first step, drift.

    Late steps: those in which it is the latest, by at least half of the 90 % quantile of these.
    """
    count = len(steps)
    if count == 1:
        return "one step", None, None, None
    if not latest.any():
        return "intermittent", None, None, None
    late_in = latest & (late >= np.quantile(late[latest], 0.9) / 2)
    late_steps = np.flatnonzero(late_in)
    onset = _first_late_step(late_in)
    if onset is not None and late[:onset].mean() <= _BEFORE * late[onset:].mean():
        return "since", None, steps[onset], None
    gaps = np.diff(late_steps)
    if (
        len(late_steps) > 2
        and gaps[0] > 1
        and (gaps == gaps[0]).all()
        and max(late_steps[0], count - 1 - late_steps[-1]) < gaps[0]
    ):
        return "periodic", int(gaps[0]), None, None
    if (p := trend_probability(late)) is not None and p < SIGNIFICANT:
        quarter = max(count // 4, 1)
        return "drifting", None, None, (float(late[:quarter].mean()), float(late[-quarter:].mean()), p)
    return ("always" if latest.mean() >= ALWAYS else "intermittent"), None, None, None


def _first_late_step(late: Mask) -> int | None:
    """The step since which a rank is late, and rarely before; None without such an onset."""
    before: Int64 = np.cumsum(late, dtype=np.int64) - late
    after = late[::-1].cumsum()[::-1]
    index = np.arange(len(late))
    is_onset = late & (before <= _SELDOM * index) & (after >= ALWAYS * (len(late) - index))
    is_onset &= (index >= _FEWEST_BEFORE) & (len(late) - index >= _FEWEST_BEFORE)
    return int(is_onset.argmax()) if is_onset.any() else None


def trend_probability(values: Float) -> float | None:
    """P-value of a monotonic trend; None for fewer than 16 values.

    Mann-Kendall test on the means of 8 to 16 blocks of successive values, since neighbours are correlated.
    """
    blocks = min(_MOST_BLOCKS, len(values) // 2)
    if blocks < _FEWEST_BLOCKS:
        return None
    means = np.array([block.mean() for block in np.array_split(values, blocks)], np.float64)
    later, earlier = np.triu_indices(blocks, 1)[::-1]
    signs = int(np.sign(means[later] - means[earlier]).sum())
    _, ties = np.unique(means, return_counts=True)
    tied = int((ties * (ties - 1) * (2 * ties + 5)).sum())
    variance = (blocks * (blocks - 1) * (2 * blocks + 5) - tied) / 18
    return erfc((abs(signs) - 1) / sqrt(2 * variance)) if signs and variance > 0 else 1.0


def _ordinal_words(number: int) -> str:
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"
