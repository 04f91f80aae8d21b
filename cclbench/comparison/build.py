# SPDX-License-Identifier: Apache-2.0
"""From runs to their comparison."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping, Sequence
from dataclasses import replace
from glob import glob, has_magic
from pathlib import Path
from string import ascii_uppercase
from typing import Final, Unpack

from cclbench.analyzers.metric import resolve
from cclbench.comparison import gate
from cclbench.comparison.captures import divide_by_calls, mean_of
from cclbench.comparison.comparison import Comparison, Versus
from cclbench.comparison.fingerprint import (
    Equality,
    Fingerprint,
    Unit,
    equality,
    fingerprint,
    scale_to_call,
    unit_of,
)
from cclbench.comparison.interval import Captures
from cclbench.comparison.lines import card_differences, lines
from cclbench.comparison.operators import differences, tables_of
from cclbench.comparison.percentiles import with_pooled_percentiles
from cclbench.comparison.repeats import repeats_in
from cclbench.comparison.scaling import scaling_of, scaling_words, with_scaling
from cclbench.comparison.subject import Subject
from cclbench.comparison.verdict import versus
from cclbench.comparison.work import warnings
from cclbench.engine import SERIAL, Engine, Progress
from cclbench.errors import UsageError
from cclbench.record.run import Run
from cclbench.record.selection import Selection
from cclbench.record.store import Store
from cclbench.results import full_results
from cclbench.text import shown
from cclbench.workspace import WorkspaceOptions, takes_options, workspace

_MOST: Final = len(ascii_uppercase)
_ALL: Final = Selection()


@takes_options
def compare(
    *runs: str | Path | Run,
    against: Sequence[str | Path | Run] = (),
    fail_on: Sequence[str] = (),
    metrics: Sequence[str] = ("*",),
    window: str = "steps",
    model: bool = True,
    **options: Unpack[WorkspaceOptions],
) -> Comparison:
    """Two or more runs of the store, or SOURCEs, which are then ingested: each against the first.

    With `against`, the runs are captures of one job, A, and those of `against` captures of another, B.
    `metrics` narrows the lines only; `fail_on` are expressions as `gate.parse` takes them, whose outcome is
    in `checks`; `options` are those of `workspace`.  Raises `UsageError` for a wrong call, `InputError` for
    unreadable input.
    """
    chosen = resolve([metrics] if isinstance(metrics, str) else metrics)
    gates = [gate.parse(expression) for expression in ([fail_on] if isinstance(fail_on, str) else fail_on)]
    with workspace(**options) as used:
        sides = [_named(runs, used.store), _named(against, used.store)]
        asked = [*sides[0], *sides[1]]
        opened = [used.opened(run) for run in asked]
        jobs_of = _jobs(_distinct(asked, opened), len(sides[0]) if against else None)
        unmarked = any(_sources(run) == {None} for run in opened)
        subjects = tuple(
            job_of(
                letter,
                captures,
                Selection(_window(captures, window, unmarked=unmarked), model=model),
                used.engine,
                used.progress,
            )
            for letter, captures in zip(ascii_uppercase, jobs_of, strict=False)
        )
        tables = tables_of(subjects, used.engine, used.progress)
    base, *others = subjects
    prints = {one.letter: fingerprint(one, tables.get(one.letter)) for one in subjects}
    units = [_unit(base, other, prints) for other in others]
    work = [
        _work(prints[base.letter], prints[other.letter], unit)
        for other, unit in zip(others, units, strict=True)
    ]
    repeats = repeats_in(used.store, subjects)
    pairs = list(zip(others, work, strict=True))
    verdicts = [
        _with_scaling(versus(*_counted(base, other, unit), found, repeats), base, other, repeats)
        for (other, found), unit in zip(pairs, units, strict=True)
    ]
    return Comparison(
        subjects=subjects,
        warnings=warnings(subjects, work),
        versus=tuple(verdicts),
        cards=card_differences(subjects),
        lines=with_scaling(
            lines(subjects, list(dict.fromkeys(metric.name for metric, _ in chosen))), verdicts
        ),
        operators=differences(subjects, tables),
        checks=tuple(gate.check(one, base, other, found, repeats) for one in gates for other, found in pairs),
    )


def _with_scaling(found: Versus, base: Subject, other: Subject, repeats: Sequence[Captures]) -> Versus:
    """The verdict, with how well the job scales where the two are of one at two sizes."""
    scaling = scaling_of(base, other, found.work, repeats)
    if scaling is None:
        return found
    return replace(found, scaling=scaling, words=f"{found.words} {scaling_words(scaling)}")


def _unit(base: Subject, other: Subject, prints: Mapping[str, Fingerprint]) -> Unit | None:
    """What counts the work of two captures without steps; None where steps do, or nothing does."""
    alone = len(base.each) == len(other.each) == 1
    whole = base.window == other.window == "trace"
    return unit_of(prints[base.letter], prints[other.letter]) if alone and whole else None


def _work(base: Fingerprint, other: Fingerprint, unit: Unit | None) -> Equality:
    return (
        equality(scale_to_call(base, unit.before), scale_to_call(other, unit.after))
        if unit
        else equality(base, other)
    )


def _counted(base: Subject, other: Subject, unit: Unit | None) -> tuple[Subject, Subject]:
    """The two as they are, or over the calls that each holds."""
    if unit is None:
        return base, other
    of = ((base, unit.before), (other, unit.after))
    one, another = (
        replace(subject, results=divide_by_calls(subject.results, calls), per_call=(unit.operator, calls))
        for subject, calls in of
    )
    return one, another


def _named(asked: Sequence[str | Path | Run], store: Store) -> list[str | Path | Run]:
    """What is asked for, each pattern (`main-*`) replaced by the files or else the runs that fit it."""
    found: list[str | Path | Run] = []
    for one in asked:
        if not isinstance(one, str) or not has_magic(one) or Path(one).exists():
            found.append(one)
            continue
        fitting = sorted(glob(one)) or fnmatch.filter(store.ids(), one)
        if not fitting:
            raise UsageError(f"{shown(one)} fits no file here and no run in the store")
        found += fitting
    return found


def _jobs(opened: Sequence[Run], first: int | None) -> Sequence[Sequence[Run]]:
    """The captures of each job: the `first` so many and the others, or each run a job of one."""
    return [[run] for run in opened] if first is None else [opened[:first], opened[first:]]


def _distinct(asked: Sequence[str | Path | Run], runs: Sequence[Run]) -> Sequence[Run]:
    """The runs, which must be two or more, each another."""
    if not 2 <= len(runs) <= _MOST:
        raise UsageError(f"compare takes 2 to {_MOST} runs, not {len(runs)}")
    seen: dict[Path, str] = {}
    for name, run in zip(asked, runs, strict=True):
        told = run.id if isinstance(name, Run) else str(name)
        path = run.path.resolve()
        if path in seen:
            both = told if seen[path] == told else f"{seen[path]} and {told}"
            raise UsageError(f"{both}: the same run, {run.id}, twice", hint="compare different runs")
        seen[path] = told
    return runs


def _sources(run: Run) -> set[str | None]:
    """What marks the steps of a run's ranks; None where nothing does."""
    return {rank.steps.source for rank in run.record.ranks}


