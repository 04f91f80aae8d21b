# SPDX-License-Identifier: Apache-2.0
"""Calibration of the collective model with measured sweeps, and its error on data left out of it.

A sweep gives the machine's deviation, log(measured / expected) by size.  Between sizes and beyond them it is
the best linear prediction from the two nearest sizes measured (`interpolation`), and between two
rank counts it is interpolated over log ranks.  Away from the measured ranks and sizes, and for another
collective, it shrinks toward 0, so that times return to the model's, and the band grows to that of an
unmeasured machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, Literal

import msgspec
import numpy as np
from numpy.typing import ArrayLike

from cclbench.classify import bus_factor
from cclbench.ground.destination import write_whole
from cclbench.ground.errors import InputError, UsageError
from cclbench.ground.units import MIB
from cclbench.hardware.collectives import Group, NoPrice, Prediction, group_of, price_group
from cclbench.hardware.collectives.cost import Floats
from cclbench.hardware.collectives.price import sizes_of
from cclbench.hardware.deviation import (
    BANDS,
    Deviation,
    DeviationSummary,
    prediction_deviations,
    summarise_deviations,
)
from cclbench.hardware.interpolation import LEAST_SPREAD, interpolate_deviation
from cclbench.hardware.residuals import current_residuals
from cclbench.hardware.sweep import Sweep, merge_sweeps
from cclbench.hardware.system import System

OF_RUN: Final = "calibration.yaml"
"""File name of a run's own copy, beside its card."""
_MOST_ERROR: Final = 1e6
_MOST_BYTES: Final = 16 * MIB


