# SPDX-License-Identifier: Apache-2.0
"""Calibration of the collective model by measured sweeps, and how good it is without what it was given.

Three parameters of the machine (launch, step latencies, rates) are fitted to all sweeps; what is left is
a ratio measured / modelled by size.  A group that was swept is interpolated in log time over log size,
piecewise linearly, so monotone between points.  Another node count takes the ratio interpolated over log
nodes, and physics from the model: latency, steps and shares of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Final, Literal

import msgspec
import numpy as np
from numpy.typing import ArrayLike

from cclbench.classify import bus_factor
from cclbench.destination import write_whole
from cclbench.errors import InputError, UsageError
from cclbench.hardware.collectives import Group, Prediction, Refusal, costs, group_of, price_group
from cclbench.hardware.collectives.cost import EXPECTED, Assumed, Floats
from cclbench.hardware.collectives.price import sizes_of
from cclbench.hardware.deviation import BANDS, Deviation, Summary, compared, summary
from cclbench.hardware.sweep import Sweep, merged
from cclbench.hardware.system import System
from cclbench.units import MIB

OF_RUN: Final = "calibration.yaml"
"""What a run calls its copy, beside its card."""
_LAUNCH_S: Final = (0.0, 1e-6, 2e-6, 4e-6, 6e-6, 9e-6, 13e-6, 18e-6)
_LATENCY: Final = (0.7, 0.8, 0.9, 1.0, 1.1, 1.25, 1.5)
_RATE: Final = (0.85, 0.9, 0.95, 1.0, 1.05)
# Half-width of the band in log time: at least that by which runs of one machine differ (Alps with another
# release of its plug-in: 1 to 2 %, machines of one kind more); a factor of two where nothing is known.
_LEAST_SPREAD: Final = 0.05
_NO_ERRORS_SPREAD: Final = float(np.log(2.0))
_SPREAD_A_DOUBLING: Final = _NO_ERRORS_SPREAD / 10
_MOST_SPREAD: Final = float(np.log(100.0))
_MOST_LAUNCH_S: Final = 1.0
_MOST_FACTOR: Final = 100.0
_MOST_ERROR: Final = 1e6
_MOST_BYTES: Final = 16 * MIB


class LeftOut(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """|error| in a size band when that size, or that node count, was left out of the calibration."""

    median: float
    p90: float


class Calibration(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What sweeps say of a system; `by_size` and `by_nodes` are its errors without what it was given."""

    system: str
    launch_s: float
    latency: float
    rate: float
    sweeps: tuple[Sweep, ...]
    kind: Literal["calibration"] = "calibration"
    by_size: Mapping[str, LeftOut] = {}
    by_nodes: Mapping[str, LeftOut] = {}

    def __post_init__(self) -> None:
        """`InputError` where a figure cannot be one."""
        if not 0 <= self.launch_s <= _MOST_LAUNCH_S:
            raise InputError(f"launch_s is not between 0 and {_MOST_LAUNCH_S} s")
        if not (0 < self.latency <= _MOST_FACTOR and 0 < self.rate <= _MOST_FACTOR):
            raise InputError(f"latency and rate are not factors above 0 and at most {_MOST_FACTOR:g}")
        errors = [
            figure
            for own in (*self.by_size.values(), *self.by_nodes.values())
            for figure in (own.median, own.p90)
        ]
        if not all(0 <= error <= _MOST_ERROR for error in errors):
            raise InputError("errors by size or nodes are not shares from 0 on")

    @property
    def assumed(self) -> Assumed:
        """The fitted parameters."""
        return Assumed(self.launch_s, self.latency, self.rate, edge=EXPECTED.edge)

    def must_be_of(self, system: System) -> None:
        """`UsageError` where it is of another system."""
        if system.id != self.system:
            raise UsageError(f"the calibration is of {self.system}, not of {system.id}")

    def price(
        self,
        kind: str,
        size: ArrayLike,
        ranks: Sequence[int],
        system: System,
        *,
        library_version: str | None = None,
        transport: str | None = None,
    ) -> Prediction | Refusal:
        """Time of a collective on the calibrated system: see `price`; `UsageError` of another system."""
        self.must_be_of(system)
        group = group_of(system, ranks, transport=transport)
        if isinstance(group, Refusal):
            return group
        sizes = sizes_of(kind, size)
        spec = price_group(kind, sizes, group, library_version=library_version)
        return spec if isinstance(spec, Refusal) else self._carried(kind, sizes, group, system, spec)

    def _carried(
        self, kind: str, sizes: Floats, group: Group, system: System, spec: Prediction
    ) -> Prediction:
        """`spec` with times that the sweeps carry."""
        known = [
            (own, sweep)
            for sweep in self.sweeps
            if sweep.kind == kind and isinstance(own := _group(sweep, system), Group)
            if own.per_node == group.per_node and (own.nodes > 1) == (group.nodes > 1)
        ]
        version = next((sweep.library_version for _, sweep in known), None)
        modelled = _modelled(kind, sizes, group, self.assumed, version)
        exact = next((sweep for own, sweep in known if own.nodes == group.nodes), None)
        if exact is not None:
            log_ratio = _log_ratio(exact, sizes, group, self.assumed)
            times, errors = _interpolated(exact, sizes, modelled, log_ratio), self.by_size
            reason = f"measured among {exact.ranks} ranks on {exact.nodes} node(s)"
        elif known:
            known.sort(key=lambda pair: pair[0].nodes)
            ratios = np.array([_log_ratio(sweep, sizes, own, self.assumed) for own, sweep in known])
            where = np.log2([own.nodes for own, _ in known])
            at = np.log2(group.nodes)
            between = [np.interp(at, where, column) for column in ratios.T]
            times, errors = modelled * np.exp(between), self.by_nodes
            reason = (
                f"measured on {', '.join(str(own.nodes) for own, _ in known)} nodes, carried by the model"
            )
        else:
            times, errors = modelled, self.by_nodes
            reason = "fitted to other groups of the system"
        beyond = _octaves_beyond([sweep for _, sweep in known], sizes)
        if beyond.any():
            reason += (
                "; beyond the sizes that were measured the model's course, less surely with each doubling"
            )
        spread = np.exp(np.minimum(_spread(errors, sizes) + beyond * _SPREAD_A_DOUBLING, _MOST_SPREAD))
        algbw = sizes / times
        return Prediction(
            time_s=times,
            algbw=algbw,
            busbw=algbw * bus_factor(kind, group.ranks),
            low_s=times / spread,
            high_s=times * spread,
            algorithm=spec.algorithm,
            protocol=spec.protocol,
            basis="calibrated",
            reason="; ".join((reason, *group.assumptions)),
        )