def _window(captures: Sequence[Run], window: str, *, unmarked: bool) -> str:
    """The window policy of a job: beside a capture that is `unmarked`, steps that nobody marked are none.

    Repetitions of graphs are steps where nothing else tells any, and a whole trace is no step.
    """
    return "trace" if unmarked and any("graph" in _sources(run) for run in captures) else window


def job_of(
    letter: str,
    captures: Sequence[Run],
    selection: Selection,
    engine: Engine,
    progress: Progress | None,
) -> Subject:
    """A job with the mean of its captures' results."""
    names = [letter] if len(captures) == 1 else [f"{letter}{place}" for place in range(1, len(captures) + 1)]
    each = [
        subject_of(name, run, selection, engine, progress) for name, run in zip(names, captures, strict=True)
    ]
    if len(each) == 1:
        return each[0]
    results = with_pooled_percentiles(mean_of([one.results for one in each]), each)
    return Subject(letter, each[0].stored, results, each[0].card, tuple(each))


def subject_of(
    letter: str,
    run: Run,
    selection: Selection = _ALL,
    engine: Engine = SERIAL,
    progress: Progress | None = None,
) -> Subject:
    """A run with all its results, computed unless the store has them, and its card."""
    results = full_results(run, selection, engine=engine, progress=progress)
    card = run.card
    return Subject(letter, run, results, None if card is None else card.raw)
