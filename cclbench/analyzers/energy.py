# SPDX-License-Identifier: Apache-2.0
"""Energy of the steps, from power or energy counters of the devices.

Energy is spread evenly over the interval between two samples; power holds over the interval that its row
states, or since the sample before.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa

from cclbench.analyzers.counters import held_amounts, port_numbers, windows_of_steps, with_plain_words
from cclbench.analyzers.metric import Coverage, NotApplicable, Value, run_metric
from cclbench.analyzers.view.columns import with_values, with_words
from cclbench.analyzers.view.platform import samples_per_step, tokens_per_sample
from cclbench.analyzers.view.run_view import RunView
from cclbench.analyzers.view.values import NS_PER_S
from cclbench.formats import sort_by_precedence
from cclbench.ground import intervals
from cclbench.ground.units import humanise

_COUNTERS: Final = ("energy", "power")
"""In order of preference: counted energy before integrated power."""
_NONE: Final = (
    "the run has no power or energy counters: add the output of `stdbuf -oL dcgmi dmon -e 155,156 | ts %.s`"
)
_energy_metric = partial(
    run_metric,
    unit="J",
    better="lower",
    not_applicable="the run has no power or energy counters with times, they are outside the steps, no trace"
    " marks steps, or counters cover more devices than the run has",
)


@_energy_metric(
    "energy.step",
    definition="Energy of all the run's devices in a step, including idle time: counted, or integrated from"
    " power, over the union of the ranks' windows; an interval at a window's edge counts in proportion."
    " Counter and trace times are compared as stated, since the Unix epoch. Partial, and only the known"
    " part, where counters do not cover all devices or all the time.",
    formula="Σ over devices ∫ power dt / number of steps",
    inputs=("counters", "steps", "card: hardware.count"),
)
def energy_of_step(run: RunView) -> Iterator[Value]:
    """Energy of all steps over their number."""
    joules, steps = _energy_of_steps(run)
    yield replace(joules, value=(joules.value or 0.0) / steps)


@_energy_metric(
    "energy.token",
    definition="Energy of a step (energy.step) per token of the step, by the card.",
    formula="energy.step / (batch.global · batch.sequence_length)",
    inputs=("counters", "steps", "card: hardware.count, workload.phase, workload.batch"),
)
def energy_of_token(run: RunView) -> Iterator[Value]:
    """Energy of all steps over their tokens."""
    joules, steps = _energy_of_steps(run)
    tokens = steps * samples_per_step(run) * tokens_per_sample(run)
    yield replace(joules, value=(joules.value or 0.0) / tokens)


def _energy_of_steps(run: RunView) -> tuple[Value, int]:
    """Energy of all devices during the ranks' steps, J, and the number of steps."""
    rows, source, counter = counted_energy(with_plain_words(run.table("counters")))
    windows = windows_of_steps(run)
    during = intervals.union(
        np.concatenate([of_rank.starts for of_rank in windows]),
        np.concatenate([of_rank.ends for of_rank in windows]),
    )
    starts, ends = (rows[name].to_numpy() for name in ("start_ns", "end_ns"))
    inside = intervals.within(during, starts, ends)
    if not inside.any():
        raise NotApplicable(f"{source} sampled at other times than the steps, as both state them")
    counted = len(np.unique(port_numbers(rows)[inside > 0]))
    devices = run.machine.accelerator_count.value or len(run.ranks)
    if counted > devices:
        raise NotApplicable(
            f"{source} counted {counted} devices, and the run has {devices}: which are its own is unknown"
        )
    joules = float(rows["value"].to_numpy() @ (inside / (ends - starts)))
    covered, device_ns = int(inside.sum()), devices * during.length
    return (
        Value(
            value=joules,
            provenance="measured" if counter == "energy" else "derived",
            reason=f"{counter} of {counted} of {devices} devices by {source}, over"
            f" {humanise(covered / device_ns, '1')} of the steps' time",
            coverage=Coverage(counted, devices, covered, device_ns),
            source=source,
        ),
        max(map(len, windows)),
    )


def counted_energy(rows: pa.Table) -> tuple[pa.Table, str, str]:
    """Energies over intervals from one tool, J; the tool, and its counter; `NotApplicable` without any."""
    counter_rows = with_words(rows, "counter", _COUNTERS)
    timed = with_values(counter_rows, "start_ns", "end_ns")
    for source in sort_by_precedence(timed["source"].unique().to_pylist()):
        of_source = with_words(timed, "source", (source,))
        for counter in _COUNTERS:
            energies = _energy_intervals(with_words(of_source, "counter", (counter,)), counter)
            if len(energies):
                return energies, source, counter
    raise NotApplicable("the power or energy counters state no times" if len(counter_rows) else _NONE)


def _energy_intervals(rows: pa.Table, counter: str) -> pa.Table:
    """A counter's rows as energies over intervals, J."""
    lasting = _lasting_rows(rows)
    if counter == "energy":
        return lasting
    if not len(lasting):
        return _lasting_rows(held_amounts(rows))
    seconds = (lasting["end_ns"].to_numpy() - lasting["start_ns"].to_numpy()) / NS_PER_S
    column = lasting.schema.get_field_index("value")
    return lasting.set_column(column, "value", pa.array(lasting["value"].to_numpy() * seconds))


def _lasting_rows(rows: pa.Table) -> pa.Table:
    return rows.filter(pa.array(rows["start_ns"].to_numpy() < rows["end_ns"].to_numpy()))
