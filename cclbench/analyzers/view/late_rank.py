# SPDX-License-Identifier: Apache-2.0
"""Whether a rank is late more than chance explains, how often, since when, and with what period."""

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
"""Probability, corrected for the number of ranks, below which a rank's lateness is no chance."""
LEAST_SHARE: Final = 0.01
"""Of a step: a rank that is less late stands out in nothing."""
ALWAYS: Final = 0.8
"""Share of steps from which on a rank is late always."""
_SELDOM, _BEFORE = 0.1, 0.2
"""Share of steps up to which it is not yet late, and how late it is then at most, of how late it is after."""
_CELLS, _FEWEST_CELLS = 1 << 13, 32
"""Of the distribution of a sum of lateness, and of one step's at least."""
_TESTS: Final = 2
"""Of each rank: how much later, and how often the latest."""
_FEWEST_BEFORE: Final = 3
"""Steps before an onset, and after."""
_FEWEST_STEPS: Final = 4
"""Steps from which on their autocorrelation is looked at."""
_BIAS: Final = 1.25
"""By how much an autocorrelation is found too low, times the steps (Kendall, Biometrika 41, 1954)."""
_OF_ORDER: Final = 1.15
"""By how much lateness is more alike from step to step than the order of ranks by it, which is 0 of many."""
_MOST_ALIKE: Final = 0.95
"""Autocorrelation that is counted with at most."""
_APART: Final = 2.0
"""How many times as late as any other rank ever is a rank stands apart."""
_FEWEST_APART: Final = 4
"""Steps in which it does, where it does not in all."""
_FEWEST_BLOCKS, _MOST_BLOCKS = 8, 16
_NS_PER_S: Final = 10**9


@dataclass(frozen=True, slots=True)
class StragglerVerdict:
    """The rank whose lateness chance explains least.

    `stands_out` is whether it stands out: p < 0.01, and later than 1 % of the mean step.
    """

    rank: int
    p: float
    """Probability that any rank of equal ones were as late, or as often the latest."""
    late_ns: float
    """Mean over the steps."""
    step_ns: float
    """The mean step."""
    latest: int
    """Steps in which no rank of its role is as late."""
    steps: int
    excess_ns: tuple[float, ...]
    """What it does longer than the others before it is late, each of `SPENT`, mean over the steps."""
    pattern: str
    """always, drifting, periodic, since, intermittent; one step."""
    period: int | None
    since: int | None
    """The step from which on it is late."""
    drift: tuple[float, float, float] | None
    """Its lateness in the first and last quarter of the steps, ns, and how likely that is by chance."""

    @property
    def stands_out(self) -> bool:
        """Whether it stands out."""
        return self.p < SIGNIFICANT and self.late_ns > LEAST_SHARE * self.step_ns

    @property
    def pattern_words(self) -> str:
        """How often and when it is late, in words."""
        said = f"latest in {self.latest} of {self.steps} steps"
        if self.period is not None:
            return f"{said}: in every {_ordinal_words(self.period)} step"
        if self.since is not None:
            return f"{said}: since step {self.since}"
        if self.drift is not None:
            first, last, p = self.drift
            begin, end = (humanise(own / _NS_PER_S, "s") for own in (first, last))
            return f"{said}; its lateness drifts, from {begin} to {end} (p = {p:.1g})"
        return said

    @property
    def verdict_words(self) -> str:
        """The verdict in a sentence, without its cause."""
        late = humanise(self.late_ns / _NS_PER_S, "s")
        if self.stands_out:
            return f"rank {self.rank} is late by {late} a step, {self.pattern_words} (p = {self.p:.2g})"
        said = f"no rank stands out: rank {self.rank} is late by {late} a step, latest in {self.latest} of"
        said = f"{said} {self.steps} step{'s'[: self.steps != 1]}"
        if self.steps == 1:
            return f"{said}, and one step does not tell whether it is late again"
        if self.p >= SIGNIFICANT:
            return f"{said}, which chance explains (p = {self.p:.2g})"
        return f"{said}, no more than {LEAST_SHARE:.0%} of a step".replace("%", " %")


