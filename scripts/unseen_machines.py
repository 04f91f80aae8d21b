# SPDX-License-Identifier: Apache-2.0
"""Errors of the collective model on machines that were left out of the learning, system by system."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from public_sweeps import PublicSweep

from cclbench.hardware.calibration import Calibration, sweep_deviations
from cclbench.hardware.catalog import system
from cclbench.hardware.collectives.ratio import ratio_half_widths
from cclbench.hardware.deviation import DeviationSummary, summarise_deviations
from cclbench.hardware.residual_learning import ObservedSweep, learn_residuals, weighted_quantile
from cclbench.hardware.residuals import BANDS, ClassScore, Floats, Residuals, replaced_residuals
from cclbench.hardware.weak_classes import class_names

Indices = NDArray[np.intp]


@dataclass(frozen=True)
class HeldOutErrors:
    """Residual log(measured / predicted), and the band around it, arrays of shape (rows,)."""

    residual: Floats
    low: Floats
    high: Floats

    @property
    def median(self) -> float:
        """Median |predicted / measured − 1|."""
        return float(np.median(np.abs(np.expm1(-self.residual))))

    @property
    def bias(self) -> float:
        """Median log(measured / predicted)."""
        return float(np.median(self.residual))

    @property
    def is_within(self) -> NDArray[np.bool_]:
        """Whether each row is within the band, shape (rows,)."""
        return (self.residual >= -self.low) & (self.residual <= self.high)

    @property
    def within(self) -> float:
        """Share of rows within the band."""
        return float(np.mean(self.is_within))

    @property
    def width(self) -> float:
        """Median ratio of the band's upper to its lower end."""
        return float(np.median(np.exp(self.low + self.high)))


def concatenate_errors(parts: Sequence[HeldOutErrors]) -> HeldOutErrors:
    """Rows of several, concatenated."""
    return HeldOutErrors(
        *(np.concatenate([getattr(part, name) for part in parts]) for name in ("residual", "low", "high"))
    )


def held_out_errors(sweep: ObservedSweep, residuals: Residuals, *, band: int | None = None) -> HeldOutErrors:
    """Errors of a sweep's rows, of one size band or of all, with residuals learned from other systems."""
    chosen = np.full(len(sweep.sizes), True) if band is None else sweep.size_bands == band
    errors = sweep.residual - residuals.log_correction(sweep.setting, sweep.sizes)
    low, high = residuals.band_half_widths(sweep.setting, sweep.sizes)
    return HeldOutErrors(errors[chosen], low[chosen], high[chosen])


class MostRanks(NamedTuple):
    """A machine's sweep with its most ranks, from the catalog alone and calibrated with `fewer` ranks."""

    public: PublicSweep
    observed: ObservedSweep
    fewer: tuple[int, ...]
    catalog: DeviationSummary
    calibrated: DeviationSummary


def most_ranks(
    observed_sweeps: Sequence[tuple[PublicSweep, ObservedSweep]], residuals: Mapping[str, Residuals]
) -> Iterator[MostRanks]:
    """One for every machine with several rank counts; its system is left out of the learning."""
    for machine in dict.fromkeys((public.machine, public.system) for public, _ in observed_sweeps):
        machine_sweeps = [pair for pair in observed_sweeps if (pair[0].machine, pair[0].system) == machine]
        most = max(public.sweep.ranks for public, _ in machine_sweeps)
        fewer = tuple(public.sweep for public, _ in machine_sweeps if public.sweep.ranks < most)
        ranks = tuple(sorted({sweep.ranks for sweep in fewer}))
        name = machine[1]
        for public, observed in machine_sweeps if fewer else ():
            if public.sweep.ranks == most:
                with replaced_residuals(residuals[name]):
                    deviations = [
                        sweep_deviations(public.sweep, system(name), calibration)
                        for calibration in (None, Calibration(name, fewer))
                    ]
                summaries = [
                    summary
                    for rows in deviations
                    if isinstance(rows, list) and (summary := summarise_deviations(rows))
                ]
                yield MostRanks(public, observed, ranks, *summaries)


