# SPDX-License-Identifier: Apache-2.0
"""Errors of the collective model on machines that were left out of the learning, system by system."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple

import numpy as np
from public_sweeps import Public

from cclbench.hardware.calibration import Calibration, sweep_deviations
from cclbench.hardware.catalog import system
from cclbench.hardware.collectives.ratio import ratio_half_widths
from cclbench.hardware.deviation import BANDS, DeviationSummary, summarise_deviations
from cclbench.hardware.residual_learning import ObservedSweep, learn_residuals
from cclbench.hardware.residuals import Floats, Residuals, replaced_residuals

NETWORKS = {
    "ib-verbs": "InfiniBand and RoCE",
    "aws-ofi-nccl": "EFA",
    "cxi": "Slingshot",
    "tcpx": "TCPX and TCPXO",
    "tcpxo": "TCPX and TCPXO",
}


@dataclass(frozen=True)
class Missed:
    """Residual log(measured / predicted), and the band around it, arrays of shape (rows,)."""

    left: Floats
    low: Floats
    high: Floats

    @property
    def count(self) -> int:
        """Number of rows."""
        return len(self.left)

    @property
    def median(self) -> float:
        """Median |predicted / measured − 1|."""
        return float(np.median(np.abs(np.expm1(-self.left))))

    @property
    def slower(self) -> float:
        """Share of rows that took longer than predicted."""
        return float(np.mean(self.left > 0))

    @property
    def bias(self) -> float:
        """Median log(measured / predicted)."""
        return float(np.median(self.left))

    @property
    def within(self) -> float:
        """Share of rows within the band."""
        return float(np.mean((self.left >= -self.low) & (self.left <= self.high)))

    @property
    def width(self) -> float:
        """Median ratio of the band's upper to its lower end."""
        return float(np.median(np.exp(self.low + self.high)))


def together(parts: Sequence[Missed]) -> Missed:
    """Rows of several, concatenated."""
    return Missed(
        *(np.concatenate([getattr(part, name) for part in parts]) for name in ("left", "low", "high"))
    )


def missed(own: ObservedSweep, by: Residuals, *, band: int | None = None) -> Missed:
    """Errors of a sweep's rows, of one size band or of all, with residuals learned from other systems."""
    chosen = np.full(len(own.sizes), True) if band is None else own.size_bands == band
    left = own.residual - by.log_correction(own.setting, own.sizes)
    low, high = by.band_half_widths(own.sizes)
    return Missed(left[chosen], low[chosen], high[chosen])


class MostRanks(NamedTuple):
    """A machine's sweep with its most ranks, from the catalog alone and calibrated with `fewer` ranks."""

    public: Public
    beside: ObservedSweep
    fewer: tuple[int, ...]
    catalog: DeviationSummary
    calibrated: DeviationSummary


def most_ranks(
    known: Sequence[tuple[Public, ObservedSweep]], by: Mapping[str, Residuals]
) -> Iterator[MostRanks]:
    """One for every machine with several rank counts; its system is left out of the learning."""
    for machine in dict.fromkeys((public.machine, public.system) for public, _ in known):
        own = [each for each in known if (each[0].machine, each[0].system) == machine]
        most = max(public.sweep.ranks for public, _ in own)
        fewer = tuple(public.sweep for public, _ in own if public.sweep.ranks < most)
        ranks = tuple(sorted({sweep.ranks for sweep in fewer}))
        name = machine[1]
        for public, beside in own if fewer else ():
            if public.sweep.ranks == most:
                with replaced_residuals(by[name]):
                    both = [
                        sweep_deviations(public.sweep, system(name), one)
                        for one in (None, Calibration(name, fewer))
                    ]
                summaries = [
                    found for each in both if isinstance(each, list) and (found := summarise_deviations(each))
                ]
                yield MostRanks(public, beside, ranks, *summaries)


def left_out(sweeps: Sequence[ObservedSweep]) -> dict[str, Residuals]:
    """By system, residuals learned from the sweeps of all other systems."""
    systems = dict.fromkeys(own.system for own in sweeps)
    return {system: learn_residuals([own for own in sweeps if own.system != system]) for system in systems}


def machine_class(own: ObservedSweep) -> str:
    """Vendor of the accelerator, and a single node or the network software."""
    setting = own.setting
    maker = "AMD" if own.system.startswith("mi") else "NVIDIA"
    return f"{maker}, {NETWORKS[setting.network] if setting.several_nodes else 'one node'}"


def between_machines(sweeps: Sequence[ObservedSweep]) -> Iterator[tuple[int, Missed]]:
    """Ratios of the times of two systems at sizes that both measured, by size band; both left out.

    Of the same collective on one node, or on several.
    """
    systems = list(dict.fromkeys(own.system for own in sweeps))
    for pair in combinations(systems, 2):
        known = [[own for own in sweeps if own.system == system] for system in pair]
        alike = [
            (a, b)
            for a in known[0]
            for b in known[1]
            if (a.setting.several_nodes, a.setting.kind) == (b.setting.several_nodes, b.setting.kind)
        ]
        if alike:
            by = learn_residuals([own for own in sweeps if own.system not in pair])
            for a, b in alike:
                yield from _ratios(a, b, by)


def between_settings(
    sweeps: Sequence[ObservedSweep], by: dict[str, Residuals]
) -> Iterator[tuple[int, Missed]]:
    """Ratios of times of one machine, among other ranks or of another collective; its system left out."""
    for a, b in combinations(sweeps, 2):
        if (a.machine, a.setting.several_nodes) == (b.machine, b.setting.several_nodes):
            yield from _ratios(a, b, by[a.system])


def _ratios(a: ObservedSweep, b: ObservedSweep, by: Residuals) -> Iterator[tuple[int, Missed]]:
    both, at, of = np.intersect1d(a.sizes, b.sizes, return_indices=True)
    if not len(both):
        return
    left = a.residual[at] - b.residual[of]
    left -= by.log_correction(a.setting, both) - by.log_correction(b.setting, both)
    low, high = ratio_half_widths(by, a.setting, both, b.setting, both)
    for band in range(len(BANDS)):
        chosen = a.size_bands[at] == band
        if chosen.any():
            yield band, Missed(left[chosen], low[chosen], high[chosen])
