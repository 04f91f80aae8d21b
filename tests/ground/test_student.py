# SPDX-License-Identifier: Apache-2.0
"""Student's t against closed forms and a reference library; roots of functions whose roots are known."""

from __future__ import annotations

import math

import pytest
from scipy.special import stdtr, stdtrit

from cclbench.ground.student import find_root, t_quantile, t_tail


def test_one_and_two_degrees_of_freedom_have_closed_forms() -> None:
    """P(T > t) is 1/2 - atan(t) / π of one degree (Cauchy's), 1/2 - t / (2 √(2 + t²)) of two."""
    for t in (-3.0, -0.5, 0.0, 0.1, 1.0, 4.0):
        assert t_tail(t, 1) == pytest.approx(0.5 - math.atan(t) / math.pi, rel=1e-13)
        assert t_tail(t, 2) == pytest.approx(0.5 - t / (2 * math.sqrt(2 + t * t)), rel=1e-13)
    assert t_quantile(0.975, 1) == pytest.approx(math.tan(0.475 * math.pi), rel=1e-13)
    assert t_quantile(0.975, 4) == pytest.approx(2.7764451051977987, rel=1e-13)


@pytest.mark.parametrize("freedom", [0.3, 1.5, 3, 7.3, 30, 99, 101, 198, 1e4])
def test_it_agrees_with_the_reference(freedom: float) -> None:
    for share in (0.6, 0.9, 0.975, 0.9999):
        assert t_quantile(share, freedom) == pytest.approx(float(stdtrit(freedom, share)), rel=1e-11)
    for t in (0.01, 1.0, 5.0, 50.0):
        assert t_tail(t, freedom) == pytest.approx(float(stdtr(freedom, -t)), rel=1e-11)


def test_roots() -> None:
    calls = 0

    def steep(x: float) -> float:
        nonlocal calls
        calls += 1
        return math.exp(20 * x) - 5

    assert find_root(steep, 0.0, 1.0, 1e-12) == pytest.approx(math.log(5) / 20, abs=1e-12)
    assert calls < 20
    assert find_root(lambda x: 1 if x > 0.7331 else -1, 0.0, 1.0, 1e-9) == pytest.approx(0.7331, abs=1e-9)
    assert (find_root(lambda x: x, 0.0, 1.0, 0.1), find_root(lambda x: x - 1, 0.0, 1.0, 0.1)) == (0.0, 1.0)
    with pytest.raises(ValueError, match="one sign"):
        find_root(lambda x: x + 1, 0.0, 1.0, 0.1)
