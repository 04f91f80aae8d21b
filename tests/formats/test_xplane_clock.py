# SPDX-License-Identifier: Apache-2.0
"""A device's own clock on the host's: the line through ops that are shown right, and rows moved with them."""

from __future__ import annotations

import numpy as np
import pytest

from cclbench.formats.xplane.clock import DeviceClock, on_host


def ps(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def test_few_ops_tell_how_clocks_differ() -> None:
    assert on_host(ps(100), ps(650), ps(0, 100, 7)).tolist() == [550, 650, 557]
    own, shown = ps(0, 10_000_000), ps(500, 10_001_500)
    assert on_host(own, shown, ps(0, 5_000_000, 10_000_000)).tolist() == [500, 5_001_000, 10_001_500]
    # next to 2⁶⁰ ps, some 13 days, a float64 tells every 256th apart
    own = (1 << 60) + 7 + 1_000_000 * np.arange(5)
    shown = 1_001 + 1_000_000 * np.arange(5)
    assert on_host(own, shown, own + 3).tolist() == (shown + 3).tolist()


@pytest.mark.parametrize(
    ("late", "apart"),
    [
        # In every other stretch one op or two are shown 0 late, all else 1000 or more: half and half.
        ([1000, 1000, 0, 0], 500),
        ([1000, 1000, 0, 3000], 500),
        ([1000, 3000, 3000, 0], 500),
        ([1000, 3000, 0, 0], 500),
    ],
)
def test_of_64_stretches_of_time_the_least_difference_counts(late: list[int], apart: int) -> None:
    own = 1_000_000 + np.arange(128)
    shown = own + np.array(late * 32)
    assert (on_host(own, shown, own) - own).tolist() == [apart] * 128
    backwards = slice(None, None, -1)
    assert (on_host(own[backwards], shown[backwards], own) - own).tolist() == [apart] * 128


@pytest.mark.parametrize("skew", [1e-4, -1e-4, 1.9e-4, -1.9e-4])
def test_clocks_of_different_speeds(skew: float) -> None:
    own = 5_000_000 + 10_000_000 * np.arange(9)
    shown = own + 700 + np.rint(skew * (own - own[0])).astype(np.int64)
    shown[4] += 90_000_000  # one of nine is shown much too late
    instants = ps(0, 5_000_000, 45_000_000, 105_000_000)
    expected = instants + 700 + np.rint(skew * (instants - 5_000_000)).astype(np.int64)
    assert on_host(own, shown, instants).tolist() == expected.tolist()


@pytest.mark.parametrize(("skew", "taken"), [(1.999e-4, True), (2e-4, False), (-2e-4, False), (3e-4, False)])
def test_speeds_differ_by_less_than_two_in_ten_thousand(skew: float, taken: bool) -> None:
    own = 10_000_000 * np.arange(3)
    shown = own + np.rint(skew * own).astype(np.int64)
    middle = round(skew * own[1])
    assert on_host(own, shown, own[2:]).tolist() == [own[2] + (2 * middle if taken else middle)]


class TestClock:
    """Three ops shown at 10, 20 and 30 for 5 each, which began 1 earlier, 3 later and 2 later."""

    CLOCK = DeviceClock(ps(20, 10, 30), ps(25, 15, 35), ps(23, 9, 32), ps(29, 14, 40))

    def test_begins_and_ends_move_with_the_ops(self) -> None:
        shown = ps(0, 10, 11, 20, 21, 30, 31, 99)
        assert self.CLOCK.move_begins(shown).tolist() == [-1, 9, 14, 23, 23, 32, 33, 101]
        shown = ps(0, 10, 11, 20, 21, 30, 31, 99)
        assert self.CLOCK.move_ends(shown).tolist() == [-1, 9, 10, 19, 25, 34, 36, 104]

    def test_errors_and_ops_of_one_instant(self) -> None:
        assert self.CLOCK.largest_error_ns == 3
        assert DeviceClock(ps(0, 10), ps(5, 15), ps(2, 3), ps(5, 99)).largest_error_ns == 7
        clock = DeviceClock(ps(0, 10, 10), ps(5, 12, 11), ps(0, 19, 15), ps(5, 21, 18))
        assert clock.move_begins(ps(1, 10)).tolist() == [6, 15]
        # The latest end as shown is 12, as it is 21.
        assert clock.move_ends(ps(11, 12)).tolist() == [20, 21]
