# SPDX-License-Identifier: Apache-2.0
"""Validation of the model against measured sweeps: its error by sweep and size, and suspect sizes.

from cclbench.hardware import catalog
from cclbench.hardware.validation import validate, validation_rows
from cclbench.sweep_sources import read_sweeps
machine = catalog.system("aws-p5")
checked = validate(read_sweeps(["sweep.csv"], machine).sweeps, machine)
pandas.DataFrame(validation_rows(checked))
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from cclbench.hardware.calibration import Calibration, sweep_deviations
from cclbench.hardware.collectives import NoPrice
from cclbench.hardware.deviation import BANDS, Deviation, DeviationSummary, summarise_deviations
from cclbench.hardware.sweep import Sweep
from cclbench.hardware.system import System

COLUMNS: Final = (
    *("sweep", "collective", "ranks", "nodes", "library_version", "sizes", "count", "median_error"),
    *("p90_error", "within_band", "measured_over_model", "suspect", "basis", "reason"),
)
ALL_SIZES: Final = "all sizes"
*_, _LARGE = BANDS
_SLOW_MESSAGES: Final = "NCCL's protocols LL and LL128 are off, or processes share cores"
_SLOW_NETWORK: Final = (
    "GPUDirect is off and data pass through host memory, interfaces are unused, packets are lost, or TCP"
    " replaces the network's plug-in (with NCCL_DEBUG=INFO each channel prints its interface, GDRDMA with"
    " GPUDirect, and NET/Socket for TCP)"
)
_SLOW_LINKS: Final = (
    "peer-to-peer access is off and data pass through host memory (with NCCL_DEBUG=INFO channels print SHM"
    " instead of P2P), or another job shares the links"
)


@dataclass(frozen=True, slots=True)
class SweepValidation:
    """A sweep compared with the model, or why the model has no price."""

    sweep: Sweep
    deviations: list[Deviation] | NoPrice

    @property
    def size_deviations(self) -> list[Deviation]:
        """Deviations by size; empty if the model has no price."""
        return self.deviations if isinstance(self.deviations, list) else []

    @property
    def deviation_summary(self) -> DeviationSummary | None:
        """Summary over all its sizes; None if the model has no price."""
        return summarise_deviations(self.size_deviations)

    @property
    def by_band(self) -> dict[str, DeviationSummary]:
        """Summary of each size band that was measured."""
        parts = {band: [each for each in self.size_deviations if each.size_band == band] for band in BANDS}
        return {band: summary for band, part in parts.items() if (summary := summarise_deviations(part))}

    @property
    def suspect_bands(self) -> dict[str, DeviationSummary]:
        """Size bands in which the machine cannot have run as specified.

        Each is judged by its own rows: without GPUDirect small messages, most rows of a sweep, are right.
        """
        return {band: summary for band, summary in self.by_band.items() if summary.is_suspect}

    @property
    def suspicion(self) -> str | None:
        """How much slower than predicted the suspect bands are, and a likely cause; None if none is."""
        if not self.suspect_bands:
            return None
        times = ", ".join(
            f"{summary.slower:.1f} times {band}" for band, summary in self.suspect_bands.items()
        )
        return f"suspicious: slower than predicted, {times}; possibly {self._likely_cause()}"

    def _likely_cause(self) -> str:
        """A lack of rate if large messages are slow; else of latency, or of both if none was measured."""
        rate = _SLOW_NETWORK if self.sweep.nodes > 1 else _SLOW_LINKS
        if _LARGE in self.suspect_bands:
            return rate
        return _SLOW_MESSAGES if _LARGE in self.by_band else f"{_SLOW_MESSAGES}; or {rate}"


def validate_sweeps(
    sweeps: Iterable[Sweep],
    system: System,
    calibration: Calibration | None = None,
    *,
    transport: str | None = None,
) -> list[SweepValidation]:
    """Compare each sweep with the model, from the specification alone or with a calibration."""
    return [
        SweepValidation(each, sweep_deviations(each, system, calibration, transport=transport))
        for each in sweeps
    ]


def validation_rows(
    checked: Sequence[SweepValidation], calibration: Calibration | None = None
) -> list[dict[str, Any]]:
    """Rows of `COLUMNS` by sweep and size band, then over all sweeps that are not suspect.

    `suspect` is of the row's sizes; of all sizes, whether any band is.
    """
    blank = dict.fromkeys(COLUMNS) | {"basis": "calibrated" if calibration else "spec"}
    rows: list[dict[str, Any]] = []
    for each in checked:
        sweep = each.sweep
        shared = blank | {
            "sweep": sweep.display_name,
            "collective": sweep.kind,
            "ranks": sweep.ranks,
            "nodes": sweep.nodes,
            "library_version": sweep.library_version,
        }
        if isinstance(each.deviations, NoPrice):
            rows.append(shared | {"reason": each.deviations.reason})
            continue
        reasons = [each.suspicion]
        if calibration is not None and sweep.kind not in {entry.kind for entry in calibration.sweeps}:
            reasons.append(
                f"the calibration has no sweep of {sweep.kind}: deviations of other collectives apply"
            )
        shared["reason"] = "; ".join(filter(None, reasons)) or None
        suspect = {*each.suspect_bands, *([ALL_SIZES] if each.suspect_bands else [])}
        rows += [row | {"suspect": row["sizes"] in suspect} for row in _by_size(shared, each.deviations)]
    if len(checked) > 1:
        sound = [each for each in checked if each.size_deviations and not each.suspect_bands]
        left_out = None if len(sound) == len(checked) else "excludes sweeps that are suspect or have no price"
        together = [deviation for each in sound for deviation in each.size_deviations]
        rows += _by_size(blank | {"reason": left_out}, together)
    return rows


def _by_size(shared: dict[str, Any], deviations: Sequence[Deviation]) -> Iterator[dict[str, Any]]:
    for band in (*BANDS, ALL_SIZES):
        summary = summarise_deviations([each for each in deviations if band in (ALL_SIZES, each.size_band)])
        if summary is not None:
            yield shared | {
                "sizes": band,
                "count": summary.count,
                "median_error": summary.median,
                "p90_error": summary.p90,
                "within_band": summary.within,
                "measured_over_model": summary.slower,
            }
