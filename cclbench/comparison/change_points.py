# SPDX-License-Identifier: Apache-2.0
"""Change points of a series of runs: where its level moves by more than its own noise explains.

Segments that minimise the squared deviations from their means, with a penalty for each (ruptures, kernel
change point detection with a linear kernel), propose the change points.  A proposal stays if the means on
both sides differ by more than the noise within all segments does, by Student's t at `SIGNIFICANCE`; the
least significant one is dropped first.  Single outliers are replaced by the median of their neighbours
before, and each takes a degree of freedom.

A drift is no change of level: where a straight line, level up to one of its runs, describes the runs better
than the segments do, by the Bayesian information criterion, and its slope is significant as well, the series
has one level that drifts from that run on.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from cclbench.ground.errors import UsageError, install_hint
from cclbench.ground.student import t_quantile, t_tail

Float = npt.NDArray[np.float64]

LEAST_RUNS: Final = 10
"""Runs that a series needs before a change point is looked for: fewer do not show its noise."""
LEAST_SEGMENT: Final = 3
"""Runs on each side of a change point: fewer may be outliers."""
LEAST_DRIFT: Final = 10
"""Runs that a drift lasts at least: a shorter slope may be a step."""
SIGNIFICANCE: Final = 2e-5
"""Chosen for at most one false alarm in 100 series that are looked at after each of 60 runs."""
_OUTLIER: Final = 5.0
"""Standard deviations from the neighbours' median beyond which a run is an outlier."""
_TO_SIGMA: Final = 1.4826
"""Standard deviation over median absolute deviation of normal noise."""
_PENALTY: Final = 3.0
"""Penalty of a proposal in variances, times the logarithm of the number of runs."""


class Drift(NamedTuple):
    """A line through a series: level up to the run of index `first`, from there to its value at the last."""

    first: int
    begin: float
    end: float


@dataclass(frozen=True, slots=True)
class Levels:
    """Segments of a series: `changes` are the indices of their first runs but for the first segment's.

    `means` are the segments' mean values; `noise` is the standard deviation within them with `freedom`
    degrees of freedom, both of the logarithm where all values are positive.  Of a series that drifts, `noise`
    is the deviation from the line.
    """

    changes: tuple[int, ...]
    means: tuple[float, ...]
    noise: float | None
    freedom: int
    outliers: tuple[int, ...]
    logarithmic: bool
    drift: Drift | None = None

    def interval(self, value: float, share: float) -> tuple[float, float]:
        """The 95 % interval of a value whose variance is `share` times that of a run, by Student's t.

        Raises `ValueError` where the noise is unknown.
        """
        if self.noise is None:
            raise ValueError("the noise of fewer than two runs is unknown")
        half = t_quantile(0.975, self.freedom) * self.noise * float(np.sqrt(share))
        if self.logarithmic:
            return value * float(np.exp(-half)), value * float(np.exp(half))
        return value - half, value + half


def find_levels(values: Float) -> Levels:
    """Segments of the values, shape (runs,), in order of time; one segment below `LEAST_RUNS` of them."""
    logarithmic = bool(len(values)) and bool((values > 0).all())
    series = np.log(values) if logarithmic else np.asarray(values, np.float64)
    spread = _robust_noise(series)
    is_long = len(series) >= LEAST_RUNS
    medians = np.array([np.median(series[max(at - 2, 0) : at + 3]) for at in range(len(series))], np.float64)
    outlier = np.full(len(series), fill_value=False)
    if spread and is_long:
        outlier = abs(series - medians) > _OUTLIER * spread
    clean = np.where(outlier, medians, series)
    changes = _proposed_changes(clean, spread) if is_long else []
    while True:
        segments = np.split(clean, changes)
        freedom = len(clean) - len(segments) - int(outlier.sum())
        squares = sum(float(((part - part.mean()) ** 2).sum()) for part in segments if len(part))
        noise = float(np.sqrt(squares / freedom)) if freedom > 0 else None
        least = _least_significant(segments, noise, freedom)
        if least is None:
            break
        del changes[least]
    drift = None
    if is_long and noise and (line := _drift(clean, squares, len(segments), int(outlier.sum()))) is not None:
        noise, freedom, changes, segments = line.noise, line.freedom, [], [clean]
        begin, end = np.exp(line.ends).tolist() if logarithmic else line.ends
        drift = Drift(line.first, begin, end)
    means = [float(part.mean()) for part in segments if len(part)]
    return Levels(
        tuple(changes),
        tuple(float(np.exp(mean)) for mean in means) if logarithmic else tuple(means),
        noise,
        freedom,
        tuple(np.flatnonzero(outlier).tolist()),
        logarithmic,
        drift,
    )


