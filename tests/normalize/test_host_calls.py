# SPDX-License-Identifier: Apache-2.0
"""Operators that take long because they are the first, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from cclbench.normalize.host_calls import cold_operators

US = 1_000


def cold(
    rows: list[tuple[int, int, int]], calls: list[tuple[int, int]] | None = None, until: int | None = 10_000
) -> list[int]:
    """Places of the cold ones among operators (name, begin, end), beside calls of the runtime; µs."""
    name, start, end = np.array(rows, np.int64).T
    thread = np.zeros(len(name), np.int64)
    made = np.array(calls or np.empty((0, 2)), np.int64).reshape(-1, 2).T * US
    told = cold_operators(
        (name, thread, start * US, end * US),
        (np.zeros(made.shape[1], np.int64), *made),
        None if until is None else until * US,
    )
    return np.flatnonzero(told).tolist()


LATER = [(0, 10_000 + 100 * i, 10_020 + 100 * i) for i in range(5)]
"""Five calls of 20 µs in later steps."""


@pytest.mark.parametrize(("took", "found"), [(1_000, [0]), (999, [])])
def test_from_fifty_times_the_usual_on(took: int, found: list[int]) -> None:
    assert cold([(0, 0, took), *LATER]) == found


def test_what_comes_back_is_not_cold_nor_what_waits_or_calls_another() -> None:
    assert cold([(0, 0, 5_000), (0, 20_000, 25_000), *LATER]) == []
    # 5 ms around 4.5 ms of waiting, or around an inner operator that is the cold one.
    assert cold([(0, 0, 5_000), *LATER], calls=[(400, 4_900)]) == []
    assert cold([(0, 0, 5_000), (1, 100, 4_900), *LATER]) == [1]
    assert cold([(0, 0, 5_000), *LATER], calls=[(400, 4_300)]) == [0]


def test_of_a_single_step_the_first_call_of_a_name() -> None:
    rows = [(0, 0, 5_000), (0, 6_000, 11_000), *[(0, 20_000 + 100 * i, 20_020 + 100 * i) for i in range(5)]]
    assert cold(rows, until=None) == [0]
    # What only the first of several steps has; of a single step nobody can tell.
    assert cold([(3, 0, 1_000)]) == [0]
    assert cold([(3, 0, 999)]) == []
    assert cold([(3, 0, 1_000)], until=None) == []