def calibrate(sweeps: Sequence[Sweep], system: System) -> Calibration | Refusal:
    """The calibration of a system by its sweeps, with its leave-one-out errors; why not, where none fits.

    Sweeps of one group are merged; `UsageError` where they are of several releases of the library.
    """
    sweeps = merged(sweeps)
    fitted = _fitted(sweeps, system)
    if isinstance(fitted, Refusal):
        return fitted
    by_size = [each for sweep in sweeps for each in _deviations(left_out_by_size(sweep, system))]
    by_nodes = [each for found in left_out_by_nodes(sweeps, system).values() for each in found]
    return msgspec.structs.replace(fitted, by_size=_errors(by_size), by_nodes=_errors(by_nodes))


def must_be_others(sweeps: Iterable[Sweep], given: Iterable[Sweep]) -> None:
    """`UsageError` where one of the sweeps is among those `given` to the calibration that predicts it."""
    known = {each.figures for each in given}
    for sweep in sweeps:
        if sweep.figures in known:
            hint = "compare other sweeps; `cclbench hardware calibrate` prints what it misses when left out"
            raise UsageError(f"{sweep.name} is among what the model is calibrated by", hint=hint)


def deviations(
    sweep: Sweep, system: System, calibration: Calibration | None = None, *, transport: str | None = None
) -> list[Deviation] | Refusal:
    """How far the model is from a sweep, by its specification alone or calibrated by others.

    `UsageError` of a calibration of another system.
    """
    if calibration is not None:
        calibration.must_be_of(system)
    group = _group(sweep, system, transport)
    if isinstance(group, Refusal):
        return group
    found = price_group(sweep.kind, sweep.sizes, group, library_version=sweep.library_version)
    if isinstance(found, Prediction) and calibration is not None:
        found = calibration._carried(sweep.kind, sweep.sizes, group, system, found)
    return found if isinstance(found, Refusal) else compared(sweep, found)


