# SPDX-License-Identifier: Apache-2.0
"""Simulated jobs whose truth is known: under another network, at eight times the ranks, in worlds that
deviate from the model; `scripts/bench/replay.py` has more of each."""

from __future__ import annotations

from statistics import median

import pytest
from helpers.monotone import drawn
from helpers.perturbed import Draws, held
from helpers.scaled_jobs import Scaled, job, scaled, smaller
from helpers.single_rank_jobs import from_one_rank
from helpers.true_steps import Change, errors, fast, slow

IDENTITY, MEDIAN, WORST = 0.01, 0.033, 0.1


@pytest.mark.parametrize(("seed", "change"), [(1, fast), (2, slow)], ids=["fast", "slow"])
def test_the_step_under_another_network(seed: int, change: Change) -> None:
    found = errors(12, seed, change, events=False)
    assert len(found.identity) == 12
    assert max(map(abs, found.identity)) <= IDENTITY
    assert median(map(abs, found.predicted)) <= MEDIAN
    assert max(map(abs, found.predicted)) <= WORST


def test_with_events_traced_little_is_left_to_chance() -> None:
    """Where ranks begin their first window at other times, the pace of all ranks is not the longest window.
    So that no rank that is faster makes a step longer; some layouts are a few percent off for that."""
    found = errors(10, 3, slow, events=True)
    assert max(map(abs, found.identity)) == 0
    off = sorted(map(abs, found.predicted))
    assert median(off) <= 1e-4
    assert off[-3] <= 3e-3
    assert off[-1] <= 0.05


def test_faster_never_lengthens_and_slower_never_shortens() -> None:
    found = drawn(10, 10, seed=1)
    assert not found.violations, found.violations[0]
    assert (found.layouts, found.settings) == (10, 100)
    assert found.idle + found.refused < found.settings / 2


MEDIAN_64, NEAR, FROM_ONE = 0.033, 0.02, 0.07


@pytest.fixture(scope="module")
def jobs() -> list[Scaled]:
    return [scaled(smaller(job(seed))) for seed in (1, 5, 7)]


def test_steps_of_64_ranks_from_traces_of_8(jobs: list[Scaled]) -> None:
    """`python scripts/bench/replay.py scaling` has 36 of them."""
    assert median(abs(one.error) for one in jobs) <= MEDIAN_64
    assert all(one.held or abs(one.error) <= NEAR for one in jobs)


def test_a_prediction_is_nearer_than_no_change_or_ideal_scaling(jobs: list[Scaled]) -> None:
    """The step of the small job, and that with the work of a rank alone rescaled."""
    for one in jobs:
        work = (one.job.small.tp * one.job.small.pp) / (one.job.large.tp * one.job.large.pp)
        assert abs(one.error) < abs(one.small_ns * work / one.large_ns - 1)


def test_steps_of_64_ranks_from_a_trace_of_one() -> None:
    """Replicas, split tensors and stages; `python scripts/bench/replay.py scaling --from-one` has more."""
    jobs = [from_one_rank(seed) for seed in (6, 7, 10)]
    assert all(one.held for one in jobs)
    assert median(abs(one.error) for one in jobs) <= FROM_ONE


@pytest.mark.parametrize("deviations", [0.0, 3.0], ids=["as the model has it", "alike before and after"])
def test_a_world_is_within_all_bands(deviations: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of figures that nobody specifies nothing is drawn."""
    monkeypatch.setattr(Draws, "_normal", lambda _, of: 0.0 if of == "assumed" else deviations)
    found = held(4, 3, "scale_up.bandwidth=x2", whole=True)
    assert found.inside == found.layouts > 0


def test_a_machine_that_alone_is_far_slower_is_above_its_band(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Draws, "_normal", lambda _, of: 20.0 if "aws-p5" in of else 0.0)
    found = held(3, 3, "system=aws-p5", whole=True)
    assert found.above > 0
    assert found.below == 0
