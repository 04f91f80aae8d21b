# SPDX-License-Identifier: Apache-2.0
"""Ratio of two predicted times, with its uncertainty.

Deviations of two machines are independent, so their squares add.  On one machine the shared part of the
deviation (`Residuals.deviation_correlation`) cancels, and assumptions count alike in both times: both are
taken at the same edge.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cclbench.hardware.collectives.price import Prediction
from cclbench.hardware.residuals import Floats, Residuals, ResidualSetting, current_residuals


class Ratio(NamedTuple):
    """New time / old time by size, and the band that contains it in four of five cases."""

    expected: Floats
    low: Floats
    high: Floats


def time_ratio(new: Prediction, old: Prediction) -> Ratio:
    """new / old by size; residuals correct both, even if an algorithm was asked for by name."""
    residuals = current_residuals()
    formula = new.formula_s / old.formula_s
    corrected = residuals.log_correction(new.setting, new.sizes) - residuals.log_correction(
        old.setting, old.sizes
    )
    expected = formula * np.exp(corrected)
    below, above = ratio_half_widths(residuals, new.setting, new.sizes, old.setting, old.sizes)
    if new.setting.machine == old.setting.machine:
        edges = [new.fastest_s / old.fastest_s, new.slowest_s / old.slowest_s]
        least, most = np.minimum.reduce([formula, *edges]), np.maximum.reduce([formula, *edges])
        below = np.hypot(below, np.log(formula / least))
        above = np.hypot(above, np.log(most / formula))
    return Ratio(expected, expected * np.exp(-below), expected * np.exp(above))


def ratio_half_widths(
    by: Residuals, new: ResidualSetting, new_sizes: Floats, old: ResidualSetting, old_sizes: Floats
) -> tuple[Floats, Floats]:
    """Half-widths of a ratio's band from deviations alone, in log time: below and above.

    With the spreads l, h of each and the correlation c of the two deviations,
    above² = (1 − c)(h_new² + l_old²) + c (h_new − h_old)², below² with l and h exchanged.
    """
    octaves = np.abs(np.log2(np.maximum(new_sizes, 1.0) / np.maximum(old_sizes, 1.0)))
    shared = by.deviation_correlation(new, old, octaves)
    (low, high), (old_low, old_high) = (
        by.band_half_widths(new, new_sizes),
        by.band_half_widths(old, old_sizes),
    )
    above = (1 - shared) * (high**2 + old_low**2) + shared * (high - old_high) ** 2
    below = (1 - shared) * (low**2 + old_high**2) + shared * (low - old_low) ** 2
    return np.sqrt(below), np.sqrt(above)
