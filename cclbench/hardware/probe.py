# SPDX-License-Identifier: Apache-2.0
"""Benchmarks that make a machine's predictions more certain: the few that narrow the bands most.

The band after a benchmark is that of a calibration by the benchmark's sizes; it depends on the outcome only
where deviations contradict one another, and is wider there.  Commands are chosen one after another, each the
one that narrows the bands of all targets most.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Final

import numpy as np

from cclbench.ground.errors import InputError, UsageError
from cclbench.ground.units import GIB, KIB, MIB
from cclbench.hardware.calibration import Calibration
from cclbench.hardware.collectives import NoPrice, Prediction, price_collective
from cclbench.hardware.deviation import BANDS
from cclbench.hardware.sweep import Sweep
from cclbench.hardware.system import System

PROGRAMS: Final = {
    "all_reduce": "all_reduce_perf",
    "all_gather": "all_gather_perf",
    "reduce_scatter": "reduce_scatter_perf",
    "all_to_all": "alltoall_perf",
    "broadcast": "broadcast_perf",
    "reduce": "reduce_perf",
    "send_recv": "sendrecv_perf",
}
"""Programs of nccl-tests and rccl-tests, by collective."""
KINDS: Final = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
"""Collectives whose bands are narrowed unless others are asked for."""
COLUMNS: Final = ("collective", "ranks", "nodes", "sizes", "before", "after")
_SIZES: Final = np.array([2.0**power for power in range(3, 33)], np.float64)
"""Sizes of the targets: 8 B to 4 GiB."""
_COUNT: Final = 4
_WINDOWS: Final = tuple(
    (first, factor)
    for first, factor in product((8, KIB, 64 * KIB, 4 * MIB), (8, 32, 64))
    if first * factor ** (_COUNT - 1) <= 4 * GIB
)
_LIBRARIES: Final = ("volta", "ampere", "hopper", "blackwell", "amd")
_LEAST_GAIN: Final = 0.01
"""Reduction of the mean log width below which another command is not worth its time."""

_EQUAL: Final = 1e-9
"""Gains that differ by less are equal: the collective named first is measured."""


@dataclass(frozen=True, slots=True)
class ProbeCommand:
    """A benchmark of nccl-tests: `count` sizes from `first` on, B, each `factor` times the one before."""

    kind: str
    ranks: int
    nodes: int
    first: int
    factor: int
    count: int = _COUNT

    @property
    def sizes(self) -> tuple[int, ...]:
        """Sizes measured, B."""
        return tuple(self.first * self.factor**at for at in range(self.count))

    @property
    def program(self) -> str:
        """Name of the program in nccl-tests."""
        return PROGRAMS[self.kind]

    @property
    def arguments(self) -> tuple[str, ...]:
        """The command's words: one process for a node, one for each rank of several nodes."""
        sizes = ("-b", str(self.sizes[0]), "-e", str(self.sizes[-1]), "-f", str(self.factor))
        if self.nodes == 1:
            return ("env", "NCCL_DEBUG=VERSION", self.program, *sizes, "-g", str(self.ranks))
        placed = ("-np", str(self.ranks), "--map-by", f"ppr:{self.ranks // self.nodes}:node")
        return ("mpirun", *placed, "-x", "NCCL_DEBUG=VERSION", self.program, *sizes, "-g", "1")


@dataclass(frozen=True, slots=True)
class _BandTarget:
    """A collective in a group whose band is to be narrowed; `alone`: predicted from the catalog alone."""

    kind: str
    ranks: int
    nodes: int
    alone: Prediction

    def band_widths(
        self, system: System, measured: Calibration | None = None
    ) -> np.ndarray[Any, np.dtype[np.float64]]:
        """log(high / low) by size with a calibration; without any, from the catalog alone."""
        prediction: Prediction | NoPrice = self.alone
        if measured is not None:
            members = system.group_members(self.ranks, self.nodes)
            prediction = measured.price_collective(self.kind, _SIZES, members, system)
        if isinstance(prediction, NoPrice):
            raise InputError(prediction.reason)
        return np.asarray(np.log(prediction.high_s / prediction.low_s), np.float64)


