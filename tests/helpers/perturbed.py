# SPDX-License-Identifier: Apache-2.0
"""Worlds whose collectives deviate from the model as machines do: how often bands hold their true step.

A world's true times are the formulas with what no specification states drawn between its edges, the learned
correction, and a deviation exp(y).  y has the quantiles of the learned band at 1/10 and 9/10, half a normal
on either side; what no specification states has the model's edges there.  A machine deviates as a whole
(`whole`), or each of its groups and kinds for itself.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import cclbench
from cclbench.card.model import Hardware
from cclbench.ground.errors import InputError
from cclbench.hardware import catalog
from cclbench.hardware.collectives import NoPrice, algorithm_costs, group_of
from cclbench.hardware.collectives.cost import BEST, EXPECTED, WORST, Assumed
from cclbench.hardware.collectives.price import setting_of
from cclbench.hardware.residuals import current_residuals
from cclbench.hardware.system import System
from cclbench.machine import Machine
from cclbench.replay.answer import Replay
from cclbench.replay.other_system import changed_system
from cclbench.replay.scenario import parse_scenario
from helpers.synthetic import Case, Distortion, Link, in_layouts, write
from helpers.true_steps import _true_step

TENTH = 1.2816
"""Where a normal has nine tenths of its mass below."""
FROM = "dgx-h100"
REPLAYED = 0.001
"""A replay's own error, by which a step may be outside."""


@dataclass(slots=True)
class Held:
    """Layouts whose true step is in the band, or below or above it; those that cannot be priced; how many
    times its lower end each band's upper end is."""

    inside: int = 0
    below: int = 0
    above: int = 0
    refused: int = 0
    widths: list[float] = field(default_factory=list)

    @property
    def layouts(self) -> int:
        return self.inside + self.below + self.above


@dataclass(frozen=True)
class _Timed(Link):
    """A link whose times are those of a world."""

    world: Any = None
    kind: str = ""
    group: tuple[int, ...] = ()

    def transfer_ns(self, nbytes: int) -> int:
        return int(self.world.time_ns(self.kind, self.group, nbytes))


class World:
    """True times of one machine's collectives, drawn by `random`."""

    def __init__(self, system: System, machine: Machine, draws: Draws) -> None:
        self.system, self.machine, self.draws = system, machine, draws
        self.times: dict[tuple[str, tuple[int, ...], int], int] = {}

    def link(self, kind: str, _: str, group: tuple[int, ...]) -> Link:
        return _Timed(0, 0, self, kind, group)

    def time_ns(self, kind: str, group: tuple[int, ...], nbytes: int) -> int:
        """Whole ns; `InputError` where the group has no price."""
        key = kind, group, nbytes
        if key not in self.times:
            self.times[key] = self._time_ns(*key)
        return self.times[key]

    def _time_ns(self, kind: str, group: tuple[int, ...], nbytes: int) -> int:
        devices = self.machine.numbered_in(self.system, group) or group
        known = group_of(self.system, devices)
        if isinstance(known, NoPrice):
            raise InputError(known.reason)
        setting, table, size = setting_of(kind, known), current_residuals(), np.array([float(nbytes)])
        found = algorithm_costs(kind, known, self.draws.assumed)
        if not found:
            raise InputError("no price")
        formula = min(float(cost.time_s(size)[0]) for cost in found)
        low, high = (float(edge[0]) for edge in table.band_half_widths(setting, size))
        z = self.draws.deviation(setting.machine, kind, group)
        y = z / TENTH * (high if z > 0 else low)
        return max(round(1e9 * formula * float(np.exp(table.log_correction(setting, size)[0] + y))), 1)


class Draws:
    """What is drawn once for a layout, by its seed."""

    def __init__(self, seed: int, *, whole: bool) -> None:
        self.seed, self.whole = seed, whole
        t = self._normal("assumed") / TENTH
        edge = WORST if t > 0 else BEST
        self.assumed = Assumed(
            launch_s=EXPECTED.launch_s + min(abs(t), 1.0) * (edge.launch_s - EXPECTED.launch_s),
            latency=edge.latency ** abs(t),
            rate=edge.rate ** abs(t),
            edge=edge.edge if abs(t) > 0.5 else EXPECTED.edge,
        )

    def deviation(self, machine: str, kind: str, group: tuple[int, ...]) -> float:
        """A standard normal for a machine, or for each of its groups and kinds."""
        return self._normal(machine if self.whole else f"{machine}/{kind}/{group}")

    def _normal(self, of: str) -> float:
        return Random(f"{self.seed}/{of}").gauss(0, 1)  # noqa: S311  (tests)


def held(count: int, seed: int, setting: str, *, whole: bool) -> Held:
    """How the bands of so many layouts under that setting hold, the same layouts for a seed."""
    found = Held()

    def one(case: Case) -> None:
        machine = Machine(Hardware(per_node=case.layout.gpus_per_host, system=FROM))
        draws, change = Draws(case.seed, whole=whole), parse_scenario([setting])
        old = catalog.system(FROM)
        worlds = [World(system, machine, draws) for system in (old, changed_system(old, change))]
        try:
            before, after = (replace(case, network=world).simulate() for world in worlds)  # type: ignore[arg-type]
            with TemporaryDirectory() as folder:
                write(before, Path(folder) / "traces", Distortion(events=True))
                run = cclbench.ingest(Path(folder) / "traces", store=Path(folder) / "store")
                predicted = Replay(run, machine=machine).predict(change)
        except InputError:
            found.refused += 1
            return
        if predicted.idle is not None:
            found.refused += 1
            return
        _count(found, predicted.low_ns, _true_step(after), predicted.high_ns)

    in_layouts(count, seed, one)
    return found


def _count(found: Held, low: float, true: float, high: float) -> None:
    found.widths.append(high / low)
    if true < low * (1 - REPLAYED):
        found.below += 1
    elif true > high * (1 + REPLAYED):
        found.above += 1
    else:
        found.inside += 1
