# SPDX-License-Identifier: Apache-2.0
"""Intervals of differences, and groups of kernels."""

from __future__ import annotations

import importlib.util
import math
import re
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import ndtr, ndtri, stdtrit

from cclbench.comparison.build import compare
from cclbench.comparison.interval import LEAST_STEPS, USUAL_SPREAD, Captures, compare_captures
from cclbench.comparison.kernel_groups import group_differences

Floats = np.ndarray


def prior(spread: float, usual: float = USUAL_SPREAD) -> float:
    return 1 / (1 + (spread / usual) ** 4)


def beyond(reach: float, captures: float, variance: float, likelihood=lambda _: 1.0) -> float:
    """The share of the ratio's distribution that lies further than `reach` from its middle, by quadrature."""

    def mass(weigh) -> float:  # over the logarithm of the spread
        return quad(lambda x: weigh(math.exp(x)) * prior(math.exp(x)) * likelihood(math.exp(x)) * math.exp(x),
                    math.log(1e-4), 0, limit=200)[0]  # fmt: skip

    tail = mass(lambda tau: 2 * ndtr(-reach / math.sqrt(tau**2 * captures + variance)))
    return tail / mass(lambda _: 1.0)


def reach_of(found) -> float:
    return math.log(found.high / found.ratio)


def test_one_capture_each_without_noise_has_the_prior_alone() -> None:
    found = compare_captures([np.full(3, 2.0)], [np.full(4, 3.0)])
    assert found.ratio == pytest.approx(1.5)
    assert math.log(found.ratio / found.low) == pytest.approx(reach_of(found))
    assert beyond(reach_of(found), 2, 0) == pytest.approx(0.05, abs=0.001)
    assert (found.spread.basis_words, found.spread.repeated, found.spread.stored) == ("prior", 0, 0)
    # jobs swap to the inverse
    random = np.random.default_rng(3)
    a, b = ([np.exp(0.05 * random.standard_normal(n)) for n in steps] for steps in ((12, 5), (7, 9)))
    there, back = compare_captures(a, b), compare_captures(b, a)
    assert (there.low, there.high) == pytest.approx((1 / back.high, 1 / back.low))
    scaled = compare_captures([10 * one for one in a], [10 * one for one in b])
    assert (scaled.low, scaled.high) == pytest.approx((there.low, there.high))


def test_steps_add_what_their_mean_varies_by() -> None:
    """Steps 1 − a, 1, 1 + a: lag-1 correlation 0, without its bias 1/3; two steps tell it (n − 2 of each), so
    that ρ = (2/3 + 20 · 0.7) / 22 = 2/3. g = 1 + 2 (2/3 · 2/3 + 1/3 · 4/9) = 59/27, s² = 2a² / (3 − g) =
    27a²/11, the variance of a mean s²g/3 = 59a²/33; (3 − 1) / g degrees of freedom each."""
    a = 0.1
    steps = np.array([1 - a, 1, 1 + a])
    found = compare_captures([steps], [1.2 * steps])
    factor = stdtrit(4 / (59 / 27), 0.975) / ndtri(0.975)
    assert beyond(reach_of(found), 2, 2 * 59 / 33 * a**2 * factor**2) == pytest.approx(0.05, abs=0.001)


def test_repeated_captures_tell_the_spread() -> None:
    """Means that differ by 2b: squares 2b² around theirs, of each job, with one degree of freedom."""
    b = 0.01
    captures = [np.full(5, 1 - b), np.full(5, 1 + b)]
    found = compare_captures(captures, [1.1 * one for one in captures])

    def likelihood(tau: float) -> float:
        return math.exp(-2 * b**2 / tau**2) / tau**2

    assert beyond(reach_of(found), 1, 0, likelihood) == pytest.approx(0.05, abs=0.001)
    assert (found.spread.basis_words, found.spread.repeated) == ("captures", 2)
    assert found.spread.value == pytest.approx(0.016, abs=0.006)
    # captures of another job tell it too
    alone = compare_captures([np.full(5, 1.0)], [np.full(5, 1.05)])
    stored = compare_captures(
        [np.full(5, 1.0)], [np.full(5, 1.05)], [[np.full(5, 3 * m) for m in (0.999, 1.0, 1.001)]]
    )
    assert alone.low < 1 < stored.low
    assert (stored.spread.basis_words, stored.spread.stored) == ("store", 2)
    both = compare_captures([np.full(5, 1.0)] * 2, [np.full(5, 1.05)], [[np.full(5, 2.0)] * 2])
    assert both.spread.basis_words == "captures and store"


