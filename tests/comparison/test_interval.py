# SPDX-License-Identifier: Apache-2.0
"""The interval of a ratio: one case on paper, and how often it errs where the truth is known."""

from __future__ import annotations

import math
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.special import stdtrit

from cclbench.comparison.interval import LEAST_STEPS, difference

Floats = np.ndarray


def logs(*values: float) -> Floats:
    return np.exp(np.array(values))


def noise(random: np.random.Generator, steps: int, rho: float, cv: float = 0.05) -> Floats:
    """Step times around 1 whose logarithms are AR(1) noise of correlation ρ and standard deviation `cv`."""
    found = [random.standard_normal()]
    while len(found) < steps:
        found.append(rho * found[-1] + math.sqrt(1 - rho**2) * random.standard_normal())
    return np.exp(cv * np.array(found))


def test_three_steps_each_on_paper() -> None:
    """Logarithms −a, 0, a and the same a tenth higher.

    Lag-1 correlation 0, without its bias 1/3, shrunk (6/3 + 20/2) / 26 = 6/13; g = 1 + (4/3)ρ + (2/3)ρ² =
    297/169; σ² = 2a² / (3 − g) = 169a²/105; the variance of a mean is σ²g/3 = 33a²/35; 2/g degrees of freedom
    each, so 4/g by Welch.
    """
    a = 0.01
    found = difference(logs(-a, 0, a), logs(0.1 - a, 0.1, 0.1 + a))
    reach = stdtrit(4 / (297 / 169), 0.975) * math.sqrt(2 * 33 / 35) * a
    assert math.sqrt(found.low * found.high) == pytest.approx(math.exp(0.1))
    assert math.log(found.low) == pytest.approx(0.1 - reach)
    assert math.log(found.high) == pytest.approx(0.1 + reach)


def inflation(steps: int, rho: float) -> float:
    """g, by its definition: 1 + 2 Σ (1 − k/n) ρ^k."""
    return 1 + 2 * sum((1 - k / steps) * rho**k for k in range(1, min(steps, 2000)))  # nothing is left then


def reach(variance: float, steps: int, rho: float) -> float:
    """Half the interval of two runs of so many steps, each step of that variance."""
    g = inflation(steps, rho)
    return stdtrit(2 * (steps - 1) / g, 0.975) * math.sqrt(2 * variance * g / steps)


@pytest.mark.parametrize("rho", [0.95, -0.95])
def test_no_correlation_beyond_095_is_believed(rho: float) -> None:
    """A ramp, and steps by turns long and short: both are as regular as can be."""
    steps = 400
    values = np.linspace(0, 0.1, steps) if rho > 0 else 0.1 * (np.arange(steps) % 2)
    found = difference(np.exp(values), np.exp(values + 0.5))
    variance = values.var(ddof=1) * (steps - 1) / (steps - inflation(steps, rho))
    assert math.log(found.high) - 0.5 == pytest.approx(reach(variance, steps, rho), rel=1e-9)
    assert 0.5 - math.log(found.low) == pytest.approx(reach(variance, steps, rho), rel=1e-9)


def test_steps_by_turns_on_paper() -> None:
    """Logarithms 0, a, 0, a: lag-1 correlation −3/4, without its bias −3/4 + (1 − 3) / 4 = −5/4.

    Shrunk it is (8 · −5/4 + 10) / 28 = 0, so that Student's interval of two means of 4 remains, of variance
    a² / 3 each.
    """
    a = 0.01
    found = difference(logs(0, a, 0, a), logs(0.2, 0.2 + a, 0.2, 0.2 + a))
    half = stdtrit(6, 0.975) * a / math.sqrt(6)
    assert (math.log(found.low), math.log(found.high)) == pytest.approx((0.2 - half, 0.2 + half))


def test_runs_of_different_length_by_welch() -> None:
    """Logarithms 0, a, 0, −a and 0, b, 0, −b, 0, 0: lag-1 products are 0, and so is the correlation found.

    Its bias is 1 / 5 with a mean of 5 steps: ρ = (10 / 5 + 10) / (10 + 20) = 2/5.
    """
    a, b = 0.02, 0.05
    found = difference(logs(0, a, 0, -a), logs(1, 1 + b, 1, 1 - b, 1, 1))
    g = [inflation(steps, 0.4) for steps in (4, 6)]
    means = [2 * a**2 / (4 - g[0]) * g[0] / 4, 2 * b**2 / (6 - g[1]) * g[1] / 6]
    freedom = sum(means) ** 2 / (means[0] ** 2 * g[0] / 3 + means[1] ** 2 * g[1] / 5)
    half = stdtrit(freedom, 0.975) * math.sqrt(sum(means))
    assert (math.log(found.low), math.log(found.high)) == pytest.approx((1 - half, 1 + half))


@pytest.mark.parametrize("distance", [0.5, 0.1, 0.03, 0.01, 0.001])
def test_the_steps_needed_are_the_fewest_whose_interval_does_not_reach_so_far(distance: float) -> None:
    """The runs on paper: ρ = 6/13, a step's variance 169 a² / 105."""
    a, rho = 0.01, 6 / 13
    found = difference(logs(-a, 0, a), logs(distance - a, distance, distance + a)).steps_needed
    assert found is not None
    variance = 169 * a**2 / 105
    assert reach(variance, found, rho) < distance
    assert found == LEAST_STEPS or reach(variance, found - 1, rho) >= distance


@pytest.mark.parametrize(
    ("steps", "beyond", "needed"),
    [
        (1_000_000, 1e-8, 1_000_000),
        (1_000_000, -1e-8, None),
        (900_000, 1e-8, 900_000),
        (600_000, 1e-8, 600_000),
    ],
)
def test_more_than_a_million_steps_are_no_advice(steps: int, beyond: float, needed: int | None) -> None:
    """Differences just beyond, and just within, the reach of so many steps of the runs on paper."""
    a = 0.1
    distance = reach(169 * a**2 / 105, steps, 6 / 13) * (1 + beyond)
    for way in (distance, -distance):
        assert difference(logs(-a, 0, a), logs(way - a, way, way + a)).steps_needed == needed


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


def test_how_often_it_errs_is_what_the_page_says(repository: Path) -> None:
    """The script's table of 2,000 pairs each: at most 7 % of equal runs apart, and the page's figures."""
    script = repository / "scripts" / "interval_errors.py"
    printed = subprocess.run(
        [sys.executable, script, "2000"], capture_output=True, text=True, check=True
    ).stdout
    page = (repository / "docs" / "compare.md").read_text()
    name = r"<!-- scripts/interval_errors\.py: "
    (shown,) = re.findall(rf"{name}begin -->\n(.*?)\n{name}end -->", page, re.DOTALL)
    row = re.compile(r"\| (\d+) \| ([\d.]+) \| ([\d.]+) % \| (\d+) % \|")
    here, there = row.findall(printed), row.findall(shown)
    assert {found[:2] for found in here} == {
        (n, r) for n in ("3", "5", "10", "30") for r in ("0", "0.3", "0.5")
    }
    assert [found[:2] for found in here] == [found[:2] for found in there]
    for now, quoted in zip(here, there, strict=True):
        assert float(now[2]) <= 7
        assert float(quoted[2]) <= 7
        assert abs(float(now[2]) - float(quoted[2])) <= 2  # four standard errors of 2,000 pairs
        assert abs(float(now[3]) - float(quoted[3])) <= 5
