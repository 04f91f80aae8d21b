# SPDX-License-Identifier: Apache-2.0
"""95 % interval of a ratio of mean step times, from one or several captures of each job.

Captures of one job differ by more than their steps show: placement, clocks, neighbours.  The mean step of a
capture varies by τ (standard deviation, relative) between captures, and with variance w due to its steps:

- τ is unknown and has a distribution.  The prior is flat up to about 4.5 % and falls off beyond:
  1 / (1 + (τ / 4.5 %)⁴).  Repeated captures, of the compared jobs or of others in the store, narrow it.
- Neighbouring steps are correlated (a slow phase, a busy host), so n of them carry less information than
  n independent ones.  As first-order autoregressive noise of lag-1 correlation ρ, the variance of their mean
  is w = s²·g/n with g = 1 + 2 Σ_{k<n} (1−k/n) ρ^k, and their squares around it sum to s²·(n−g).  A few steps
  do not determine ρ, so it is shrunk toward 0.7.  s² is the job's own, or that of both jobs if it is larger:
  a few steps without a long one do not rule one out.

The interval holds 95 % of the normal distributions of the ratio's logarithm, mixed over τ.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import NormalDist
from typing import Final

import numpy as np
import numpy.typing as npt

from cclbench.ground.student import find_root, t_quantile

Floats = npt.NDArray[np.float64]
Captures = Sequence[Floats]
"""Step times of each capture of a job in time order, shape (steps,), positive."""

LEAST_STEPS: Final = 3
"""Steps of a job, over all its captures, below which no interval is stated."""
LEVEL: Final = 0.95
USUAL_SPREAD: Final = 0.045
"""Spread τ up to which the prior is flat."""
_USUAL_OF_STEPS: Final = 0.1
"""The same for captures of one step each, whose spread includes step noise."""
_TAIL: Final = 4
_SPREADS: Final = np.exp(np.linspace(np.log(1e-4), 0.0, 120))
_PRIOR: Final = 0.7
"""Prior correlation of neighbouring steps, ..."""
_PRIOR_STEPS: Final = 20
"""... with the weight of this many steps."""
_LARGEST_RHO: Final = 0.95
"""Largest correlation considered; closer to 1 is drift, not noise."""
_MOST_CAPTURES: Final = 100


@dataclass(frozen=True, slots=True)
class CaptureSpread:
    """Spread of mean step times between captures of one job, relative to their mean."""

    value: float
    """Median of the distribution of τ, given the captures."""
    repeated: int
    """Captures of the compared jobs, beyond the first of each."""
    stored: int
    """Captures of other jobs in the store, beyond the first of each."""

    @property
    def basis_words(self) -> str:
        """What the spread is estimated from."""
        repeated, stored = bool(self.repeated), bool(self.stored)
        return (
            "captures and store"
            if repeated and stored
            else "captures"
            if repeated
            else "store"
            if stored
            else "prior"
        )


@dataclass(frozen=True, slots=True)
class RatioInterval:
    """Ratio of two jobs' mean step times, other / base, with its interval."""

    ratio: float
    low: float | None
    high: float | None
    """95 % interval; None where a job has fewer than `LEAST_STEPS` steps."""
    spread: CaptureSpread
    captures_needed: int | None
    """Captures of each, as long as these, that resolve a ratio this far from 1; None if more than 100."""


def compare_captures(
    base: Captures, other: Captures, repeats: Sequence[Captures] = (), *, single_figure: bool = False
) -> RatioInterval:
    """Compare two jobs' captures; `repeats` are those of further jobs, each captured more than once.

    single_figure: each capture has one figure for all of it, such as a throughput, not one per step.
    """
    jobs = [_JobCaptures(captures) for captures in (base, other)]
    ratio = jobs[1].mean / jobs[0].mean
    steps = _StepVariation.from_jobs(jobs)
    usual = USUAL_SPREAD if single_figure or any(job.step_deviations for job in jobs) else _USUAL_OF_STEPS
    spreads = _SpreadDistribution.from_captures(
        [(job, steps) for job in jobs], [_JobCaptures(captures) for captures in repeats], usual
    )
    spread = CaptureSpread(
        spreads.median_spread,
        sum(job.extra_captures for job in jobs),
        sum(len(captures) - 1 for captures in repeats),
    )
    distance = abs(float(np.log(ratio)))
    if not single_figure and any(job.step_count < LEAST_STEPS for job in jobs):
        return RatioInterval(ratio, None, None, spread, None)
    variance, freedom = steps.difference_variance(jobs)
    half_width = spreads.half_width(sum(1 / len(job.captures) for job in jobs), variance, freedom)
    captures_needed = _captures_needed(distance, spreads.median_spread, variance / 2) if distance else None
    return RatioInterval(
        ratio, float(np.exp(-half_width) * ratio), float(np.exp(half_width) * ratio), spread, captures_needed
    )


class _JobCaptures:
    """Captures of one job."""

    def __init__(self, captures: Captures) -> None:
        self.captures = captures
        self.means = np.array([steps.mean() for steps in captures], np.float64)
        self.mean = float(self.means.mean())

    @property
    def extra_captures(self) -> int:
        """Captures beyond the first."""
        return len(self.captures) - 1

    @property
    def step_count(self) -> int:
        """Steps of all captures."""
        return sum(map(len, self.captures))

    @cached_property
    def step_deviations(self) -> list[Floats]:
        """Steps / their capture's mean - 1, for captures of more than one step."""
        return [s / m - 1 for s, m in zip(self.captures, self.means, strict=True) if len(s) > 1]

    @property
    def sum_of_squares(self) -> float:
        """Σ of squared relative deviations of the captures' means from the job's."""
        return float(((self.means / self.mean - 1) ** 2).sum())