def test_the_ratio_is_of_the_mean_of_the_captures_means() -> None:
    """Of unequal lengths, too: 2 and 4 are 3, of which 4 are 4/3."""
    found = compare_captures([np.full(9, 2.0), np.full(3, 4.0)], [np.full(5, 4.0)])
    assert found.ratio == pytest.approx(4 / 3)
    assert found.low < 4 / 3 < found.high
    # three equal steps against thirty of which one is long: the first job's may vary as much
    long = np.ones(30)
    long[17] = 2
    calm = compare_captures([np.ones(30)], [np.ones(30)])
    found = compare_captures([np.ones(3)], [long])
    assert found.low < 1 < found.high
    assert reach_of(found) > 2 * reach_of(calm)
    # the same values in another order: neighbours alike, or every other one
    values = np.array([1.0, 1.1, 1.2, 1.3, 1.4, 1.5] * 4)
    slow = np.sort(values)
    assert reach_of(compare_captures([slow], [slow])) > 1.5 * reach_of(compare_captures([values], [values]))


@pytest.mark.parametrize("steps", [(1, 30), (2, 2), (30, 2), (2, 3)])
def test_below_three_steps_of_either_there_is_no_interval(steps: tuple[int, int]) -> None:
    random = np.random.default_rng(0)
    found = compare_captures(*([np.exp(0.05 * random.standard_normal(n))] for n in steps))
    assert (found.low, found.high, found.captures_needed) == (None, None, None)
    assert found.ratio > 0
    assert LEAST_STEPS == 3


@pytest.mark.parametrize("distance", [0.5, 0.1, 0.03])
def test_the_captures_needed_are_the_fewest_whose_interval_does_not_reach_so_far(distance: float) -> None:
    captures = [np.full(5, value) for value in (0.99, 1.0, 1.01)]
    found = compare_captures(captures, [math.exp(distance) * one for one in captures])
    needed = found.captures_needed

    def reach(n: int) -> float:
        return stdtrit(2 * n - 2, 0.975) * found.spread.value * math.sqrt(2 / n)

    assert reach(needed) < distance
    assert needed == 2 or reach(needed - 1) >= distance


def test_more_than_a_hundred_captures_are_no_advice() -> None:
    assert compare_captures([np.ones(5)], [np.full(5, 1.001)]).captures_needed is None
    assert compare_captures([np.ones(5)], [np.ones(5)]).captures_needed is None
    # three captures of one step have an interval and so has a figure of a whole capture
    single = [np.array([value]) for value in (1.0, 1.02, 0.98)]
    found = compare_captures(single, [1.5 * one for one in single])
    assert 1 < found.low < 1.5 < found.high
    whole = compare_captures([np.array([1.0])], [np.array([1.05])], single_figure=True)
    assert whole.low < 1 < whole.high < 1.25


@pytest.fixture(scope="module")
def script(repository: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "interval_errors", repository / "scripts/interval_errors.py"
    )
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where its dataclasses look for their types
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("captures", "effect", "noise", "steps"),
    [
        *(((1, 1, 0), 0.01, "independent", (100, 100)), ((1, 1, 0), 0.03, "AR 0.8", (30, 30))),
        *(((1, 1, 5), 0.03, "heavy tails", (100, 100)), ((1, 5, 0), 0.03, "independent", (100, 10))),
        *(((2, 2, 0), 0.03, "5 % outliers", (100, 100)), ((2, 5, 0), 0.0, "AR 0.8", (3, 3))),
        *(((3, 3, 0), 0.01, "two modes", (10, 100)), ((5, 5, 0), 0.03, "AR 0.5", (30, 30))),
        ((3, 3, 0), 0.0, "two modes", (1, 1)),
    ],
)
def test_equal_jobs_are_rarely_called_different(script, captures, effect, noise, steps) -> None:
    """7 % and twice the standard error of 400 pairs."""
    found = script.judge_cell(script.Cell(captures, effect, noise, steps), 400)
    assert found.false_positives <= 0.07 + 2 * math.sqrt(0.07 * 0.93 / 400)
    assert found.reach < 0.25