class LeftOut(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """|error| in a size band when that size, or that node count, was left out of the calibration."""

    median: float
    p90: float


class Calibration(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Sweeps of a system, and the leave-one-out errors of the calibration by size and by node count."""

    system: str
    sweeps: tuple[Sweep, ...]
    kind: Literal["calibration"] = "calibration"
    by_size: Mapping[str, LeftOut] = {}
    by_nodes: Mapping[str, LeftOut] = {}

    def __post_init__(self) -> None:
        """`InputError` for an impossible figure."""
        errors = [
            figure
            for band_errors in (*self.by_size.values(), *self.by_nodes.values())
            for figure in (band_errors.median, band_errors.p90)
        ]
        if not all(0 <= error <= _MOST_ERROR for error in errors):
            raise InputError(f"errors by size or by nodes must be between 0 and {_MOST_ERROR:,.0f}")

    def must_be_of(self, system: System) -> None:
        """`UsageError` if it belongs to another system."""
        if system.id != self.system:
            raise UsageError(f"the calibration is for {self.system}, not for {system.id}")

    def price_collective(
        self,
        kind: str,
        size: ArrayLike,
        ranks: Sequence[int],
        system: System,
        *,
        library_version: str | None = None,
        transport: str | None = None,
    ) -> Prediction | NoPrice:
        """Time of a collective on the calibrated system (as `price_collective`); `UsageError` for another."""
        self.must_be_of(system)
        group = group_of(system, ranks, transport=transport)
        if isinstance(group, NoPrice):
            return group
        sizes = sizes_of(kind, size)
        version = library_version or next((sweep.library_version for sweep in self.sweeps), None)
        spec = price_group(kind, sizes, group, library_version=version)
        return spec if isinstance(spec, NoPrice) else self._apply_deviation(group, system, spec)

    def _apply_deviation(self, group: Group, system: System, spec: Prediction) -> Prediction:
        """`spec` corrected by the machine's deviation, from the sweeps of the same tier."""
        tier = [
            (sweep_group, sweep)
            for sweep in self.sweeps
            if isinstance(sweep_group := _sweep_group(sweep, system), Group)
            and (sweep_group.nodes > 1) == (group.nodes > 1)
            if sweep_group.nodes == 1 or sweep_group.per_node == group.per_node
        ]
        pairs = [pair for pair in tier if pair[1].kind == spec.setting.kind] or tier
        if not pairs:
            tiers = "on several nodes" if group.nodes > 1 else "on one node"
            reason = f"the calibration has no sweep of such a group {tiers}: from the catalog alone"
            return replace(spec, reason="; ".join(filter(None, (reason, spec.reason))))
        pairs = [pair for pair in pairs if _is_same_group(*pair, group, spec)] or pairs
        deviation, explained, shared, reason = _expected_deviation(pairs, spec)
        times = spec.time_s * np.exp(deviation)
        if (np.min([_octaves_away(sweep, spec.sizes) for _, sweep in pairs], axis=0) > 1).any():
            reason += "; beyond the measured sizes it returns to the model, with a band that widens"
        missed = _band_half_width(self.by_size, spec.sizes)
        low, high = (
            np.hypot(
                np.maximum(missed, width * shared * np.sqrt(1 - explained)), width * np.sqrt(1 - shared**2)
            )
            for width in current_residuals().band_half_widths(spec.setting, spec.sizes)
        )
        algbw = spec.sizes / times
        return replace(
            spec,
            time_s=times,
            algbw=algbw,
            busbw=algbw * bus_factor(spec.setting.kind, group.ranks),
            low_s=times * np.exp(-low),
            high_s=times * np.exp(high),
            basis="calibrated",
            marks=((),) * len(spec.sizes),
            reason="; ".join(filter(None, (reason, spec.reason))),
        )


def calibrate(sweeps: Sequence[Sweep], system: System) -> Calibration | NoPrice:
    """Calibrate a system by its sweeps, with leave-one-out errors; `NoPrice` if a sweep cannot be priced.

    Sweeps of the same group are merged; `UsageError` if they come from different library releases.
    """
    sweeps = merge_sweeps(sweeps)
    if not sweeps:
        return NoPrice("no sweeps to calibrate with")
    for sweep in sweeps:
        deviations = sweep_deviations(sweep, system)
        if isinstance(deviations, NoPrice):
            return deviations
    by_size = [each for sweep in sweeps for each in _deviations_or_none(left_out_by_size(sweep, system))]
    by_nodes = [
        each for node_deviations in left_out_by_nodes(sweeps, system).values() for each in node_deviations
    ]
    return Calibration(
        system.id, tuple(sweeps), by_size=_errors_by_band(by_size), by_nodes=_errors_by_band(by_nodes)
    )


def must_be_others(sweeps: Iterable[Sweep], calibration_sweeps: Iterable[Sweep]) -> None:
    """`UsageError` if one of the sweeps is among those that the calibration was made from."""
    bare_sweeps = {each.without_origin for each in calibration_sweeps}
    for sweep in sweeps:
        if sweep.without_origin in bare_sweeps:
            hint = "validate with other sweeps; `cclbench hardware calibrate` prints leave-one-out errors"
            raise UsageError(f"{sweep.display_name} is one of the calibration's own sweeps", hint=hint)


def sweep_deviations(
    sweep: Sweep, system: System, calibration: Calibration | None = None, *, transport: str | None = None
) -> list[Deviation] | NoPrice:
    """Deviations of the model from a sweep, from the specification alone or with a calibration.

    `UsageError` if the calibration is for another system.
    """
    if calibration is not None:
        calibration.must_be_of(system)
    group = _sweep_group(sweep, system, transport)
    if isinstance(group, NoPrice):
        return group
    prediction = price_group(sweep.kind, sweep.sizes_bytes, group, library_version=sweep.library_version)
    if isinstance(prediction, Prediction) and calibration is not None:
        prediction = calibration._apply_deviation(group, system, prediction)
    return prediction if isinstance(prediction, NoPrice) else prediction_deviations(sweep, prediction)


def left_out_by_nodes(sweeps: Sequence[Sweep], system: System) -> dict[int, list[Deviation]]:
    """Deviations by node count, each predicted from the others; empty for fewer than two node counts."""
    counts = sorted({sweep.nodes for sweep in sweeps})
    deviations: dict[int, list[Deviation]] = {}
    for nodes in counts if len(counts) > 1 else []:
        others = Calibration(system.id, tuple(sweep for sweep in sweeps if sweep.nodes != nodes))
        outcomes = [sweep_deviations(sweep, system, others) for sweep in sweeps if sweep.nodes == nodes]
        deviations[nodes] = [each for outcome in outcomes for each in _deviations_or_none(outcome)]
    return deviations


def left_out_by_size(sweep: Sweep, system: System) -> list[Deviation] | NoPrice:
    """Deviations by size, each predicted from the sweep's other sizes; empty for a sweep of one size."""
    deviations: list[Deviation] = []
    several = len(sweep.bytes) > 1
    for at in range(len(sweep.bytes)) if several else ():
        others = Calibration(system.id, (sweep.without_size(at),))
        size_sweep = msgspec.structs.replace(
            sweep, bytes=sweep.bytes[at : at + 1], seconds=sweep.seconds[at : at + 1]
        )
        size_deviations = sweep_deviations(size_sweep, system, others)
        if isinstance(size_deviations, NoPrice):
            return size_deviations
        deviations += size_deviations
    return deviations


def read_calibration(path: Path) -> Calibration:
    """Read a calibration from a YAML file; `InputError` if it is not one."""
    import yaml  # lazily: most runs have no calibration

    try:
        with path.open("rb") as file:
            raw = file.read(_MOST_BYTES + 1)
        if len(raw) > _MOST_BYTES:
            raise InputError("is too large for a calibration (16 MiB)", where=str(path))
        return msgspec.convert(yaml.safe_load(raw), Calibration)
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=str(path)) from None
    except InputError as error:
        raise InputError(error.lines, where=str(path), hint=error.hint) from None
    except (yaml.YAMLError, msgspec.ValidationError, RecursionError) as error:
        line = str(error).splitlines()[0] if str(error) else "nested too deeply"
        hint = "write one with `cclbench hardware calibrate`; files of earlier versions must be rewritten"
        raise InputError(f"is not a calibration: {line[:200]}", where=str(path), hint=hint) from None


def write_calibration(calibration: Calibration, path: Path) -> None:
    """Write a calibration as YAML, to keep beside the card."""
    import yaml

    text = yaml.safe_dump(
        msgspec.to_builtins(calibration), sort_keys=False, default_flow_style=None, width=110
    )
    write_whole(f"# Written by `cclbench hardware calibrate`: times in s, sizes in B.\n{text}", path)


def _sweep_group(sweep: Sweep, system: System, transport: str | None = None) -> Group | NoPrice:
    try:
        members = system.group_members(sweep.ranks, sweep.nodes)
    except UsageError:
        return NoPrice(
            f"{sweep.ranks} ranks on {sweep.nodes} nodes do not fit {system.id}, which has"
            f" {system.per_node} per node"
        )
    return group_of(system, members, transport=transport)


def _is_same_group(sweep_group: Group, sweep: Sweep, group: Group, spec: Prediction) -> bool:
    return (sweep_group.ranks, sweep_group.nodes, sweep.kind) == (group.ranks, group.nodes, spec.setting.kind)


def _expected_deviation(
    pairs: Sequence[tuple[Group, Sweep]], spec: Prediction
) -> tuple[Floats, Floats, float, str]:
    """Expected deviation by size, the shares of its variance that sizes and group explain, the reason.

    Between two rank counts it is interpolated over log ranks; beyond the last one it is that one's times the
    share kept so many doublings away; from another collective it is also multiplied by kept.kind.
    """
    kept, setting = current_residuals().kept, spec.setting
    by_ranks: dict[int, list[tuple[Floats, Floats]]] = {}
    for group, sweep in pairs:
        by_ranks.setdefault(group.ranks, []).append(interpolate_deviation(sweep, group, spec.sizes))
    where = np.log2(sorted(by_ranks))
    means = [_weighted_mean(by_ranks[ranks]) for ranks in sorted(by_ranks)]
    at = np.log2(setting.ranks)
    deviation, explained = (
        np.array([np.interp(at, where, column) for column in zip(*figures, strict=True)], np.float64)
        for figures in zip(*means, strict=True)
    )
    shared = float(kept.share_among_ranks(np.abs(where - at).min()))
    outside = float(kept.share_among_ranks(max(where[0] - at, at - where[-1], 0.0)))
    counts = sorted({(group.ranks, group.nodes) for group, _ in pairs})
    reason = (
        "measured among " + ", ".join(f"{ranks} ranks on {nodes}" for ranks, nodes in counts) + " node(s)"
    )
    if setting.ranks not in by_ranks:
        reason += ", carried over by the model"
    kinds = {sweep.kind for _, sweep in pairs}
    if setting.kind not in kinds:
        outside, shared = outside * kept.kind, shared * kept.kind
        reason += f", of {', '.join(sorted(kinds))}"
    return deviation * outside, explained, shared, reason


def _weighted_mean(parts: Sequence[tuple[Floats, Floats]]) -> tuple[Floats, Floats]:
    """Mean of deviations by the shares explained, and the largest of these shares."""
    deviations, explained = np.array(parts).swapaxes(0, 1)
    weights = np.maximum(explained, np.finfo(np.float64).tiny)
    return np.average(deviations, axis=0, weights=weights), explained.max(axis=0)


def _octaves_away(sweep: Sweep, sizes: Floats) -> Floats:
    """Doublings between each size and the nearest size of the sweep."""
    apart = np.log2(np.maximum(sizes, 1.0))[:, None] - np.log2(sweep.sizes_bytes)
    return np.asarray(np.abs(apart).min(axis=1), np.float64)


def _band_half_width(errors: Mapping[str, LeftOut], sizes: Floats) -> Floats:
    """Half-width of the band by size, in log time: the 90th percentile of leave-one-out errors."""
    widths = np.empty(sizes.shape)
    begin = 0.0
    for name, end in BANDS.items():
        band_errors = errors.get(name)
        widths[(sizes >= begin) & (sizes < end)] = (
            LEAST_SPREAD if band_errors is None else max(np.log1p(band_errors.p90), LEAST_SPREAD)
        )
        begin = end
    return widths


def _errors_by_band(deviations: Sequence[Deviation]) -> dict[str, LeftOut]:
    by_band = {
        name: summarise_deviations([each for each in deviations if each.size_band == name]) for name in BANDS
    }
    return {
        name: LeftOut(summary.median, summary.p90)
        for name, summary in by_band.items()
        if isinstance(summary, DeviationSummary)
    }


def _deviations_or_none(outcome: list[Deviation] | NoPrice) -> list[Deviation]:
    return [] if isinstance(outcome, NoPrice) else outcome
