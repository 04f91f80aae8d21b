# SPDX-License-Identifier: Apache-2.0
"""Validation of the model against measured sweeps: its error by sweep and size.

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


@dataclass(frozen=True, slots=True)
class SweepValidation:
    """A sweep compared with the model, or why the model has no price."""

    sweep: Sweep
    found: list[Deviation] | NoPrice

    @property
    def size_deviations(self) -> list[Deviation]:
        """Deviations by size; empty if the model has no price."""
        return self.found if isinstance(self.found, list) else []

    @property
    def deviation_summary(self) -> DeviationSummary | None:
        """Summary over all its sizes; None if the model has no price."""
        return summarise_deviations(self.size_deviations)

    @property
    def is_suspect(self) -> bool:
        """Whether the machine cannot have run as specified."""
        return (found := self.deviation_summary) is not None and found.is_suspect


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
    """Rows of `COLUMNS` by sweep and size band, then over all sweeps that are not suspect."""
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
        if isinstance(each.found, NoPrice):
            rows.append(shared | {"reason": each.found.reason})
            continue
        if calibration is not None and sweep.kind not in {own.kind for own in calibration.sweeps}:
            shared["reason"] = (
                f"the calibration has no sweep of {sweep.kind}: deviations of other collectives apply"
            )
        rows += _by_size(shared | {"suspect": each.is_suspect}, each.found)
    if len(checked) > 1:
        sound = [each for each in checked if each.size_deviations and not each.is_suspect]
        left_out = None if len(sound) == len(checked) else "excludes sweeps that are suspect or have no price"
        together = [one for each in sound for one in each.size_deviations]
        rows += _by_size(blank | {"reason": left_out}, together)
    return rows


def _by_size(shared: dict[str, Any], found: Sequence[Deviation]) -> Iterator[dict[str, Any]]:
    for band in (*BANDS, ALL_SIZES):
        own = summarise_deviations([each for each in found if band in (ALL_SIZES, each.size_band)])
        if own is not None:
            yield shared | {
                "sizes": band,
                "count": own.count,
                "median_error": own.median,
                "p90_error": own.p90,
                "within_band": own.within,
                "measured_over_model": own.slower,
            }
