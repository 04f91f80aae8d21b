# SPDX-License-Identifier: Apache-2.0
"""From runs to their comparison."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from string import ascii_uppercase
from typing import TYPE_CHECKING

from cclbench.analyzers.metric import resolve
from cclbench.api import full_results, open_run
from cclbench.comparison import gate
from cclbench.comparison.comparison import Comparison
from cclbench.comparison.lines import card_differences, lines
from cclbench.comparison.operators import differences
from cclbench.comparison.subject import Subject
from cclbench.comparison.verdict import versus
from cclbench.comparison.work import warnings
from cclbench.engine import PROCESSES, SERIAL, Engine, Progress, engine_for
from cclbench.errors import UsageError
from cclbench.record.run import Run

if TYPE_CHECKING:
    from distributed import Client


def compare(
    *runs: str | Path | Run,
    store: str | Path | None = None,
    jobs: int = 1,
    engine: Engine | str = PROCESSES,
    client: Client | None = None,
    fail_on: Sequence[str] = (),
    metrics: Sequence[str] = ("*",),
    window: str = "steps",
    inference: bool = True,
    model: bool = True,
    progress: Progress | None = None,
) -> Comparison:
    """Two or more runs of the store, or SOURCEs, which are then ingested: each against the first.

    `metrics` narrows the lines only; `fail_on` are expressions as `gate.parse` takes them, whose outcome is
    in `checks`.  Raises `UsageError` for a wrong call, `InputError` for unreadable input.
    """
    chosen = resolve([metrics] if isinstance(metrics, str) else metrics)
    gates = [gate.parse(expression) for expression in ([fail_on] if isinstance(fail_on, str) else fail_on)]
    with engine_for(engine, jobs, client) as runs_on:
        opened = [open_run(run, store=store, engine=runs_on, inference=inference) for run in runs]
        subjects = tuple(
            subject_of(letter, run, window, runs_on, model, progress)
            for letter, run in zip(ascii_uppercase, _distinct(runs, opened), strict=False)
        )
        operators = differences(subjects, runs_on, progress)
    return Comparison(
        subjects=subjects,
        warnings=warnings(subjects),
        versus=tuple(versus(subjects[0], other) for other in subjects[1:]),
        cards=card_differences(subjects),
        lines=lines(subjects, list(dict.fromkeys(metric.name for metric, _ in chosen))),
        operators=operators,
        checks=tuple(check for one in gates for check in gate.check(one, subjects)),
    )


def _distinct(asked: Sequence[str | Path | Run], runs: Sequence[Run]) -> Sequence[Run]:
    """The runs, which must be two or more, each another."""
    if not 2 <= len(runs) <= len(ascii_uppercase):
        raise UsageError(f"compare takes 2 to {len(ascii_uppercase)} runs, not {len(runs)}")
    seen: dict[Path, str] = {}
    for name, run in zip(asked, runs, strict=True):
        told = run.id if isinstance(name, Run) else str(name)
        path = run.path.resolve()
        if path in seen:
            both = told if seen[path] == told else f"{seen[path]} and {told}"
            raise UsageError(f"{both}: the same run, {run.id}, twice", hint="compare different runs")
        seen[path] = told
    return runs


def subject_of(
    letter: str,
    run: Run,
    window: str = "steps",
    engine: Engine = SERIAL,
    model: bool = True,
    progress: Progress | None = None,
) -> Subject:
    """A run with all its results, computed unless the store has them, and its card."""
    results = full_results(run, window=window, engine=engine, model=model, progress=progress)
    card = run.card
    return Subject(letter, run, results, None if card is None else card.raw)
