# SPDX-License-Identifier: Apache-2.0
"""The interval, against cases in which every resample can be written down."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from cclbench.compare import bootstrap
from cclbench.compare.bootstrap import interval


def array(*values: float) -> np.ndarray:
    return np.array(values, np.float64)


@pytest.mark.parametrize(
    ("base", "other", "expected"),
    [
        # other's mean is 2, 3 or 4 with 1/4, 1/2, 1/4: both ends have more than 2.5 %
        ((1, 1), (2, 4), (2, 4)),
        # base's mean is 1, 2 or 3
        ((1, 3), (6, 6), (2, 6)),
        # 2/3 and 4/1 have 1/16 each
        ((1, 3), (2, 4), (2 / 3, 4)),
        ((2, 2, 2), (3, 3), (1.5, 1.5)),
    ],
)
def test_two_steps_by_hand(base: tuple, other: tuple, expected: tuple) -> None:
    assert interval(array(*base), array(*other)) == pytest.approx(expected)


def test_three_steps_against_all_729_resamples() -> None:
    base, other = array(1.0, 1.3, 1.9), array(1.1, 1.7, 2.6)
    means = [[np.mean(pick) for pick in product(values, repeat=3)] for values in (base, other)]
    ratios = np.sort([after / before for before in means[0] for after in means[1]])
    low, high = interval(base, other)
    # The 2.5 % quantile of 729 equally likely ratios lies at the 18th; 10,000 draws come as near as this.
    assert ratios[12] <= low <= ratios[25]
    assert ratios[-26] <= high <= ratios[-13]


def test_a_single_step_has_no_interval() -> None:
    assert interval(array(1), array(1, 2)) is None
    assert interval(array(1, 2), array()) is None


def test_the_same_figures_give_the_same_interval_however_they_are_cut(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    base, other = np.linspace(1, 2, 50), np.linspace(1.2, 2.1, 40)
    first = interval(base, other)
    assert first == interval(base, other)
    monkeypatch.setattr(bootstrap, "_AT_ONCE", 5000)
    low, high = interval(base, other)
    assert (low, high) == pytest.approx(first, rel=0.02)
