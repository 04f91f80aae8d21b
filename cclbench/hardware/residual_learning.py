# SPDX-License-Identifier: Apache-2.0
"""Learning residuals from sweeps: robust (rank-based) statistics, medians shrunk by how far machines agree.

A *unit* is one collective of one machine, on one node or on several: the mean over its sweeps of the median
log(measured / formula) in a size band.  All units weigh the same, however many sizes were swept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from statistics import fmean, median
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from cclbench.hardware.collectives.price import Prediction
from cclbench.hardware.deviation import BANDS
from cclbench.hardware.residuals import Floats, KeptShares, Residuals, ResidualSetting
from cclbench.hardware.sweep import Sweep

TAIL: Final = 0.1
"""Share of machines expected beyond each end of a band: four in five are within."""
LEAST_SYSTEMS: Final = 5
"""Systems that a regime needs for a figure: fewer would only describe those systems."""
_LEVELS: Final = 4
_MOST_OCTAVES: Final = 3
"""Doublings of the ranks up to which a share is learned: no two machines were swept farther apart."""
_MOST_SIZE_OCTAVES: Final = 4
"""Doublings of the size up to which a share is learned: beyond, another algorithm or protocol runs."""
_LEAST_MACHINES: Final = 2
"""Machines that must have been swept so many doublings apart: one alone shows only its own behaviour."""
# The variance of a median of n normal values is π/2 times that of their mean.
_OF_MEDIANS: Final = np.pi / 2
# Standard deviation / median absolute deviation of a normal distribution.
_OF_DEVIATIONS: Final = 1.4826


@dataclass(frozen=True)
class ObservedSweep:
    """A sweep compared with the formulas: log(measured / formula) by size, B; arrays of shape (sizes,)."""

    name: str
    machine: str
    system: str
    setting: ResidualSetting
    sizes: Floats
    residual: Floats

    @cached_property
    def size_bands(self) -> np.ndarray[tuple[int], np.dtype[np.intp]]:
        """Index into `BANDS` of each size's band."""
        return np.searchsorted([*BANDS.values()], self.sizes, side="right")

    @cached_property
    def band_medians(self) -> tuple[float | None, ...]:
        """Median residual in each of `BANDS`; None for bands without sizes."""
        chosen = [self.residual[self.size_bands == band] for band in range(len(BANDS))]
        return tuple(float(np.median(residuals)) if len(residuals) else None for residuals in chosen)

    @property
    def counted_unit(self) -> tuple[str, bool, str]:
        """The unit: the machine, whether over several nodes, the collective."""
        return self.machine, self.setting.several_nodes, self.setting.kind


def observe_sweep(
    name: str, machine: str, system: str, sweep: Sweep, prediction: Prediction
) -> ObservedSweep:
    """A sweep compared with its prediction's formulas."""
    residual = np.log(sweep.times_s / prediction.formula_s)
    return ObservedSweep(name, machine, system, prediction.setting, sweep.sizes_bytes, residual)


def learn_residuals(sweeps: Sequence[ObservedSweep]) -> Residuals:
    """Learn the table; spreads come from systems left out one at a time, so bands hold for unseen ones."""
    inside = [sweep for sweep in sweeps if not sweep.setting.between_domains]
    centre = _regime_medians(inside)
    low, high = _left_out_tails(inside)
    without = Residuals(centre, low, high, KeptShares((), 0.0, ()))
    return Residuals(centre, low, high, _kept_shares(inside, without), largest_between_domains(sweeps))


def largest_between_domains(sweeps: Sequence[ObservedSweep]) -> float:
    """The largest |log(measured / formula)| between scale-up domains of several nodes; 0 without any.

    Two machines are too few for a centre: in neither does the other's deviation recur.
    """
    maxima = [np.abs(sweep.residual).max() for sweep in sweeps if sweep.setting.between_domains]
    return round(float(max(maxima, default=0.0)), 4)


