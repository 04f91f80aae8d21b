# SPDX-License-Identifier: Apache-2.0
"""Student's t and roots of functions, without the 140 MB of a library for them."""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import NormalDist
from typing import Final

_TINY: Final = 1e-300
_EPSILON: Final = 1e-16
_LARGE: Final = 50.0
_MOST_TERMS: Final = 100_000


def t_tail(t: float, freedom: float) -> float:
    """P(T > t) of Student's t with `freedom` > 0 degrees of freedom, also fractional ones.

    Half of the regularised incomplete beta function I_x(freedom / 2, 1 / 2) with x = freedom / (freedom + t²)
    for t ≥ 0 (DLMF 8.17).
    """
    if t < 0:
        return 1 - t_tail(-t, freedom)
    x, rest = freedom / (freedom + t * t), t * t / (freedom + t * t)
    a, b = freedom / 2, 0.5
    if x < (a + 1) / (a + b + 2):
        return _beta_share(x, rest, a, b) / 2
    return (1 - _beta_share(rest, x, b, a)) / 2


def t_quantile(share: float, freedom: float) -> float:
    """The t above which is 1 - `share` of Student's t, for 0.5 < share < 1.

    Newton's method on the tail, which is convex: from the normal quantile, below the root, it only rises.
    """
    tail = 1 - share
    log_peak = _log_gamma_ratio(freedom / 2) - math.log(freedom * math.pi) / 2
    t = NormalDist().inv_cdf(share)
    while True:
        density = math.exp(log_peak - (freedom + 1) / 2 * math.log1p(t * t / freedom))
        step = (t_tail(t, freedom) - tail) / density
        if step <= _EPSILON * 10 * t:
            return t
        t += step


def _beta_share(x: float, rest: float, a: float, b: float) -> float:
    """I_x(a, b) with `rest` = 1 - x and a or b 1 / 2: the continued fraction of DLMF 8.17.22, by Lentz."""
    if x <= 0:
        return 0.0
    log_x, log_rest = (math.log(y) if y < 0.5 else math.log1p(-z) for y, z in ((x, rest), (rest, x)))
    front = math.exp(_log_gamma_ratio(a + b - 0.5) - math.log(math.pi) / 2 + a * log_x + b * log_rest)
    c, d = 1.0, 1 / _nonzero(1 - (a + b) * x / (a + 1))
    fraction = d
    for m in range(1, _MOST_TERMS):
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 / _nonzero(1 + term * d)
            c = _nonzero(1 + term / c)
            fraction *= c * d
        if abs(c * d - 1) < _EPSILON:
            break
    return front * fraction / a


def _log_gamma_ratio(a: float) -> float:
    """log Γ(a + 1/2) - log Γ(a); of a large a by a series, since the two are nearly equal (DLMF 5.11.13)."""
    if a < _LARGE:
        return math.lgamma(a + 0.5) - math.lgamma(a)
    return math.log(a) / 2 - 1 / (8 * a) + 1 / (192 * a**3) - 1 / (640 * a**5)


def _nonzero(value: float) -> float:
    return value if abs(value) > _TINY else _TINY


def find_root(function: Callable[[float], float], low: float, high: float, tolerance: float) -> float:
    """Where a continuous function changes its sign between `low` and `high`, within `tolerance`.

    Chandrupatla's method: inverse quadratic interpolation where three points allow it, else bisection.
    `ValueError` if it has one sign at both ends.
    """
    a, b, at_a, at_b = low, high, function(low), function(high)
    if at_a * at_b > 0:
        raise ValueError("the function has one sign at both ends")
    share = 0.5
    while True:
        best = a if abs(at_a) < abs(at_b) else b
        least = tolerance / abs(b - a) if a != b else 1.0
        if not at_a or not at_b or least > 0.5:
            return best
        at = a + min(max(share, least), 1 - least) * (b - a)
        value = function(at)
        if (value > 0) == (at_a > 0):
            c, at_c = a, at_a
        else:
            c, b, at_c, at_b = b, a, at_b, at_a
        a, at_a = at, value
        place, height = (a - b) / (c - b), (at_a - at_b) / (at_c - at_b)
        share = 0.5
        if height**2 < place and (1 - height) ** 2 < 1 - place:
            share = at_a / (at_b - at_a) * at_c / (at_b - at_c)
            share += (c - a) / (b - a) * at_a / (at_c - at_a) * at_b / (at_c - at_b)
