# SPDX-License-Identifier: Apache-2.0
"""Which of a job's steps are slow."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

_OUTLIER: Final = 5.0
"""Robust standard deviations above the median (1.4826 MAD) from which a step is slow."""
_SLOWER: Final = 1.05
"""A slow step is at least this factor of the median."""


def slow_limit(seconds: npt.NDArray[np.float64]) -> float:
    """Time above which a step is slow: max(median + 5 · 1.4826 MAD, 1.05 median); shape (steps,)."""
    middle = float(np.median(seconds))
    spread = 1.4826 * float(np.median(np.abs(seconds - middle)))
    return max(middle + _OUTLIER * spread, _SLOWER * middle)