def left_out_by_nodes(sweeps: Sequence[Sweep], system: System) -> dict[int, list[Deviation]]:
    """Deviations by node count of sweeps that the others predict; empty of fewer than two node counts."""
    counts = sorted({sweep.nodes for sweep in sweeps})
    found: dict[int, list[Deviation]] = {}
    for nodes in counts if len(counts) > 1 else []:
        fitted = _fitted([sweep for sweep in sweeps if sweep.nodes != nodes], system)
        if isinstance(fitted, Refusal):
            continue
        own = [deviations(sweep, system, fitted) for sweep in sweeps if sweep.nodes == nodes]
        found[nodes] = [each for one in own for each in _deviations(one)]
    return found


def left_out_by_size(sweep: Sweep, system: System) -> list[Deviation] | Refusal:
    """Deviations of a sweep's sizes, each predicted by the sweep's others; none of a sweep of one size."""
    found: list[Deviation] = []
    last = len(sweep.bytes) - 1
    for at in range(last + 1) if last else ():
        others = (sweep.without(at),)
        # Between its neighbours a size is interpolated: parameters only count beyond the ends.
        fitted: Calibration | Refusal = Calibration(
            system.id, EXPECTED.launch_s, EXPECTED.latency, EXPECTED.rate, others
        )
        if at in (0, last):
            fitted = _fitted(others, system)
        if isinstance(fitted, Refusal):
            return fitted
        one = msgspec.structs.replace(
            sweep, bytes=sweep.bytes[at : at + 1], seconds=sweep.seconds[at : at + 1]
        )
        found += _deviations(deviations(one, system, fitted))
    return found


def read_calibration(path: Path) -> Calibration:
    """The calibration in a YAML file; `InputError` where it is none."""
    import yaml  # lazily: most runs have none

    try:
        with path.open("rb") as file:
            raw = file.read(_MOST_BYTES + 1)
        if len(raw) > _MOST_BYTES:
            raise InputError("is too large for a calibration (16 MiB)", where=str(path))
        return msgspec.convert(yaml.safe_load(raw), Calibration)
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=str(path)) from None
    except InputError as error:
        raise InputError(error.what, where=str(path), hint=error.hint) from None
    except (yaml.YAMLError, msgspec.ValidationError, RecursionError) as error:
        line = str(error).splitlines()[0] if str(error) else "nested too deeply"
        raise InputError(f"is no calibration: {line[:200]}", where=str(path)) from None


def write_calibration(calibration: Calibration, path: Path) -> None:
    """Write it as YAML, to keep beside the card."""
    import yaml

    text = yaml.safe_dump(
        msgspec.to_builtins(calibration), sort_keys=False, default_flow_style=None, width=110
    )
    write_whole(f"# Written by `cclbench hardware calibrate`: times in s, sizes in B.\n{text}", path)


