# SPDX-License-Identifier: Apache-2.0
"""The sentence on groups of kernels: from differences beyond widened intervals, never from noise."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cclbench.comparison.build import compare
from cclbench.comparison.interval import Captures, compare_captures
from cclbench.comparison.kernel_groups import group_differences

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
    idle = {"GEMM": [np.array([1.0, 0.0, 1.0])]}
    assert group_differences(idle, few) is None
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
