# SPDX-License-Identifier: Apache-2.0
"""Result rows of a replay: predicted steps, critical path, knee of a sweep."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from cclbench.ground.units import humanise
from cclbench.record.metric_name import MetricName
from cclbench.record.rows import Row
from cclbench.replay import nodes as n
from cclbench.replay.critical_path import Path
from cclbench.replay.graph import Graph
from cclbench.replay.outcome import Predicted, ReplayedStep

NS_PER_S: Final = 10**9
KNEE: Final = 0.05
"""Beyond the knee, the rest of a sweep gains less than this share of the step."""
_VERSION: Final = 1

FAITHFUL: Final = 0.01
"""Largest relative error of an unchanged replay without a note."""


def predicted_rows(outcome: Predicted, unchanged: ReplayedStep) -> list[Row]:
    """The step under a scenario and its gain over the unchanged one, with bounds; its critical path."""
    label = outcome.scenario.label
    reason = "; ".join(outcome.basis) or None
    if outcome.idle is not None:
        names = (("whatif.step", "s", "lower"), ("whatif.speedup", "ratio", "higher"))
        return [
            modelled_row(name, None, unit=unit, better=better, category=label, reason=reason)
            for name, unit, better in names
        ]
    open_ended = None
    if outcome.step_ns is None:
        open_ended = f"only bounds are known, see stats low and high: {reason or 'no model applies'}"
    gain = partial(modelled_row, "whatif.speedup", unit="ratio", better="higher", category=label)
    step = partial(modelled_row, "whatif.step", category=label)
    return [
        step(outcome.step_ns and outcome.step_ns / NS_PER_S, reason=open_ended or reason),
        step(outcome.low_ns / NS_PER_S, stat="low"),
        step(outcome.high_ns / NS_PER_S, stat="high"),
        gain(outcome.step_ns and unchanged.step_ns / outcome.step_ns, reason=open_ended),
        gain(unchanged.step_ns / outcome.high_ns, stat="low"),
        gain(unchanged.step_ns / outcome.low_ns, stat="high"),
        *path_rows(outcome.path, label),
    ]


def path_rows(path: Path, label: str | None) -> list[Row]:
    """Shares of the critical path by place, and of communication by kind and group."""
    length_ns = max(path.length_ns, 1)
    share = partial(modelled_row, "whatif.critical_path", unit="1", better=None, category=label)
    return [
        *(share(ns / length_ns, stat=place) for place, ns in path.places.items()),
        *(
            share(ns / length_ns, stat="communication", collective=kind, group=group)
            for (kind, group), ns in path.communication.items()
        ),
        *(share(ns / length_ns, rank=rank) for rank, ns in sorted(path.ranks.items())),
    ]


def knee_row(curve: Sequence[tuple[float, Predicted]]) -> Row:
    """The smallest factor beyond which the sweep gains less than KNEE of the step."""
    label = curve[0][1].scenario.label.partition("=")[0]
    row = partial(modelled_row, "whatif.knee", unit="ratio", better=None, category=label)
    if curve[0][1].idle is not None:
        return row(None, reason=curve[0][1].idle)
    points = [(factor, p.step_ns) for factor, p in curve if p.step_ns is not None]
    if len(points) < len(curve):
        unknown = len(curve) - len(points)
        return row(None, reason=f"of {unknown} of the sweep's {len(curve)} points only bounds are known")
    best = min(ns for _, ns in points)
    order = points if points[0][1] >= points[-1][1] else points[::-1]
    factor = next(f for f, ns in order if ns <= best * (1 + KNEE))
    return row(factor, reason=f"beyond it the sweep gains less than {KNEE:.0%} of the step")


def modelled_row(
    metric: str,
    value: float | None,
    *,
    unit: str = "s",
    better: str | None = "lower",
    provenance: str = "modelled",
    **keys: Any,
) -> Row:
    """A result row of a replay, in seconds by default; not applicable without a value."""
    ok = value is not None
    return Row(
        metric=MetricName(metric),
        value=value,
        unit=unit,
        status="ok" if ok else "not_applicable",
        provenance=provenance if ok else None,
        better=better,
        window="steps",
        version=_VERSION,
        **keys,
    )


def fidelity_note(replayed_ns: float, measured_ns: float) -> str | None:
    """A note where the unchanged replay differs from the measured step by more than `FAITHFUL`."""
    error = replayed_ns / measured_ns - 1
    if abs(error) <= FAITHFUL:
        return None
    return (
        f"{error:+.1%} off the measured step: rows wait for causes that the traces do not show; predictions"
        " are relative to this replay"
    )


def replay_notes(graph: Graph, contention: float, profiler_s: float) -> list[str]:
    """What a replay rests on: what is traced, inferred from times, unmatched and assumed.

    `profiler_s`: what the profiler adds to a recorded step, s.
    """
    notes = [f"traced: {number:,} {label}" for label, number in sorted((+graph.traced).items())]
    notes += [
        f"inferred from times: {number:,} {label}" for label, number in sorted((+graph.inferred).items())
    ]
    is_matched = graph.transfers.is_split[graph.nodes.call[graph.nodes.kind == n.TRANSFER]]
    if not is_matched.all():
        unmatched = f"{(~is_matched).sum():,} of {len(is_matched):,} parts of collectives"
        notes.append(f"{unmatched} are not matched across ranks: waiting stays as measured")
    if contention != 1.0:
        notes.append(f"kernels are assumed to take {contention:.4g}× as long while communication runs")
    if profiler_s > 0.0:
        longer = humanise(profiler_s, "s")
        notes.append(f"up to {longer} of a step's host time is the profiler's: without it, its gain is less")
    return notes