def residuals_without_system(sweeps: Sequence[ObservedSweep]) -> dict[str, Residuals]:
    """By system, residuals learned from the sweeps of all other systems."""
    systems = dict.fromkeys(sweep.system for sweep in sweeps)
    return {
        system: learn_residuals([sweep for sweep in sweeps if sweep.system != system]) for system in systems
    }


def class_scores(
    sweeps: Sequence[ObservedSweep], residuals: Mapping[str, Residuals]
) -> dict[str, ClassScore]:
    """Scores of the sweeps by class (`class_names`), each by the residuals without its system."""
    classes: dict[str, list[tuple[ObservedSweep, Floats]]] = {}
    for sweep in sweeps:
        errors = held_out_errors(sweep, residuals[sweep.system]).residual
        for name in class_names(sweep.setting):
            classes.setdefault(name, []).append((sweep, np.abs(np.expm1(-errors))))
    return {name: _class_score(classes[name]) for name in sorted(classes)}


def _class_score(own: Sequence[tuple[ObservedSweep, Floats]]) -> ClassScore:
    errors, machines = list[float | None](), list[int]()
    for band in range(len(BANDS)):
        rows = [
            (sweep.machine, each[sweep.size_bands == band])
            for sweep, each in own
            if (sweep.size_bands == band).any()
        ]
        errors.append(round(median_of_machines(rows), 3) if rows else None)
        machines.append(len({machine for machine, _ in rows}))
    return ClassScore(tuple(errors), tuple(machines))


def median_of_machines(rows: Sequence[tuple[str, Floats]]) -> float:
    """The median of all values, in which each machine weighs the same, however many rows it has."""
    count = Counter[str]()
    for machine, values in rows:
        count[machine] += len(values)
    weights = [np.full(len(values), 1 / count[machine]) for machine, values in rows]
    values = np.concatenate([each for _, each in rows])
    return weighted_quantile(values, np.concatenate(weights), 0.5)


class Ratios(NamedTuple):
    """Ratios of two sweeps' times at the sizes of both; `at` are the sizes' indices in each."""

    first: ObservedSweep
    second: ObservedSweep
    at: tuple[Indices, Indices]
    errors: HeldOutErrors


def ratios_between_machines(sweeps: Sequence[ObservedSweep]) -> Iterator[Ratios]:
    """Ratios of two systems' times at sizes that both measured; both systems left out.

    Of the same collective on one node, or on several.
    """
    systems = list(dict.fromkeys(sweep.system for sweep in sweeps))
    for pair in combinations(systems, 2):
        first, second = ([sweep for sweep in sweeps if sweep.system == system] for system in pair)
        comparable = [
            (a, b)
            for a in first
            for b in second
            if (a.setting.several_nodes, a.setting.kind) == (b.setting.several_nodes, b.setting.kind)
        ]
        if comparable:
            residuals = learn_residuals([sweep for sweep in sweeps if sweep.system not in pair])
            for a, b in comparable:
                yield from _ratios(a, b, residuals)


def ratios_between_settings(
    sweeps: Sequence[ObservedSweep], residuals: Mapping[str, Residuals]
) -> Iterator[Ratios]:
    """Ratios of times of one machine, among other ranks or of another collective; its system left out."""
    for a, b in combinations(sweeps, 2):
        if (a.machine, a.setting.several_nodes) == (b.machine, b.setting.several_nodes):
            yield from _ratios(a, b, residuals[a.system])


def _ratios(a: ObservedSweep, b: ObservedSweep, residuals: Residuals) -> Iterator[Ratios]:
    sizes, in_a, in_b = np.intersect1d(a.sizes, b.sizes, return_indices=True)
    if not len(sizes):
        return
    errors = a.residual[in_a] - b.residual[in_b]
    errors -= residuals.log_correction(a.setting, sizes) - residuals.log_correction(b.setting, sizes)
    low, high = ratio_half_widths(residuals, a.setting, sizes, b.setting, sizes)
    yield Ratios(a, b, (in_a, in_b), HeldOutErrors(errors, low, high))
