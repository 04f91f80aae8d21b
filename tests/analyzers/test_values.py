# SPDX-License-Identifier: Apache-2.0
"""Means per step, shares, rates and spreads, of a rank and over ranks, worked out by hand."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from helpers.hand_made import a_rank, window
from helpers.hand_values import told

from cclbench.analyzers.metric import Coverage, NotApplicable, Unknown, Value, no_value
from cclbench.analyzers.view import values
from cclbench.analyzers.view.blurred import AmbiguousKernels

BLURRED = AmbiguousKernels(Coverage(1, 2, 3, 4), "it is blurred")


def ns(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


def three_steps(*, policy: str = "steps") -> Any:
    """Steps 4 and 5 of 10 and 30 ns, a window of 20 ns without a number, and step 9, open after 5 ns."""
    windows = [window(0, 10, 4), window(10, 40, 5), window(40, 60), window(60, 65, 9, still_open=True)]
    return a_rank([], windows, policy=policy)


def test_percentiles_take_twenty_values() -> None:
    """Of 1 to 20: 10.5, and position 0.95 · 19 = 18.05 of the sorted values; of fewer no 95th."""
    found = told(values.spread_values(np.arange(20, 0, -1.0)))
    assert found == pytest.approx({"p50": 10.5, "p95": 19.05, "max": 20})
    p50, p95, most = values.spread_values(np.arange(1.0, 20))
    assert (p50.value, p95.value, most.value, p95.stat) == (10, None, 19, "p95")
    assert p95.reason == "a 95th percentile needs 20 values, there are 19: see the maximum"
    # A distribution is in seconds and weighs as many as it has.
    three = list(values.time_distribution(ns(4_000_000_000, 1_000_000_000, 2_000_000_000)))
    assert told(three) == {"p50": 2, "p95": None, "max": 4}
    assert [one.weight for one in three] == [3, 3, 3]
    assert list(values.time_distribution(ns())) == []


def test_a_part_that_a_rank_lacks_is_none_of_it() -> None:
    """Of three ranks with a figure one has the part x, and two y; a fourth has no figure at all."""
    ranks = {0: [Value(value=10.0), Value(value=6.0, category="x"), Value(value=4.0, category="y")]}
    ranks |= {1: [Value(value=20.0), Value(value=8.0, category="y")], 2: [Value(value=30.0)]}
    ranks |= {3: [no_value("unknown")]}
    found = {v.category: v.value for v in values.parts_over_ranks(ranks)}
    assert found == {None: 20, "x": pytest.approx(2), "y": pytest.approx(4)}


def test_per_step_is_a_mean_over_all_windows_and_a_row_for_each_numbered_one() -> None:
    rank = three_steps()
    mean, *steps = values.per_step(rank, ns(1, 2, 6), unit=3, reason="so", left_out={"a": 1}, of_open=ns(12))
    assert (mean.value, mean.step, mean.reason, mean.left_out) == (1, None, "so", {"a": 1})
    assert (mean.coverage, mean.status) == (None, "ok")
    assert told(steps) == pytest.approx({4: 1 / 3, 5: 2 / 3, (9, "open"): 4})
    assert [one.reason for one in steps] == [None, None, values.OPEN_WINDOW]
    thirds = [Fraction(1, 3), Fraction(1, 3), Fraction(7, 3)]
    assert told(values.per_step(rank, thirds, unit=1)) == pytest.approx({None: 1, 4: 1 / 3, 5: 1 / 3})
    # Amounts are nanoseconds of seconds unless told otherwise.
    assert told(values.per_step(rank, ns(3_000_000_000, 0, 0))) == {None: 1, 4: 3, 5: 0}
    # What blurs a mean makes it partial, and is said after its reason.
    mean, *steps = values.per_step(rank, ns(1, 2, 6), reason="so", blurred=BLURRED)
    assert (mean.reason, mean.coverage, mean.status) == ("so; it is blurred", BLURRED.coverage, "partial")
    assert {v.status for v in steps} == {"ok"}
    plain, *_ = values.per_step(rank, ns(1, 2, 6), blurred=BLURRED)
    assert plain.reason == "it is blurred"


def test_a_share_is_of_sums_and_of_each_step_that_has_any() -> None:
    whole, *steps = values.share_values(three_steps(), ns(2, 1, 3), ns(4, 0, 8), noun="time")
    assert (whole.value, whole.weight, whole.reason, whole.coverage) == (0.5, 12, None, None)
    assert [(v.step, v.value) for v in steps] == [(4, 0.5)]
    rough, *_ = values.share_values(three_steps(), ns(2, 1, 3), ns(4, 0, 8), noun="time", blurred=BLURRED)
    assert (rough.reason, rough.coverage) == ("it is blurred", BLURRED.coverage)
    # A share of nothing has a reason.
    with pytest.raises(Unknown, match="no time is known in the window: it is blurred") as unknown:
        list(values.share_values(three_steps(), ns(0, 0, 0), ns(0, 0, 0), noun="time", blurred=BLURRED))
    assert unknown.value.coverage == BLURRED.coverage
    with pytest.raises(NotApplicable, match="there is no time in the window") as none:
        list(values.share_values(three_steps(), ns(0, 0, 0), ns(0, 0, 0), noun="time"))
    assert not isinstance(none.value, Unknown)


def test_a_rate_is_a_steps_amount_over_its_length() -> None:
    """60 ns in three windows."""
    found = list(values.rate_per_step(three_steps(), 3))
    assert told(found) == pytest.approx({None: 9 / 60e-9, 4: 3 / 10e-9, 5: 3 / 30e-9})
    assert {v.provenance for v in found} == {"derived"}
    with pytest.raises(NotApplicable, match="a rate per step needs steps: the window is the whole trace"):
        list(values.rate_per_step(a_rank([], [window(0, 10, source="whole_trace")]), 3))
    with pytest.raises(NotApplicable, match="a step of this rank has no length"):
        list(values.rate_per_step(a_rank([], [window(0, 10, 1), window(10, 10, 2)]), 3))


def two_ranks() -> dict[int, list[Value]]:
    """Rank 1 has no steps; `open` is a stat of its own."""
    stepped = [Value(value=5.0), Value(value=4.0, step=1), Value(value=6.0, step=2)]
    return {
        1: [Value(value=7.0), Value(value=3.0, stat="open")],
        0: [*stepped, Value(value=9.0, step=3, stat="open"), no_value("none", step=4)],
        2: [Value(value=1.0), Value(value=8.0, step=1)],
    }


def test_the_slowest_rank_of_each_step_sets_the_rate() -> None:
    """Of steps with 4, 6 and 7 the harmonic mean; of the open ones 9 and 3."""
    found = list(values.rate_at_slowest_rank(two_ranks()))
    closed, still_open = 3 / (1 / 4 + 1 / 6 + 1 / 7), 2 / (1 / 9 + 1 / 3)
    assert told(found) == pytest.approx({None: closed, 1: 4, 2: 6, "open": still_open, (3, "open"): 9})
    assert {v.provenance for v in found} == {"derived"}
