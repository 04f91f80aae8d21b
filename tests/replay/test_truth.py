# SPDX-License-Identifier: Apache-2.0
"""Random layouts whose truth under another network is known: simulated again with it."""

from __future__ import annotations

from statistics import median

import pytest
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

    So that no rank that is faster makes a step longer; some layouts are a few percent off for that.
    """
    found = errors(10, 3, slow, events=True)
    assert max(map(abs, found.identity)) == 0
    off = sorted(map(abs, found.predicted))
    assert median(off) <= 1e-4
    assert off[-3] <= 3e-3
    assert off[-1] <= 0.05
