# SPDX-License-Identifier: Apache-2.0
"""Each instant of exposed communication, shared among the collectives that run in it, worked out by hand."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from helpers.hand_made import collective, collectives_table

from cclbench.analyzers.view.collectives import Label
from cclbench.analyzers.view.exposed import Exposed, Shared, split_exposed
from cclbench.ground.intervals import union


def exposed(
    calls: list[dict[str, Any]], alone: list[tuple[int, int]], windows: list[tuple[int, int]]
) -> Exposed:
    pieces, edges = (np.array(spans, np.int64).reshape(-1, 2).T for spans in (alone, windows))
    return split_exposed(collectives_table(*calls), union(*pieces), *edges)


# reduce waits 10-30 and transfers 30-60; gather lacks a rank, waits 40-50 at least and runs to 80; nobody
# matched the broadcast, 50-70, nor the collective of no kind, 70-75.
CALLS = [
    collective("all_reduce", 10, 60, wait_ns=20),
    collective("all_gather", 40, 80, least_wait_ns=10),
    collective("broadcast", 50, 70),
    collective(None, 70, 75),
]


def test_waiting_transfer_and_what_nobody_knows_share_each_instant() -> None:
    found = exposed(CALLS, [(0, 100)], [(0, 100)])
    assert found.labels == [Label("all_gather"), Label("all_reduce"), Label("broadcast"), Label("unknown")]
    # 40-50 and 60-75 are two collectives' each, 50-60 three's.
    third, half = Fraction(10, 3), Fraction(5, 2)
    assert found.wait.by_label() == [5, 20, 0, 0]
    assert found.transfer.by_label() == [0, 10 + 5 + third, 0, 0]
    assert found.unmatched.by_label() == [third + 5 + half + 5, 0, third + 5, half]
    assert sum(found.by_label()) == 70
    assert found.any_matched


HALF = Fraction(5, 2)


@pytest.mark.parametrize(
    ("calls", "alone", "windows", "expected"),
    [
        # Of 10-80 the windows hold 10-20, 25-45 and 60-90; 30-35 and 65-100 are not exposed.
        (
            *(CALLS, [(0, 30), (35, 65)], [(0, 20), (25, 45), (60, 90)]),
            ([10, 5 + HALF, 0], [0, 5 + HALF, 0], [0, 0, HALF + HALF]),
        ),
        # What lies before the first window is in none.
        (
            *([collective("all_reduce", 10, 60, wait_ns=30)], [(0, 100)], [(20, 30), (50, 55)]),
            ([10, 0], [0, 5], [0, 0]),
        ),
        # Of a matched collective its own wait counts, whatever it waited for at least.
        (
            *([collective("all_reduce", 10, 60, wait_ns=30, least_wait_ns=20)], [(0, 100)], [(0, 100)]),
            ([30], [20], [0]),
        ),
    ],
)
def test_only_what_is_exposed_and_in_a_window_counts(
    calls: list[Any], alone: list[Any], windows: list[Any], expected: tuple[list[Any], ...]
) -> None:
    found = exposed(calls, alone, windows)
    assert tuple(own.by_window() for own in (found.wait, found.transfer, found.unmatched)) == expected


def test_of_some_labels_alone() -> None:
    found = exposed(CALLS, [(0, 100)], [(0, 55), (55, 100)])
    reduce = np.array([label.collective == "all_reduce" for label in found.labels])
    third = Fraction(5, 3)
    assert found.transfer.by_window(reduce) == [10 + 5 + third, third]
    assert found.unmatched.by_window(reduce) == [0, 0]
    assert found.unmatched.by_window(~reduce) == [2 * third, 2 * third + 10 + 5 + 5]


def test_nothing_is_matched_without_exposed_waiting_or_transfer() -> None:
    assert not exposed(CALLS, [(60, 100)], [(0, 100)]).any_matched
    assert exposed(CALLS, [(59, 100)], [(0, 100)]).any_matched  # transfer alone
    assert exposed(CALLS, [(0, 11)], [(0, 100)]).any_matched  # waiting alone
    hidden = exposed(CALLS, [], [(0, 100)])
    assert (hidden.any_matched, hidden.by_label()) == (False, [0, 0, 0, 0])
    none = exposed([], [(0, 50)], [(0, 100)])
    assert (none.labels, none.by_label(), none.any_matched) == ([], [], False)


def test_shares_are_exact_fractions() -> None:
    """Two labels in two windows: 1 ns alone, 2 ns among two, 5 ns among three."""
    ns = np.array([[[1, 0], [0, 0]], [[2, 0], [2, 4]], [[0, 5], [5, 5]]])
    shared = Shared((1, 2, 3), ns)
    assert shared.by_label() == [1 + 1 + Fraction(5, 3), 3 + Fraction(10, 3)]
    assert shared.by_window() == [1 + 2 + Fraction(5, 3), 2 + Fraction(10, 3)]
    assert shared.by_window(np.array([True, False])) == [2, Fraction(5, 3)]