@dataclass(frozen=True)
class _StepVariation:
    """Step variation within captures: lag-1 correlation, and a step's variance over all jobs."""

    rho: float
    pooled: float

    @classmethod
    def from_jobs(cls, jobs: Sequence[_JobCaptures]) -> _StepVariation:
        """From lag-1 autocorrelation ρ, corrected for its bias −(1+4ρ)/n (Kendall 1954) and shrunk."""
        deviations = [d for job in jobs for d in job.step_deviations]
        power = sum(float(d @ d) for d in deviations)
        if not power:
            return cls(_PRIOR, 0.0)
        correlation = sum(float(d[1:] @ d[:-1]) for d in deviations) / power
        correlation += (1 + 4 * correlation) * len(deviations) / sum(map(len, deviations))
        freedom = sum(len(d) - 2 for d in deviations)
        rho = float(
            np.clip(
                (freedom * correlation + _PRIOR_STEPS * _PRIOR) / (freedom + _PRIOR_STEPS),
                -_LARGEST_RHO,
                _LARGEST_RHO,
            )
        )
        return cls(rho, power / sum(len(d) - _variance_inflation(len(d), rho) for d in deviations))

    def mean_variance(self, job: _JobCaptures, steps: int) -> float:
        """Relative variance of the mean of `steps` steps of a job."""
        variance = 0.0
        if job.step_deviations:
            squares = sum(float(d @ d) for d in job.step_deviations)
            variance = squares / sum(
                len(d) - _variance_inflation(len(d), self.rho) for d in job.step_deviations
            )
        return max(variance, self.pooled) * _variance_inflation(steps, self.rho) / steps

    def difference_variance(self, jobs: Sequence[_JobCaptures]) -> tuple[float, float]:
        """Variance of the difference of the jobs' means, and its degrees of freedom (Welch)."""
        variances, freedoms = [], []
        for job in jobs:
            mean_variances = [self.mean_variance(job, len(steps)) for steps in job.captures]
            variances.append(sum(mean_variances) / len(mean_variances) ** 2)
            freedom = sum((len(d) - 1) / _variance_inflation(len(d), self.rho) for d in job.step_deviations)
            freedoms.append(freedom or np.inf)
        total = sum(variances)
        if not total:
            return 0.0, np.inf
        welch_terms = sum(v**2 / f for v, f in zip(variances, freedoms, strict=True))
        return total, total**2 / welch_terms if welch_terms else np.inf


def _variance_inflation(steps: int, rho: float) -> float:
    """g: the factor by which correlation inflates the variance of a mean of `steps`, in closed form."""
    return 1 + 2 * (rho / (1 - rho) - rho * (1 - rho**steps) / (steps * (1 - rho) ** 2))


@dataclass(frozen=True)
class _SpreadDistribution:
    """Distribution of τ: the probability of each of `_SPREADS`."""

    weights: Floats

    @classmethod
    def from_captures(
        cls,
        jobs: Sequence[tuple[_JobCaptures, _StepVariation]],
        repeats: Sequence[_JobCaptures],
        usual: float,
    ) -> _SpreadDistribution:
        """Posterior given all captures: Σ (n means − their mean)² is (τ² + w) times χ² of n − 1."""
        log_weights = np.log(_SPREADS) - np.log1p((_SPREADS / usual) ** _TAIL)  # per logarithm of τ
        for job, steps in [*jobs, *((job, _StepVariation.from_jobs([job])) for job in repeats)]:
            step_variance = np.mean([steps.mean_variance(job, len(capture)) for capture in job.captures])
            variance = _SPREADS**2 + step_variance
            log_weights -= (job.extra_captures * np.log(variance) + job.sum_of_squares / variance) / 2
        weights = np.exp(log_weights - log_weights.max())
        return cls(weights / weights.sum())

    @property
    def median_spread(self) -> float:
        """Median of the distribution."""
        return float(_SPREADS[np.searchsorted(np.cumsum(self.weights), 0.5)])

    def half_width(self, captures: float, variance: float, freedom: float) -> float:
        """Half the interval's length, in the ratio's logarithm.

        captures: Σ 1 / captures of the jobs; variance: of their steps, with `freedom` degrees of freedom.
        """
        share = (1 + LEVEL) / 2
        if np.isfinite(freedom):
            variance *= (t_quantile(share, freedom) / NormalDist().inv_cdf(share)) ** 2
        deviation = np.sqrt(_SPREADS**2 * captures + variance)

        def excess(half_width: float) -> float:
            tails = [math.erfc(ratio) / 2 for ratio in (half_width / deviation / math.sqrt(2)).tolist()]
            return float(self.weights @ tails) - (1 - share)

        return find_root(excess, 0.0, float(deviation.max()) * 10, 1e-12)


def _captures_needed(distance: float, spread: float, variance: float) -> int | None:
    """Fewest captures of each whose Student's t half-width is below `distance`; None if more than 100."""
    for captures in range(2, _MOST_CAPTURES + 1):
        deviation = math.sqrt(2 * (spread**2 + variance) / captures)
        if t_quantile((1 + LEVEL) / 2, 2 * captures - 2) * deviation < distance:
            return captures
    return None