def _fitted(sweeps: Sequence[Sweep], system: System) -> Calibration | Refusal:
    """Parameters with the least mean |log error| over the sweeps, each counted alike."""
    if not sweeps:
        return Refusal("there is no sweep to calibrate by")
    grid = [Assumed(*each, edge=EXPECTED.edge) for each in product(_LAUNCH_S, _LATENCY, _RATE)]
    errors = np.zeros(len(grid))
    for sweep in sweeps:
        group = _group(sweep, system)
        if isinstance(group, Refusal):
            return group
        measured = np.log(sweep.times)
        for i, assumed in enumerate(grid):
            modelled = _modelled(sweep.kind, sweep.sizes, group, assumed, sweep.library_version)
            errors[i] += np.abs(np.log(modelled) - measured).mean()
    best = grid[int(errors.argmin())]
    return Calibration(system.id, best.launch_s, best.latency, best.rate, tuple(sweeps))


def _group(sweep: Sweep, system: System, transport: str | None = None) -> Group | Refusal:
    try:
        members = system.members(sweep.ranks, sweep.nodes)
    except UsageError:
        return Refusal(
            f"{sweep.ranks} ranks on {sweep.nodes} nodes do not fit {system.id} of {system.per_node} a node"
        )
    return group_of(system, members, transport=transport)


def _modelled(kind: str, sizes: Floats, group: Group, assumed: Assumed, version: str | None) -> Floats:
    """Time of the fastest by size, s; `UsageError` where nothing applies, which callers have ruled out."""
    found = costs(kind, group, assumed, version)
    if not found:
        raise UsageError(f"no algorithm known here does {kind} among {group.ranks} ranks")
    return np.asarray(np.min([cost.time_s(sizes) for cost in found], axis=0), np.float64)


def _log_ratio(sweep: Sweep, sizes: Floats, group: Group, assumed: Assumed) -> Floats:
    """log(measured / modelled) by size; beyond the sweep's ends that of the end."""
    modelled = _modelled(sweep.kind, sweep.sizes, group, assumed, sweep.library_version)
    return np.interp(np.log(np.maximum(sizes, 1.0)), np.log(sweep.sizes), np.log(sweep.times / modelled))


def _interpolated(sweep: Sweep, sizes: Floats, modelled: Floats, log_ratio: Floats) -> Floats:
    """Measured times in between, the model's course with the end's ratio beyond."""
    inside = (sizes >= sweep.bytes[0]) & (sizes <= sweep.bytes[-1])
    between = np.interp(np.log(np.maximum(sizes, 1.0)), np.log(sweep.sizes), np.log(sweep.times))
    return np.where(inside, np.exp(between), modelled * np.exp(log_ratio))


def _octaves_beyond(known: Sequence[Sweep], sizes: Floats) -> Floats:
    """Doublings between each size and the sizes that any of the sweeps has; 0 of none."""
    if not known:
        return np.zeros(sizes.shape)
    least, most = min(sweep.bytes[0] for sweep in known), max(sweep.bytes[-1] for sweep in known)
    size = np.maximum(sizes, 1.0)
    return np.asarray(np.log2(np.maximum(np.maximum(least / size, size / most), 1.0)), np.float64)


def _spread(errors: Mapping[str, LeftOut], sizes: Floats) -> Floats:
    """Half-width of the band by size, in log time: what leaving out missed in nine of ten cases."""
    widths = np.empty(sizes.shape)
    begin = 0.0
    for name, end in BANDS.items():
        known = errors.get(name)
        widths[(sizes >= begin) & (sizes < end)] = (
            _NO_ERRORS_SPREAD if known is None else max(np.log1p(known.p90), _LEAST_SPREAD)
        )
        begin = end
    return widths


def _errors(found: Sequence[Deviation]) -> dict[str, LeftOut]:
    by_band = {name: summary([each for each in found if each.band == name]) for name in BANDS}
    return {name: LeftOut(own.median, own.p90) for name, own in by_band.items() if isinstance(own, Summary)}


def _deviations(found: list[Deviation] | Refusal) -> list[Deviation]:
    return [] if isinstance(found, Refusal) else found
