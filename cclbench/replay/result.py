# SPDX-License-Identifier: Apache-2.0
"""Results of a replay: measured, unchanged and predicted step, speedup and critical path, as rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any

from cclbench.ground.errors import UsageError
from cclbench.machine import Machine
from cclbench.record.rows import Row, builtins
from cclbench.record.run import Run
from cclbench.record.step_means import profiler_s
from cclbench.replay.answer import Replay
from cclbench.replay.answer_rows import (
    NS_PER_S,
    fidelity_note,
    knee_row,
    modelled_row,
    path_rows,
    predicted_rows,
    replay_notes,
)
from cclbench.replay.outcome import Predicted, ReplayedStep
from cclbench.replay.scenario import parse_scenario, parse_sweep
from cclbench.replay.scenario_file import named_settings


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """All outcomes, result rows (`figures`; `rows` as flat dicts), and notes for people."""

    measured_ns: float
    unchanged: ReplayedStep
    predicted: tuple[Predicted, ...]
    figures: tuple[Row, ...]
    notes: tuple[str, ...]

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The result rows as flat dicts with the columns of `schema.RESULTS`."""
        return builtins(self.figures)

    @property
    def single_outcome(self) -> Predicted:
        """The outcome of a single scenario; `UsageError` if there are several."""
        if len(self.predicted) > 1:
            raise UsageError(f"there are {len(self.predicted)} scenarios", hint="select one of them")
        return self.predicted[0]


def replay_scenarios(
    run: Run,
    sets: Sequence[str] = (),
    *,
    scenarios: Sequence[str | FilePath] = (),
    sweeps: Sequence[str] = (),
    machine: Machine | None = None,
    ranks: Sequence[int] | None = None,
    contention: float = 1.0,
    notes: Sequence[str] = (),
) -> ReplayResult:
    """Replay the run under `sets` together, and under each of `scenarios` (settings separated by commas, or a
    file of them) and `sweeps` on top of these; `notes`: the caller's, before the replay's.
    """
    single_scenarios = [parse_scenario(sets)] if sets else []
    named_scenarios = [named_settings(text) for text in scenarios]
    single_scenarios += [
        parse_scenario([*sets, *texts], f"+ {name}" if sets else name) for name, texts in named_scenarios
    ]
    curves = [
        [(by, parse_scenario([*sets, text], text)) for by, text in parse_sweep(sweep)] for sweep in sweeps
    ]
    if not single_scenarios and not curves:
        hint = "`cclbench list settings` shows all; such as --set scale_up.bandwidth=x2"
        raise UsageError("no setting is given", hint=hint)
    replay = Replay(run, machine=machine, ranks=ranks, contention=contention)
    predicted = [replay.predict(scenario) for scenario in single_scenarios]
    swept = [[(factor, replay.predict(scenario)) for factor, scenario in curve] for curve in curves]
    return replay_result(replay, predicted, swept, notes=notes)


def replay_result(
    replay: Replay,
    predicted: Sequence[Predicted],
    swept: Sequence[Sequence[tuple[float, Predicted]]] = (),
    *,
    notes: Sequence[str] = (),
) -> ReplayResult:
    """The result of outcomes, and of sweeps by factor; `notes`: the caller's, before the replay's."""
    predicted = [*predicted, *(p for curve in swept for _, p in curve)]
    unchanged = replay.unchanged
    rows = [
        modelled_row("whatif.measured_step", replay.measured_ns / NS_PER_S, provenance="measured"),
        modelled_row(
            "whatif.replayed_step",
            unchanged.step_ns / NS_PER_S,
            reason=fidelity_note(unchanged.step_ns, replay.measured_ns),
        ),
        *path_rows(unchanged.path, None),
        *(row for outcome in predicted for row in predicted_rows(outcome, unchanged)),
        *map(knee_row, swept),
    ]
    figures = [row.noted(replay.caveat) if row.provenance == "modelled" else row for row in rows]
    all_notes = (*notes, *replay_notes(replay.graph, replay.contention, profiler_s(replay.run.record)))
    return ReplayResult(replay.measured_ns, unchanged, tuple(predicted), tuple(figures), all_notes)
