# SPDX-License-Identifier: Apache-2.0
"""How sure a ratio is: the percentile bootstrap over steps."""

from __future__ import annotations

from typing import Final

import numpy as np

from cclbench.compare.subject import Floats

RESAMPLES: Final = 10_000
_SEED: Final = 0
_AT_ONCE: Final = 1 << 22
_LIMITS: Final = (2.5, 97.5)


def interval(base: Floats, other: Floats) -> tuple[float, float] | None:
    """95 % interval of mean(other) / mean(base), each resampled with replacement; None of a single value.

    Efron's percentile method: the 2.5th and 97.5th percentile of the ratio over 10,000 resamples of both.
    The seed is fixed, so that the same figures give the same words.
    """
    if min(len(base), len(other)) < 2:
        return None
    random = np.random.default_rng(_SEED)
    at_once = max(1, _AT_ONCE // max(len(base), len(other)))
    ratios = []
    for begun in range(0, RESAMPLES, at_once):
        rows = min(at_once, RESAMPLES - begun)
        before, after = (
            values[random.integers(0, len(values), (rows, len(values)))].mean(axis=1)
            for values in (base, other)
        )
        ratios.append(after / before)
    low, high = np.percentile(np.concatenate(ratios), _LIMITS)
    return float(low), float(high)