def test_how_often_it_errs_is_what_the_page_says(script, repository: Path) -> None:
    """Every cell that the page shows is at most 7 %, and some of them come out again."""
    page = (repository / "docs" / "compare.md").read_text()
    name = r"<!-- scripts/interval_errors\.py: "
    (shown,) = re.findall(rf"{name}begin -->\n(.*?)\n{name}end -->", page, re.DOTALL)
    worst = [float(cell) for cell in re.findall(r"% \| ([\d.]+) % \(", shown)]
    assert len(worst) == len(script.EFFECTS) * (len(script.CAPTURES) + len(script.SINGLE))
    assert max(worst) <= 7
    several, _ = shown.split("| captures of one step |")
    power = dict(re.findall(r"\| (\d and \d) \| 1 % .*?\| (\d+) % \| [\d.]+ % \|", several))
    steps = [each for each in script.STEPS if min(each) >= 10]
    cells = [script.Cell((3, 3, 0), 0.01, noise, each) for noise in script.NOISES for each in steps]
    cells = [script.judge_cell(cell, 100) for cell in cells]
    assert abs(100 * np.median([cell.power for cell in cells]) - float(power["3 and 3"])) <= 10


NOISE = np.random.default_rng(7).normal(0.0, 0.01, (6, 2, 20))


def job(noise: int, **mean_s: float) -> dict[str, Captures]:
    """One capture of 20 steps whose groups take so long, each step with 1 % of noise."""
    return {
        name.replace("_", " "): [seconds * (1 + NOISE[place, noise])]
        for place, (name, seconds) in enumerate(mean_s.items())
    }


def test_jobs_that_do_not_differ_have_no_group_that_does() -> None:
    alike = {"GEMM": 0.5, "attention": 0.2, "convolution": 0.1, "memory-bound kernels": 0.2}
    assert group_differences(job(0, **alike), job(1, **alike)) == []
    nearly = {**alike, "GEMM": 0.51}
    assert group_differences(job(0, **alike), job(1, **nearly)) == []
    # small groups absent ones and few steps are not judged
    base, other = job(0, GEMM=1.0, attention=0.04), job(1, GEMM=1.0, attention=0.01)
    assert group_differences(base, other) == []
    assert group_differences(job(0, GEMM=1.0), job(1, attention=1.0)) is None
    few = {"GEMM": [np.array([1.0, 1.0])]}
    assert group_differences(few, {"GEMM": [np.array([3.0, 3.0])]}) is None
    assert group_differences({"GEMM": [np.array([1.0, 0.0, 1.0])]}, few) is None
    assert group_differences({}, {}) is None


def test_what_differs_is_told_largest_first_with_wider_intervals() -> None:
    """GEMM takes twice as long, attention a third; each of two intervals is wider than one of 95 %."""
    found = group_differences(job(0, GEMM=0.5, attention=0.3), job(1, GEMM=1.0, attention=0.1))
    assert [one.group for one in found] == ["attention", "GEMM"]
    assert [one.ratio for one in found] == pytest.approx([1 / 3, 2], rel=0.02)
    alone = compare_captures([0.5 * (1 + NOISE[0, 0])], [1.0 * (1 + NOISE[0, 1])])
    assert found[1].low < alone.low
    # of two groups, each has a level of 97.5 %: 2.2414 standard deviations, not 1.9600
    assert np.log(2 / found[1].low) == pytest.approx(np.log(2 / alone.low) * 2.2414 / 1.9600, rel=0.05)


def test_quantisation_loses_in_memory_and_wins_in_products(repository: Path, tmp_path: Path) -> None:
    """FP8 products are quicker, their casts and scales are kernels of their own."""
    cards = repository / "workload_cards"
    plain, fp8 = (cards / f"llama-train-{name}h100.yaml" for name in ("", "fp8-"))
    (one,) = compare(plain, fp8, store=tmp_path / "store").versus
    assert "B loses in memory-bound kernels (4.11×" in one.words
    assert "and wins in GEMM (0.641×" in one.words
