# SPDX-License-Identifier: Apache-2.0
"""What like machines differ by among themselves: the floor of any prediction from a description.

Two sweeps are of like machines if the machines differ, but not their class, the collective, ranks and nodes,
the accelerator's architecture, how accelerators are connected, and the usable rates, by 10 % at most.  A time
is predicted by the median of the times of all like machines at that size, interpolated over the logarithms
between their measured sizes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
from public_sweeps import PublicSweep, specified_system

from cclbench.hardware.collectives import Group, group_of
from cclbench.hardware.residual_learning import ObservedSweep
from cclbench.hardware.residuals import Floats
from cclbench.hardware.weak_classes import machine_class

MOST_APART: Final = 0.1
"""Relative difference of two rates up to which machines are alike."""


class FloorErrors(NamedTuple):
    """A sweep's log(measured / time of like machines) by size, shape (sizes,); NaN where there are none."""

    sweep: ObservedSweep
    residual: Floats


def floor_errors(sweeps: Sequence[tuple[PublicSweep, ObservedSweep]]) -> Iterator[FloorErrors]:
    """Each sweep predicted by the sweeps of like machines."""
    groups = [_sweep_group(public) for public, _ in sweeps]
    for (public, observed), group in zip(sweeps, groups, strict=True):
        sizes, times = np.log(observed.sizes), np.log(public.sweep.times_s)
        found = np.full((len(sweeps), len(sizes)), np.nan)
        for row, ((other_public, other), other_group) in enumerate(zip(sweeps, groups, strict=True)):
            if other.machine != observed.machine and _are_alike((observed, group), (other, other_group)):
                measured = np.log(other.sizes)
                inside = (sizes >= measured[0]) & (sizes <= measured[-1])
                others = np.log(other_public.sweep.times_s)
                found[row, inside] = np.interp(sizes[inside], measured, others)
        known = ~np.isnan(found).all(axis=0)
        residual = np.full(len(sizes), np.nan)
        residual[known] = times[known] - np.nanmedian(found[:, known], axis=0)
        yield FloorErrors(observed, residual)


def _are_alike(one: tuple[ObservedSweep, Group], other: tuple[ObservedSweep, Group]) -> bool:
    keys = [
        (machine_class(o.setting), o.setting.kind, g.ranks, g.nodes, g.hosted, g.architecture, g.peers)
        for o, g in (one, other)
    ]
    rates = [np.array([g.up_bytes_per_s, g.pair_bytes_per_s, g.out_bytes_per_s]) for _, g in (one, other)]
    return keys[0] == keys[1] and bool((np.abs(rates[0] - rates[1]) <= MOST_APART * rates[0]).all())


def _sweep_group(public: PublicSweep) -> Group:
    """The sweep's group by specified rates."""
    machine, sweep = specified_system(public.system), public.sweep
    group = group_of(machine, machine.group_members(sweep.ranks, sweep.nodes))
    assert isinstance(group, Group)  # noqa: S101  (the sweep has a price)
    return group
