# SPDX-License-Identifier: Apache-2.0
"""The interval of a ratio: one case on paper, and how often it is wrong where the truth is known."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.special import stdtrit

from cclbench.compare.interval import LEAST_STEPS, difference

Floats = np.ndarray


def logs(*values: float) -> Floats:
    return np.exp(np.array(values))


def noise(random: np.random.Generator, steps: int, rho: float, cv: float = 0.05) -> Floats:
    """Step times around 1 whose logarithms are AR(1) noise of correlation ρ and standard deviation `cv`."""
    found = [random.standard_normal()]
    while len(found) < steps:
        found.append(rho * found[-1] + math.sqrt(1 - rho**2) * random.standard_normal())
    return np.exp(cv * np.array(found))


def tells(base: Floats, other: Floats) -> bool:
    """Whether the verdict is one of a difference."""
    found = difference(base, other)
    return found.low is not None and (found.low > 1 or found.high < 1)


def test_three_steps_each_on_paper() -> None:
    """Logarithms −a, 0, a and the same a tenth higher.

    Lag-1 correlation 0, without its bias 1/3, shrunk (6/3 + 20/2) / 26 = 6/13; g = 1 + (4/3)ρ + (2/3)ρ² =
    297/169; σ² = 2a² / (3 − g) = 169a²/105; the variance of a mean is σ²g/3 = 33a²/35; 2/g degrees of freedom
    each, so 4/g by Welch.
    """
    a = 0.01
    found = difference(logs(-a, 0, a), logs(0.1 - a, 0.1, 0.1 + a))
    reach = stdtrit(4 / (297 / 169), 0.975) * math.sqrt(2 * 33 / 35) * a
    assert found.typical == pytest.approx(math.exp(0.1))
    assert math.log(found.low) == pytest.approx(0.1 - reach)
    assert math.log(found.high) == pytest.approx(0.1 + reach)


def test_runs_swap_to_the_inverse() -> None:
    random = np.random.default_rng(3)
    a, b = noise(random, 12, 0.3), noise(random, 7, 0.3)
    there, back = difference(a, b), difference(b, a)
    assert (there.low, there.high) == pytest.approx((1 / back.high, 1 / back.low))
    scaled = difference(10 * a, 10 * b)
    assert (scaled.low, scaled.high) == pytest.approx((there.low, there.high))


def test_steps_without_any_spread_are_told_apart() -> None:
    found = difference(np.full(3, 2.0), np.full(4, 3.0))
    assert (found.low, found.high) == pytest.approx((1.5, 1.5))


@pytest.mark.parametrize("steps", [(1, 30), (2, 2), (30, 2), (2, 3)])
def test_below_three_steps_of_either_there_is_no_interval(steps: tuple[int, int]) -> None:
    random = np.random.default_rng(0)
    found = difference(*(noise(random, n, 0) for n in steps))
    assert (found.low, found.high) == (None, None)
    assert (found.steps_needed is None) == (min(steps) < 2)


def test_correlated_steps_widen_the_interval() -> None:
    """The same values in another order: neighbours alike, or every other one."""
    values = np.array([1.0, 1.02, 1.04, 1.06, 1.08, 1.1] * 4)
    slow = np.sort(values)
    alike, alternating = difference(slow, slow), difference(values, values)
    assert alike.high - alike.low > 1.5 * (alternating.high - alternating.low)


def test_so_many_steps_would_settle_it() -> None:
    """A tenth of spread and a difference of 3 %: fewer steps do not tell it, as many do."""
    random = np.random.default_rng(5)
    found = difference(noise(random, 10, 0, 0.1), 1.03 * noise(random, 10, 0, 0.1))
    assert found.low < 1 < found.high
    assert found.steps_needed > 10
    assert difference(np.ones(5), np.ones(5)).steps_needed is None
    spread = np.array([0.999, 1.001, 1.0, 1.0])
    assert difference(spread, spread * 1.5).steps_needed == LEAST_STEPS


@pytest.mark.parametrize("rho", [0.0, 0.3, 0.5])
@pytest.mark.parametrize("steps", [3, 5, 10, 30])
def test_equal_runs_are_rarely_called_different(steps: int, rho: float) -> None:
    """At most 7 % of 2,000 pairs; the standard error of 7 % is 0.6 %."""
    random = np.random.default_rng([steps, int(10 * rho)])
    wrong = sum(tells(noise(random, steps, rho), noise(random, steps, rho)) for _ in range(2000))
    assert wrong <= 140


def test_a_tenth_slower_is_told_with_ten_steps_mostly_and_with_thirty_always() -> None:
    random = np.random.default_rng(1)
    for steps, least in ((10, 0.8), (30, 0.99)):
        right = sum(tells(noise(random, steps, 0), 1.1 * noise(random, steps, 0)) for _ in range(500))
        assert right >= least * 500
