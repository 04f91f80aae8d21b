# SPDX-License-Identifier: Apache-2.0
"""How sure a ratio of step times is: Welch's interval on their logarithms, for steps that are correlated.

Steps of one run resemble their neighbours (a slow phase, a busy host), so that n of them tell less than n
independent ones.  As first-order autoregressive noise of lag-1 correlation ρ, the variance of their mean is
s²·g/n with g = 1 + 2 Σ_{k<n} (1−k/n) ρ^k, and the sample variance falls short of the true one by the factor
(n−g)/(n−1).  A few steps cannot tell ρ, so that it is shrunk toward a half.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

LEAST_STEPS: Final = 3
"""Steps of each run below which no interval is stated."""
LEVEL: Final = 0.95
_PRIOR: Final = 0.5
"""The correlation of neighbouring steps of which nothing is known, ..."""
_PRIOR_STEPS: Final = 20
"""... with the weight of so many steps."""
_MOST: Final = 0.95
"""Largest correlation considered: what is nearer to 1 is a drift, and no noise."""
_MOST_STEPS: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Difference:
    """How sure the ratio of two runs' typical (geometric mean) step times is, other / base."""

    low: float | None
    high: float | None
    """Of the 95 % interval; None below `LEAST_STEPS` of either."""
    steps_needed: int | None
    """Steps of each that tell a ratio this far from 1; None where nothing says how many."""


def difference(base: Floats, other: Floats) -> Difference:
    """Compare step times, both in order of time, shape (steps,), positive."""
    logs = [np.log(values) for values in (base, other)]
    distance = float(logs[1].mean() - logs[0].mean())
    if min(map(len, logs)) < 2:
        return Difference(None, None, None)
    rho = _correlation(*logs)
    variances = [_variance(values, rho) for values in logs]
    needed = _steps_needed(abs(distance), variances, rho)
    if min(map(len, logs)) < LEAST_STEPS:
        return Difference(None, None, needed)
    reach = _reach(variances, [len(values) for values in logs], rho)
    return Difference(float(np.exp(distance - reach)), float(np.exp(distance + reach)), needed)


def _correlation(*runs: Floats) -> float:
    """Lag-1 autocorrelation ρ over the runs, its bias −(1+4ρ)/n removed (Kendall 1954), and shrunk."""
    centred = [values - values.mean() for values in runs]
    power = sum(float(d @ d) for d in centred)
    steps = sum(map(len, runs))
    found = sum(float(d[1:] @ d[:-1]) for d in centred) / power if power else _PRIOR
    found += (1 + 4 * found) / (steps / len(runs)) if power else 0.0
    shrunk = (steps * found + _PRIOR_STEPS * _PRIOR) / (steps + _PRIOR_STEPS)
    return float(np.clip(shrunk, -_MOST, _MOST))


def _inflation(steps: int, rho: float) -> float:
    """g: by how much correlation inflates the variance of a mean of `steps`; the sum in closed form."""
    return 1 + 2 * (rho / (1 - rho) - rho * (1 - rho**steps) / (steps * (1 - rho) ** 2))


def _variance(values: Floats, rho: float) -> float:
    """The variance of one step, without the bias that correlation gives the sample's."""
    steps = len(values)
    return float(values.var(ddof=1)) * (steps - 1) / (steps - _inflation(steps, rho))


def _reach(variances: list[float], steps: list[int], rho: float) -> float:
    """Half the interval's length: Student's t with Welch's degrees of freedom, each run's (n−1)/g."""
    from scipy.special import stdtrit

    inflation = [_inflation(n, rho) for n in steps]
    of_means = [v * g / n for v, g, n in zip(variances, inflation, steps, strict=True)]
    total = sum(of_means)
    if not total:
        return 0.0
    freedom = total**2 / sum(v**2 / ((n - 1) / g) for v, g, n in zip(of_means, inflation, steps, strict=True))
    return float(stdtrit(freedom, (1 + LEVEL) / 2) * total**0.5)


def _steps_needed(distance: float, variances: list[float], rho: float) -> int | None:
    """The fewest steps of each whose interval does not reach `distance`; None above `_MOST_STEPS`."""
    if not distance:
        return None
    low = high = LEAST_STEPS
    while _reach(variances, [high, high], rho) >= distance:
        if high == _MOST_STEPS:
            return None
        low, high = high, min(2 * high, _MOST_STEPS)
    while high - low > 1:
        middle = (low + high) // 2
        if _reach(variances, [middle, middle], rho) >= distance:
            low = middle
        else:
            high = middle
    return high