def shrunk_medians(medians: Floats, counts: NDArray[Any], variances: Floats) -> Floats:
    """Medians of regimes, each shrunk toward 0 by τ² / (τ² + its own variance).

    A median of n units with variance s² has the variance v = π/2 · s² / n; the medians' scatter beyond that
    is τ² = max(0, mean(median² − v)).
    """
    if not len(medians):
        return medians
    sampling_variances = _OF_MEDIANS * variances / counts
    between = max(0.0, float(np.mean(medians**2 - sampling_variances)))
    return np.asarray(medians * between / np.maximum(between + sampling_variances, 1e-300), np.float64)


def _regime_medians(sweeps: Sequence[ObservedSweep]) -> dict[str, tuple[float, ...]]:
    """Shrunk medians by regime, level by level: each level explains what the wider ones left over."""
    units: dict[tuple[str, bool, str], list[ObservedSweep]] = {}
    for sweep in sweeps:
        units.setdefault(sweep.counted_unit, []).append(sweep)
    by_regime: dict[str, list[float]] = {}
    for band in range(len(BANDS)):
        pairs = [
            (unit[0], fmean(medians))
            for unit in units.values()
            if (medians := [middle for sweep in unit if (middle := sweep.band_medians[band]) is not None])
        ]
        for level in range(_LEVELS):
            pairs = [(sweep, left) for sweep, left in pairs if len(sweep.setting.regime_names) > level]
            names = [sweep.setting.regime_names[level] for sweep, _ in pairs]
            figures = _explained_medians(
                [left for _, left in pairs], names, [sweep.system for sweep, _ in pairs]
            )
            pairs = [(sweep, left - figures[name]) for (sweep, left), name in zip(pairs, names, strict=True)]
            for name, figure in figures.items():
                by_regime.setdefault(name, [0.0] * len(BANDS))[band] = round(figure, 4) + 0.0
    return {name: tuple(figures) for name, figures in by_regime.items() if any(figures)}


def _explained_medians(
    values: Sequence[float], names: Sequence[str], systems: Sequence[str]
) -> dict[str, float]:
    """The shrunk median of each regime; its variance is the larger of its own units' and of all units'."""
    regimes: dict[str, list[float]] = {name: [] for name in names}
    for value, name in zip(values, names, strict=True):
        regimes[name].append(value)
    middle = {name: median(members) for name, members in regimes.items()}
    off = {name: [abs(value - middle[name]) for value in members] for name, members in regimes.items()}
    every = median(distance for distances in off.values() for distance in distances) if off else 0.0
    several = [
        name
        for name in regimes
        if len({system for system, regime in zip(systems, names, strict=True) if regime == name})
        >= LEAST_SYSTEMS
    ]
    figures = shrunk_medians(
        np.array([middle[name] for name in several], np.float64),
        np.array([len(regimes[name]) for name in several], np.float64),
        np.array([(_OF_DEVIATIONS * max(median(off[name]), every)) ** 2 for name in several], np.float64),
    )
    return dict.fromkeys(regimes, 0.0) | dict(zip(several, figures.tolist(), strict=True))