def late_rank(found: Lateness, step_ns: float) -> StragglerVerdict:
    """Of the ranks that chance does not explain the latest, else the one that it explains least.

    `step_ns` is the mean step.
    """
    latest = found.latest_mask
    p = np.ones(len(found.ranks))
    for role in np.unique(found.role):
        own = np.flatnonzero(found.role == role)
        p[own] = np.minimum(1.0, chance_of_lateness(found.late_ns[own]) * len(found.ranks))
    mean = found.late_ns.mean(axis=1)
    least = p if p.min() >= SIGNIFICANT else p >= SIGNIFICANT
    place = min(range(len(p)), key=lambda one: (least[one], -mean[one], found.ranks[one]))
    pattern, period, since, drift = _lateness_pattern(found.late_ns[place], latest[place], found.steps)
    return StragglerVerdict(
        rank=found.ranks[place],
        p=float(p[place]),
        late_ns=float(mean[place]),
        step_ns=step_ns,
        latest=int(latest[place].sum()),
        steps=len(found.steps),
        excess_ns=tuple(found.spent_ns[kind, place].mean() for kind in range(len(SPENT))),
        pattern=pattern,
        period=period,
        since=since,
        drift=drift,
    )


def chance_of_lateness(late: Float) -> Float:
    """How likely each rank of equal ones were as late over the steps, or so often the latest; shape (ranks,).

    Where ranks are equal, each step's lateness falls to them in any order: permutations of whole steps.  The
    sum over steps of a rank then is one of independent draws, one of each step's values, and how often it is
    the latest is binomial.  Both distributions are exact (on a grid of lateness), so that a small p takes
    enough steps: at least ranks^(−steps).  Of the two tests the smaller p counts, doubled.  Steps that are
    alike tell less than independent ones: what exceeds the mean counts 1/√g, g the inflation of the variance
    of a mean by the lag-1 autocorrelation of the other ranks; but for a rank that stands apart, which steps
    that are alike do not bring about: what makes its steps alike makes those of others, too.
    """
    ranks, steps = late.shape
    if ranks < 2:
        return np.ones(ranks)
    most = late.max(axis=0)
    held = np.flatnonzero(most > 0)
    if not len(held):
        return np.ones(ranks)
    p = np.ones((_TESTS, ranks))
    shrink = np.where(_stands_apart(late), 1.0, 1 / np.sqrt(_variance_inflation(late)))
    cells = max(_CELLS // steps, _FEWEST_CELLS)
    grid = np.floor(late * ((cells - 1) / most.max())).astype(np.int64)
    tail = _tail_of_sum(grid, cells)
    total, expected = grid.sum(axis=1), grid.sum() / ranks
    p[0] = tail[np.floor(expected + (total - expected) * shrink).astype(np.int64).clip(0)]
    first = (late == most)[:, held]
    times = (first & (first.sum(axis=0) == 1)).sum(axis=1)
    expected = len(held) / ranks
    fewer = (expected + (times - expected) * shrink).clip(0)
    tail = np.log(np.maximum(_binomial_tail(len(held), 1 / ranks), np.finfo(float).tiny))
    p[1] = np.exp(np.interp(fewer, np.arange(len(tail)), tail))
    return np.asarray((p.min(axis=0) * _TESTS).clip(0.0, 1.0))


def _stands_apart(late: Float) -> Mask:
    """Which ranks are later than twice what any other ever is, in each step or from one on; shape (ranks,).

    From one on they are for a third of the steps and four at least, and in none before.  Of equal ranks, 4 to
    16 in 4 to 40 steps with autocorrelations up to 0.8, this names 0 to 2 % in at most six steps, 0 in more.
    """
    steps = late.shape[1]
    most = late.max(axis=1)
    first, second = np.sort(most)[:-3:-1]
    others = np.where(most == first, second, first)
    apart = late > _APART * others[:, None]
    since = steps - apart.sum(axis=1)
    lasting = (apart == (np.arange(steps) >= since[:, None])).all(axis=1)
    enough = (since == 0) | (steps - since >= max(_FEWEST_APART, steps / 3))
    return np.asarray(lasting & enough)


def _tail_of_sum(grid: Int64, cells: int) -> Float:
    """P(X ≥ x) of the sum of one value of each column, any row's alike; by its characteristic function."""
    ranks, steps = grid.shape
    length = 1 << int(np.ceil(np.log2(max(cells * steps, 2))))
    product = np.ones(length // 2 + 1, np.complex128)
    for column in grid.T:
        product *= np.fft.rfft(np.bincount(column, minlength=cells) / ranks, length)
    density = np.fft.irfft(product, length).clip(0.0)
    return np.asarray(density[::-1].cumsum()[::-1].clip(0.0, 1.0))


def _binomial_tail(trials: int, p: float) -> Float:
    """P(X ≥ x) of each x up to the trials."""
    density = np.zeros(trials + 1)
    density[0] = 1.0
    for _ in range(trials):
        density[1:] = density[1:] * (1 - p) + density[:-1] * p
        density[0] *= 1 - p
    return np.asarray(density[::-1].cumsum()[::-1].clip(0.0, 1.0))


def _variance_inflation(late: Float) -> Float:
    """By what the variance of a mean over steps is larger than of independent ones, of each rank; (ranks,).

    By the lag-1 autocorrelation of the other ranks' order in the steps, with what it is too low in few steps
    and its standard error: a rank that is late for a reason of its own is late in successive steps, too.  Of
    two ranks by that of how much later one is.
    """
    ranks, steps = late.shape
    if steps < _FEWEST_STEPS:
        return np.ones(ranks)
    if ranks > 2:
        order = np.array([_value_ranks(column) for column in late.T], np.float64).T
    else:
        order = np.array([_value_ranks(late[0] - late[1])])
    order -= order.mean(axis=1, keepdims=True)
    along, variance = (order[:, 1:] * order[:, :-1]).sum(axis=1), (order**2).sum(axis=1)
    error = _BIAS / steps + 1 / sqrt(max(ranks - 1, 1) * steps)
    if ranks > 2:
        along, variance = along.sum() - along, variance.sum() - variance
    found = np.divide(along, variance, out=np.zeros(len(along)), where=variance > 0)
    rho = np.broadcast_to(_OF_ORDER * found + error, ranks).clip(0.0, _MOST_ALIKE)
    lags = np.arange(1, steps)
    return np.asarray(1 + 2 * ((1 - lags / steps) * rho[:, None] ** lags).sum(axis=1))


def _value_ranks(values: Float) -> Float:
    """The rank of each value among them, equal ones share."""
    ordered = np.sort(values)
    return np.asarray(
        (np.searchsorted(ordered, values, "left") + np.searchsorted(ordered, values, "right")) / 2
    )


def _lateness_pattern(
    late: Float, latest: Mask, steps: tuple[int | None, ...]
) -> tuple[str, int | None, int | None, tuple[float, float, float] | None]:
    """The pattern of a rank's lateness over the steps, its period, the step since when, its drift.

    Steps count in which it is the latest by at least half of what it is late in the latest tenth of those.
    """
    count = len(steps)
    if count == 1:
        return "one step", None, None, None
    if not latest.any():
        return "intermittent", None, None, None
    late_in = latest & (late >= np.quantile(late[latest], 0.9) / 2)
    at = np.flatnonzero(late_in)
    onset = _first_late_step(late_in)
    if onset is not None and late[:onset].mean() <= _BEFORE * late[onset:].mean():
        return "since", None, steps[onset], None
    gaps = np.diff(at)
    if len(at) > 2 and gaps[0] > 1 and (gaps == gaps[0]).all() and max(at[0], count - 1 - at[-1]) < gaps[0]:
        return "periodic", int(gaps[0]), None, None
    if (p := trend_probability(late)) is not None and p < SIGNIFICANT:
        quarter = max(count // 4, 1)
        return "drifting", None, None, (float(late[:quarter].mean()), float(late[-quarter:].mean()), p)
    return ("always" if latest.mean() >= ALWAYS else "intermittent"), None, None, None


def _first_late_step(late: Mask) -> int | None:
    """From which step on a rank is late, seldom before; None where it is from the first, or in no stretch."""
    before: Int64 = np.cumsum(late, dtype=np.int64) - late
    after = late[::-1].cumsum()[::-1]
    at = np.arange(len(late))
    fits = late & (before <= _SELDOM * at) & (after >= ALWAYS * (len(late) - at))
    fits &= (at >= _FEWEST_BEFORE) & (len(late) - at >= _FEWEST_BEFORE)
    return int(fits.argmax()) if fits.any() else None


def trend_probability(values: Float) -> float | None:
    """Probability that a series rises or falls so evenly by chance; None of fewer than 16 values.

    Mann-Kendall on means of 8 to 16 blocks of successive values, since neighbouring steps are alike.
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
