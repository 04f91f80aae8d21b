# SPDX-License-Identifier: Apache-2.0
"""Deviations of predicted times from measured ones, by size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from cclbench.hardware.collectives import Prediction
from cclbench.hardware.residuals import BANDS as BANDS
from cclbench.hardware.sweep import Sweep

# Without its network plug-in a run is tens of times slower; software generations differ by less than 4.
_SUSPECT: Final = 4.0


@dataclass(frozen=True, slots=True)
class Deviation:
    """A measured time beside the predicted one with its band, s."""

    size: int
    measured_s: float
    predicted_s: float
    low_s: float
    high_s: float

    @property
    def relative_error(self) -> float:
        """predicted / measured − 1."""
        return self.predicted_s / self.measured_s - 1

    @property
    def is_within_band(self) -> bool:
        """Whether the measured time is within the band."""
        return self.low_s <= self.measured_s <= self.high_s

    @property
    def size_band(self) -> str:
        """Name of the size's band in `BANDS`."""
        return next(name for name, end in BANDS.items() if self.size < end)


def prediction_deviations(sweep: Sweep, prediction: Prediction) -> list[Deviation]:
    """Deviations of a prediction for the sweep's own sizes."""
    return [
        Deviation(*row)
        for row in zip(
            sweep.bytes,
            sweep.seconds,
            prediction.time_s.tolist(),
            prediction.low_s.tolist(),
            prediction.high_s.tolist(),
            strict=True,
        )
    ]


@dataclass(frozen=True, slots=True)
class DeviationSummary:
    """|error|: median and 90th percentile; share of times within the band; median measured / predicted."""

    count: int
    median: float
    p90: float
    within: float
    slower: float

    @property
    def is_suspect(self) -> bool:
        """Whether the machine cannot have run as specified: far slower, and outside the band."""
        return self.slower > _SUSPECT and self.within < 0.5


def summarise_deviations(deviations: Sequence[Deviation]) -> DeviationSummary | None:
    """Summarise deviations; None if there are none."""
    if not deviations:
        return None
    errors = np.abs([each.relative_error for each in deviations])
    return DeviationSummary(
        len(deviations),
        float(np.median(errors)),
        float(np.quantile(errors, 0.9)),
        float(np.mean([each.is_within_band for each in deviations])),
        float(np.median([each.measured_s / each.predicted_s for each in deviations])),
    )
