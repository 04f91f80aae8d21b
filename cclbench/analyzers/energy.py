# SPDX-License-Identifier: Apache-2.0
"""Energy of the steps, by counters of the devices' power or energy.

A count of energy is spread evenly over the interval between its two samples; a power holds over the interval
that its row states, an instant's since the sample before.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cclbench.analyzers.counters import held_amounts, port_numbers, windows_of_steps, with_plain_words
from cclbench.analyzers.metric import Coverage, NotApplicable, Value, run_metric
from cclbench.analyzers.view.platform import samples_per_step, tokens_per_sample
from cclbench.analyzers.view.run_view import RunView
from cclbench.analyzers.view.values import NS_PER_S
from cclbench.formats import by_precedence
from cclbench.ground import intervals
from cclbench.ground.units import humanise

_COUNTERS: Final = ("energy", "power")
"""What is counted before what is integrated."""
_NONE: Final = (
    "the run holds no counter of its devices' power or energy: add what `stdbuf -oL dcgmi dmon -e 155,156 |"
    " ts %.s` prints"
)
_energy_metric = partial(
    run_metric,
    unit="J",
    better="lower",
    not_applicable="the run holds no power or energy counters with times, they lie outside of the steps, no"
    " trace marks steps, or more devices are counted than the run has",
)


@_energy_metric(
    "energy.step",
    definition="Energy that the run's devices take in a step, all together, idle time included: counted, or"
    " the integral of their power, over the union of the ranks' windows; an interval that a window's edge"
    " cuts counts by its share. Counters' times are held against the traces' as both state them, since the"
    " Unix epoch. Partial where a device of the run has no counter, or some of the time: then the figure is"
    " what is known.",
    formula="Σ over devices ∫ power dt / number of steps",
    inputs=("counters", "steps", "card: hardware.count"),
)
def energy_of_step(run: RunView) -> Iterator[Value]:
    """Of the steps together, over their number."""
    joules, steps = _energy_of_steps(run)
    yield replace(joules, value=(joules.value or 0.0) / steps)


@_energy_metric(
    "energy.token",
    definition="Energy of a step (energy.step) over the tokens that it works on, by the card.",
    formula="energy.step / (batch.global · batch.sequence_length)",
    inputs=("counters", "steps", "card: hardware.count, workload.phase, workload.batch"),
)
def energy_of_token(run: RunView) -> Iterator[Value]:
    """Of the steps together, over all their tokens."""
    joules, steps = _energy_of_steps(run)
    tokens = steps * samples_per_step(run) * tokens_per_sample(run)
    yield replace(joules, value=(joules.value or 0.0) / tokens)


def _energy_of_steps(run: RunView) -> tuple[Value, int]:
    """What all devices take during the ranks' steps, J, and how many steps a rank has."""
    rows, source, counter = _counted_energy(with_plain_words(run.table("counters")))
    windows = windows_of_steps(run)
    during = intervals.union(
        np.concatenate([each.starts for each in windows]), np.concatenate([each.ends for each in windows])
    )
    starts, ends = (rows[name].to_numpy() for name in ("start_ns", "end_ns"))
    inside = intervals.within(during, starts, ends)
    if not inside.any():
        raise NotApplicable(f"{source} counted at other times than the steps ran, as both state them")
    counted = len(np.unique(port_numbers(rows)[inside > 0]))
    devices = run.machine.accelerator_count.value or len(run.ranks)
    if counted > devices:
        raise NotApplicable(
            f"{source} counted {counted} devices and the run has {devices}: which are its own is not known"
        )
    joules = float(rows["value"].to_numpy() @ (inside / (ends - starts)))
    covered, whole = int(inside.sum()), devices * during.length
    return (
        Value(
            value=joules,
            provenance="measured" if counter == "energy" else "derived",
            reason=f"{counter} of {counted} of {devices} devices by {source}, over"
            f" {humanise(covered / whole, '1')} of the steps' time",
            coverage=Coverage(counted, devices, covered, whole),
            source=source,
        ),
        max(map(len, windows)),
    )


def _counted_energy(rows: pa.Table) -> tuple[pa.Table, str, str]:
    """Energies between two times, J, as one tool tells them; the tool and its counter."""
    known = rows.filter(pc.is_in(rows["counter"], pa.array(_COUNTERS)))
    timed = known.filter(pc.and_(known["start_ns"].is_valid(), known["end_ns"].is_valid()))
    for source in by_precedence(pc.unique(timed["source"]).to_pylist()):
        own = timed.filter(pc.equal(timed["source"], source))
        for counter in _COUNTERS:
            energies = _energy_intervals(own.filter(pc.equal(own["counter"], counter)), counter)
            if len(energies):
                return energies, source, counter
    raise NotApplicable("the counters of power or energy state no times" if len(known) else _NONE)


def _energy_intervals(rows: pa.Table, counter: str) -> pa.Table:
    """Rows of a counter as energies over intervals, J."""
    lasting = rows.filter(pc.less(rows["start_ns"], rows["end_ns"]))
    if counter == "energy":
        return lasting
    if not len(lasting):
        held = held_amounts(rows)
        return held.filter(pc.less(held["start_ns"], held["end_ns"]))
    seconds = pc.divide(pc.subtract(lasting["end_ns"], lasting["start_ns"]).cast(pa.float64()), NS_PER_S)
    at = lasting.schema.get_field_index("value")
    return lasting.set_column(at, "value", pc.multiply(lasting["value"], seconds))