class _Trend(NamedTuple):
    """A line through a series: its first run and values at that and the last, and the deviation from it."""

    first: int
    ends: tuple[float, float]
    noise: float
    freedom: int


def _drift(series: Float, squares: float, segments: int, outliers: int) -> _Trend | None:
    """The line that drifts from one run on, if its slope is significant and it is better than the segments.

    `squares` are the squared deviations within the segments, whose means and bounds are 2 k - 1 parameters;
    a line has two.  One that begins later counts as four, one more than a step, which is the simpler
    explanation; its significance is that of the best of all first runs.
    """
    runs = len(series)
    firsts = np.arange(runs - LEAST_DRIFT + 1)
    ramps = np.maximum(np.arange(runs) - firsts[:, None], 0).astype(np.float64)
    ramps -= ramps.mean(axis=1, keepdims=True)
    extents = (ramps**2).sum(axis=1)
    slopes = ramps @ series / extents
    of_lines = ((series - series.mean() - slopes[:, None] * ramps) ** 2).sum(axis=1)
    parameters = np.where(firsts == 0, 2, 4)
    if not of_lines.all():
        return None
    best = int(np.argmin(runs * np.log(of_lines) + parameters * np.log(runs)))
    count, of_line, slope = int(parameters[best]), float(of_lines[best]), float(slopes[best])
    freedom = runs - (2 if best == 0 else 3) - outliers
    if freedom <= 0 or runs * np.log(of_line / squares) > (2 * segments - 1 - count) * np.log(runs):
        return None
    noise = float(np.sqrt(of_line / freedom))
    choices = 1 if best == 0 else len(firsts)
    if 2 * choices * t_tail(abs(slope) * float(np.sqrt(extents[best])) / noise, freedom) > SIGNIFICANCE:
        return None
    begin, end = (float(series.mean() + slope * ramp) for ramp in (ramps[best, best], ramps[best, -1]))
    return _Trend(best, (begin, end), noise, freedom)


def _robust_noise(series: Float) -> float:
    """Standard deviation from the median difference of neighbours, which few changes of level affect."""
    if len(series) < LEAST_SEGMENT:
        return 0.0
    steps = abs(np.diff(series))
    return float(_TO_SIGMA * np.median(steps) / np.sqrt(2)) or float(np.sqrt((steps**2).mean() / 2))


def _proposed_changes(series: Float, spread: float) -> list[int]:
    try:
        import ruptures
    except ModuleNotFoundError:
        raise UsageError("change points need ruptures", hint=install_hint("history")) from None
    if not spread:
        return []
    scaled = ((series - series.mean()) / spread).reshape(-1, 1)
    search: Any = ruptures.KernelCPD(kernel="linear", min_size=LEAST_SEGMENT)
    ends: list[int] = search.fit(scaled).predict(pen=_PENALTY * np.log(len(series)))
    return [int(index) for index in ends[:-1]]


def _least_significant(segments: list[Float], noise: float | None, freedom: int) -> int | None:
    """The change point, by number, that the noise explains best; None if it explains none."""
    if len(segments) < 2:
        return None
    if noise is None:
        return 0
    distances = [
        abs(float(after.mean() - before.mean())) / np.sqrt(1 / len(before) + 1 / len(after))
        for before, after in pairwise(segments)
    ]
    least = int(np.argmin(distances))
    if noise == 0:
        return None
    return least if 2 * t_tail(distances[least] / noise, freedom) > SIGNIFICANCE else None