def _left_out_tails(sweeps: Sequence[ObservedSweep]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Tails of the residuals of left-out systems, by size band; all units weigh the same.

    With n units, a new one is expected beyond the (n + 1)(1 − `TAIL`)-th of them in one of ten cases.
    """
    systems = dict.fromkeys(sweep.system for sweep in sweeps)
    missed: list[tuple[ObservedSweep, Floats]] = []
    for system in systems:
        rest = [sweep for sweep in sweeps if sweep.system != system]
        by = Residuals(_regime_medians(rest), (), (), KeptShares((), 0.0, ()))
        missed += [
            (sweep, sweep.residual - by.log_correction(sweep.setting, sweep.sizes))
            for sweep in sweeps
            if sweep.system == system
        ]
    low, high = [], []
    for band in range(len(BANDS)):
        rows = [
            (sweep.counted_unit, miss[sweep.size_bands == band])
            for sweep, miss in missed
            if (sweep.size_bands == band).any()
        ]
        count = {unit: sum(len(miss) for other, miss in rows if other == unit) for unit, _ in rows}
        values = np.concatenate([miss for _, miss in rows])
        weights = np.concatenate([np.full(len(miss), 1 / count[unit]) for unit, miss in rows])
        tail = max(TAIL - (1 - TAIL) / len(count), 0.0)
        low.append(round(max(-weighted_quantile(values, weights, tail), 0.0), 4))
        high.append(round(max(weighted_quantile(values, weights, 1 - tail), 0.0), 4))
    return tuple(low), tuple(high)


def _kept_shares(sweeps: Sequence[ObservedSweep], by: Residuals) -> KeptShares:
    """Slopes k, 0 to 1, that minimise Σ |y − k x| over pairs of deviations of one machine.

    The share kept never grows with further doublings of the ranks or the size.
    """
    left = []
    for sweep in sweeps:
        deviation = sweep.residual - by.log_correction(sweep.setting, sweep.sizes)
        left.append((sweep, dict(zip(sweep.sizes.tolist(), deviation.tolist(), strict=True))))

    def pair_slope(alike: Callable[[ObservedSweep, ObservedSweep], bool], least_machines: int = 1) -> float:
        pairs = list[tuple[float, float]]()
        machines = set[str]()
        for a, a_by_size in left:
            for b, b_by_size in left:
                if a is b or (a.machine, a.setting.several_nodes) != (b.machine, b.setting.several_nodes):
                    continue
                if alike(a, b) and (both := a_by_size.keys() & b_by_size.keys()):
                    pairs += [(a_by_size[size], b_by_size[size]) for size in both]
                    machines.add(a.machine)
        return median_slope(pairs) if len(machines) >= least_machines else 0.0

    def other_kind(a: ObservedSweep, b: ObservedSweep) -> bool:
        return a.setting.kind != b.setting.kind and a.setting.ranks == b.setting.ranks

    def are_apart(octaves: int, a: ObservedSweep, b: ObservedSweep) -> bool:
        ratio = a.setting.ranks / b.setting.ranks
        return a.setting.kind == b.setting.kind and ratio in (2.0**octaves, 2.0**-octaves)

    ranks = list[float]()
    for octaves in range(1, _MOST_OCTAVES + 1):
        share = pair_slope(partial(are_apart, octaves), _LEAST_MACHINES)
        ranks.append(round(min(share, *ranks, 1.0), 3))
    sizes = list[float]()
    for octaves in range(1, _MOST_SIZE_OCTAVES + 1):
        far = 2.0**octaves
        both = [
            (by_size[s], by_size[t])
            for _, by_size in left
            for s in by_size
            for t in (s / far, s * far)
            if t in by_size
        ]
        sizes.append(round(min(median_slope(both), *sizes, 1.0), 3))
    return KeptShares(tuple(ranks), round(pair_slope(other_kind), 3), tuple(sizes))


def median_slope(pairs: Sequence[tuple[float, float]]) -> float:
    """k in [0, 1] that minimises Σ |y − k x|: the median of y / x with weights |x|; 0 without pairs."""
    x, y = np.array(pairs, np.float64).reshape(-1, 2).T
    x, y = x[x != 0], y[x != 0]
    if not len(x):
        return 0.0
    order = np.argsort(y / x)
    passed = np.cumsum(np.abs(x)[order])
    return float(np.clip((y / x)[order][np.searchsorted(passed, passed[-1] / 2)], 0.0, 1.0))


def weighted_quantile(values: Floats, weights: Floats, share: float) -> float:
    """Weighted quantile, interpolated; each value stands at the middle of its weight."""
    order = np.argsort(values)
    passed = np.cumsum(weights[order]) - weights[order] / 2
    return float(np.interp(share, passed / weights.sum(), values[order]))