def choose_commands(system: System, kinds: Sequence[str], nodes: int, most: int) -> list[ProbeCommand]:
    """The at most `most` commands that narrow the bands most, on one node and on `nodes` nodes.

    `UsageError` for machines that nccl-tests do not run on, `InputError` if nothing has a price.
    """
    targets = _targets(system, kinds, nodes)
    chosen: list[ProbeCommand] = []
    sweeps: list[Sweep] = []
    widths = [float(target.band_widths(system).mean()) for target in targets]
    groups = dict.fromkeys((target.ranks, target.nodes) for target in targets)
    candidates = [
        ProbeCommand(kind, ranks, on, first, factor)
        for kind, (ranks, on), (first, factor) in product(kinds, groups, _WINDOWS)
        if any((kind, ranks, on) == (target.kind, target.ranks, target.nodes) for target in targets)
    ]
    for _ in range(most):
        best: tuple[float, ProbeCommand, Sweep, list[float]] | None = None
        for command in candidates:
            sweep = _expected_sweep(command, targets)
            calibration = Calibration(system.id, (*sweeps, sweep))
            # A sweep of one node says nothing of several, nor the other way round.
            after = [
                float(target.band_widths(system, calibration).mean())
                if (target.nodes > 1) == (command.nodes > 1) or system.domain_size > system.per_node
                else width
                for target, width in zip(targets, widths, strict=True)
            ]
            gain = float(np.mean(widths) - np.mean(after))
            if best is None or gain > best[0] + _EQUAL:
                best = gain, command, sweep, after
        if best is None or best[0] < _LEAST_GAIN:
            break
        _, command, sweep, widths = best
        chosen.append(command)
        sweeps.append(sweep)
        measured = (command.kind, command.ranks, command.nodes)
        candidates = [
            command for command in candidates if (command.kind, command.ranks, command.nodes) != measured
        ]
    return chosen


def band_rows(
    system: System, kinds: Sequence[str], nodes: int, measured: Sequence[ProbeCommand] | Calibration
) -> list[dict[str, Any]]:
    """Rows of `COLUMNS` by collective, group and size band: the median high / low before and after.

    `after` is the band of the calibration, or that which the commands are expected to leave.
    """
    targets = _targets(system, kinds, nodes)
    if isinstance(measured, Calibration):
        calibration: Calibration | None = measured
    else:
        sweeps = tuple(_expected_sweep(command, targets) for command in measured)
        calibration = Calibration(system.id, sweeps) if sweeps else None
    return [row for target in targets for row in _rows_of_target(target, system, calibration)]


def _rows_of_target(
    target: _BandTarget, system: System, measured: Calibration | None
) -> Iterator[dict[str, Any]]:
    before, after = target.band_widths(system), target.band_widths(system, measured)
    number = np.searchsorted([*BANDS.values()], _SIZES, side="right")
    for at, band in enumerate(BANDS):
        inside = number == at
        yield {
            "collective": target.kind,
            "ranks": target.ranks,
            "nodes": target.nodes,
            "sizes": band,
            "before": float(np.exp(np.median(before[inside]))),
            "after": float(np.exp(np.median(after[inside]))),
        }


def _targets(system: System, kinds: Iterable[str], nodes: int) -> list[_BandTarget]:
    """Each collective on one whole node and on `nodes` whole nodes, where there is a price."""
    if system.architecture not in _LIBRARIES:
        raise UsageError(f"nccl-tests and rccl-tests do not run on {system.id}")
    targets: list[_BandTarget] = []
    reasons: list[str] = []
    for kind, on in product(kinds, sorted({1, nodes})):
        ranks = system.per_node * on
        if ranks > 1:
            alone = price_collective(kind, _SIZES, system.group_members(ranks, on), system)
            if isinstance(alone, NoPrice):
                reasons.append(alone.reason)
            else:
                targets.append(_BandTarget(kind, ranks, on, alone))
    if not targets:
        raise InputError(f"{system.id}: nothing to measure: " + "; ".join(dict.fromkeys(reasons)))
    return targets


def _expected_sweep(command: ProbeCommand, targets: Sequence[_BandTarget]) -> Sweep:
    """The command's sweep on a machine that takes the times predicted: its band is that of any outcome whose
    deviations agree."""
    alone = next(
        target.alone
        for target in targets
        if (target.kind, target.ranks, target.nodes) == (command.kind, command.ranks, command.nodes)
    )
    times = np.exp(np.interp(np.log(command.sizes), np.log(_SIZES), np.log(alone.time_s)))
    return Sweep(command.kind, command.ranks, command.nodes, command.sizes, tuple(times.tolist()))
