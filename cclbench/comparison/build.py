# SPDX-License-Identifier: Apache-2.0
"""Builds a `Comparison` from runs."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping, Sequence
from dataclasses import replace
from glob import glob, has_magic
from pathlib import Path
from string import ascii_uppercase
from typing import Final, Unpack

from cclbench.analyzers.metric import resolve_metrics
from cclbench.comparison import gate
from cclbench.comparison.captures import divide_by_calls, mean_results
from cclbench.comparison.comparison import Comparison, MatchedWork, Versus
from cclbench.comparison.fingerprint import (
    Equality,
    Fingerprint,
    WorkUnit,
    find_work_unit,
    scale_to_call,
    work_equality,
    work_fingerprint,
)
from cclbench.comparison.interval import Captures
from cclbench.comparison.kernel_groups import group_words
from cclbench.comparison.lines import card_differences, metric_lines
from cclbench.comparison.operators import subject_operator_tables, work_differences
from cclbench.comparison.percentiles import with_pooled_percentiles
from cclbench.comparison.repeats import repeated_captures
from cclbench.comparison.scaling import scaling_of, scaling_words, with_scaling
from cclbench.comparison.standards import common_standard
from cclbench.comparison.subject import ComparisonSubject
from cclbench.comparison.summaries import table_comparisons
from cclbench.comparison.table_verdict import with_table_words
from cclbench.comparison.verdict import judge_subject
from cclbench.comparison.work import comparison_warnings, work_inequalities
from cclbench.engine import SERIAL, Engine, Progress
from cclbench.ground.errors import UsageError
from cclbench.ground.text import quoted_value
from cclbench.record.run import Run
from cclbench.record.selection import Selection
from cclbench.record.store import Store
from cclbench.results import full_results
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
    """Compare two or more runs of the store, or SOURCEs, which are ingested first: each against the first.

    With `against`, `runs` are captures of job A and `against` are captures of job B.  `metrics` selects the
    lines only; `fail_on` takes expressions of `gate.parse_gate`, whose results are in `checks`; `options`
    are those of `workspace`.  Raises `UsageError` for a wrong call, `InputError` for unreadable input.
    """
    chosen = resolve_metrics([metrics] if isinstance(metrics, str) else metrics)
    gates = [
        gate.parse_gate(expression) for expression in ([fail_on] if isinstance(fail_on, str) else fail_on)
    ]
    with workspace(**options) as session:
        sides = [expand_patterns(runs, session.store), expand_patterns(against, session.store)]
        references = [*sides[0], *sides[1]]
        opened_runs = [session.open_run(run) for run in references]
        jobs = _jobs_of_runs(_require_distinct(references, opened_runs), len(sides[0]) if against else None)
        unmarked = any(_step_sources(run) == {None} for run in opened_runs)
        subjects = tuple(
            job_subject(
                letter,
                captures,
                Selection(_job_window(captures, window, unmarked=unmarked), model=model),
                session.engine,
                session.progress,
            )
            for letter, captures in zip(ascii_uppercase, jobs, strict=False)
        )
        tables = subject_operator_tables(subjects, session.engine, session.progress)
    base, *others = subjects
    fingerprints = {
        subject.letter: work_fingerprint(subject, tables.get(subject.letter)) for subject in subjects
    }
    units = [_work_unit(base, other, fingerprints) for other in others]
    work = [
        replace(
            _work_equality(fingerprints[base.letter], fingerprints[other.letter], unit),
            standard=common_standard(base, other),
        )
        for other, unit in zip(others, units, strict=True)
    ]
    compared = table_comparisons(subjects)
    repeats = repeated_captures(session.store, subjects)
    operators = work_differences(subjects, tables, repeats)
    matched = {difference.other: difference.matched for difference in operators}
    pairs = list(zip(others, work, strict=True))
    verdicts = [
        _with_scaling(
            _with_families(
                judge_subject(*_scale_to_calls(base, other, unit), equality, repeats),
                matched.get(other.letter),
                group_words(base, other, equality, repeats),
            ),
            base,
            other,
            repeats,
        )
        for (other, equality), unit in zip(pairs, units, strict=True)
    ]
    return Comparison(
        subjects=subjects,
        warnings=comparison_warnings(subjects, work),
        versus=tuple(
            with_table_words(verdict, compared, work_inequalities(base, other, equality))
            for verdict, (other, equality) in zip(verdicts, pairs, strict=True)
        ),
        cards=card_differences(subjects),
        lines=with_scaling(
            metric_lines(subjects, list(dict.fromkeys(metric.name for metric, _ in chosen))), verdicts
        ),
        operators=operators,
        tables=compared,
        checks=tuple(
            gate.check_gate(condition, base, other, equality, repeats)
            for condition in gates
            for other, equality in pairs
        ),
    )


def _with_families(versus: Versus, matched: MatchedWork | None, groups: str) -> Versus:
    """The verdict, with the families of operators in which the other wins and loses.

    Where much of the work has no match, as of a fused against an eager step, all kernels of equal jobs say
    more, by group: `groups`.
    """
    families = matched.words if matched else ""
    words = families if matched and matched.is_nearly_all else groups or families
    return replace(versus, words=" ".join(filter(None, (versus.words, words))))


def _with_scaling(
    versus: Versus, base: ComparisonSubject, other: ComparisonSubject, repeats: Sequence[Captures]
) -> Versus:
    """The verdict, with the scaling efficiency where both run the same job at two sizes."""
    scaling = scaling_of(base, other, versus.work, repeats)
    if scaling is None:
        return versus
    return replace(versus, scaling=scaling, words=f"{versus.words} {scaling_words(scaling)}")


def _work_unit(
    base: ComparisonSubject, other: ComparisonSubject, fingerprints: Mapping[str, Fingerprint]
) -> WorkUnit | None:
    """The operator that counts the work of two captures without steps; None where there is none."""
    single_captures = len(base.each_capture) == len(other.each_capture) == 1
    whole_traces = base.window_policy == other.window_policy == "trace"
    if not (single_captures and whole_traces):
        return None
    return find_work_unit(fingerprints[base.letter], fingerprints[other.letter])


def _work_equality(base: Fingerprint, other: Fingerprint, unit: WorkUnit | None) -> Equality:
    return (
        work_equality(scale_to_call(base, unit.before), scale_to_call(other, unit.after))
        if unit
        else work_equality(base, other)
    )


def _scale_to_calls(
    base: ComparisonSubject, other: ComparisonSubject, unit: WorkUnit | None
) -> tuple[ComparisonSubject, ComparisonSubject]:
    """Both subjects unchanged, or with a `unit`, their results per call."""
    if unit is None:
        return base, other
    subject_calls = ((base, unit.before), (other, unit.after))
    scaled_base, scaled_other = (
        replace(subject, results=divide_by_calls(subject.results, calls), per_call=(unit.operator, calls))
        for subject, calls in subject_calls
    )
    return scaled_base, scaled_other


def expand_patterns(references: Sequence[str | Path | Run], store: Store) -> list[str | Path | Run]:
    """The runs asked for, each pattern (`main-*`) expanded to matching files, or else stored runs."""
    expanded: list[str | Path | Run] = []
    for run in references:
        if not isinstance(run, str) or not has_magic(run) or Path(run).exists():
            expanded.append(run)
            continue
        matches = sorted(glob(run)) or fnmatch.filter(store.ids(), run)
        if not matches:
            raise UsageError(f"{quoted_value(run)} matches no file and no run in the store")
        expanded += matches
    return expanded


def _jobs_of_runs(runs: Sequence[Run], first_count: int | None) -> Sequence[Sequence[Run]]:
    """The captures of each job: `runs[:first_count]` and the rest, or one job per run if it is None."""
    return [[run] for run in runs] if first_count is None else [runs[:first_count], runs[first_count:]]


def _require_distinct(references: Sequence[str | Path | Run], runs: Sequence[Run]) -> Sequence[Run]:
    """The runs; `UsageError` unless there are 2 to 26, all different."""
    if not 2 <= len(runs) <= _MOST:
        raise UsageError(f"compare takes 2 to {_MOST} runs, not {len(runs)}")
    labels: dict[Path, str] = {}
    for name, run in zip(references, runs, strict=True):
        label = run.id if isinstance(name, Run) else str(name)
        path = run.path.resolve()
        if path in labels:
            names = label if labels[path] == label else f"{labels[path]} and {label}"
            raise UsageError(f"{names}: the same run twice ({run.id})", hint="compare different runs")
        labels[path] = label
    return runs


def _step_sources(run: Run) -> set[str | None]:
    """Sources of the ranks' step marks; None for a rank without any."""
    return {rank.steps.source for rank in run.record.ranks}


def _job_window(captures: Sequence[Run], window: str, *, unmarked: bool) -> str:
    """The window policy of a job: `trace` if another capture is `unmarked` and steps come from graphs.

    Steps inferred from repeated graphs cannot be compared with a whole trace.
    """
    return "trace" if unmarked and any("graph" in _step_sources(run) for run in captures) else window


def job_subject(
    letter: str,
    captures: Sequence[Run],
    selection: Selection,
    engine: Engine,
    progress: Progress | None,
) -> ComparisonSubject:
    """A job as a subject, with the mean of its captures' results."""
    names = [letter] if len(captures) == 1 else [f"{letter}{place}" for place in range(1, len(captures) + 1)]
    subjects = [
        run_subject(name, run, selection, engine, progress) for name, run in zip(names, captures, strict=True)
    ]
    if len(subjects) == 1:
        return subjects[0]
    results = with_pooled_percentiles(mean_results([subject.results for subject in subjects]), subjects)
    return ComparisonSubject(letter, subjects[0].stored, results, subjects[0].card, tuple(subjects))


def run_subject(
    letter: str,
    run: Run,
    selection: Selection = _ALL,
    engine: Engine = SERIAL,
    progress: Progress | None = None,
) -> ComparisonSubject:
    """A run as a subject, with its card and all its results, computed unless stored."""
    results = full_results(run, selection, engine=engine, progress=progress)
    card = run.card
    return ComparisonSubject(letter, run, results, None if card is None else card.raw)
