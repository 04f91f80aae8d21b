# SPDX-License-Identifier: Apache-2.0
"""One figure over many runs of a job: when its level changed, by how much, and what changed beside it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import pairwise
from operator import attrgetter
from pathlib import Path
from typing import Final, Literal, Unpack

import numpy as np

from cclbench.analyzers.metric import METRICS
from cclbench.comparison.build import expand_patterns, run_subject
from cclbench.comparison.change_points import Levels, find_levels
from cclbench.comparison.comparison import GateCheck
from cclbench.comparison.fingerprint import work_equality, work_fingerprint
from cclbench.comparison.gate import Gate, parse_figure, parse_gate
from cclbench.comparison.lines import flatten_card, metric_selector
from cclbench.comparison.operators import subject_operator_tables
from cclbench.comparison.subject import ComparisonSubject
from cclbench.comparison.work import work_inequalities
from cclbench.ground.errors import UsageError
from cclbench.ground.units import humanise
from cclbench.record.metric_name import MetricName, metric_names
from cclbench.record.rows import Row
from cclbench.record.run import Run
from cclbench.record.store import Dated
from cclbench.workspace import Workspace, WorkspaceOptions, takes_options, workspace

Verdict = Literal["regression", "improvement", "change", "work", "hardware", "method"]
Figure = tuple[MetricName, Mapping[str, str]]
"""A metric, and the keys that select a part of it."""

_DEFAULTS: Final = metric_names("time.step", "log.step")
"""The figure of a history that names none: the first that a run has."""
_LEAST_REFERENCE: Final = 3
"""Comparable runs that the newest is judged against at least."""


@dataclass(frozen=True, slots=True)
class HistoryPoint:
    """A run of a history; `dated_by` says whether its date is of a label, of its traces or of ingestion.

    Without a `value`, `reason` says why.  `facts` are texts by topic and name, such as
    `("hardware", "devices")`.
    """

    run: Run
    date: datetime
    dated_by: Dated
    value: float | None
    reason: str | None
    facts: Mapping[tuple[str, str], str]


@dataclass(frozen=True, slots=True)
class LevelChange:
    """A change of level; `first` is the index of its first run among those that have a value.

    `before` and `after` are the means of the segments on both sides, `low` and `high` the 95 % interval of
    `after / before`, or of `after - before` where not all values are positive.  `beside` are facts that
    differ between the last run before and the first run after: name, before, after.  `verdict` is `work`,
    `hardware` or `method` where the evidence shows such a difference, else by the metric's better direction.
    """

    first: int
    before: float
    after: float
    low: float
    high: float
    verdict: Verdict
    beside: tuple[tuple[str, str | None, str | None], ...]
    work: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FigureHistory:
    """A figure of a job's runs in order of time."""

    figure: str
    unit: str
    better: str | None
    points: tuple[HistoryPoint, ...]
    levels: Levels
    """Of the runs that have a value."""
    changes: tuple[LevelChange, ...]

    @property
    def valued(self) -> list[HistoryPoint]:
        """The runs that have a value."""
        return [point for point in self.points if point.value is not None]

    @property
    def drift_words(self) -> str | None:
        """The drift in words, None if the figure does not drift."""
        if self.levels.drift is None:
            return None
        place, first, last = self.levels.drift
        kind = ""
        if self.better in ("lower", "higher"):
            kind = "regression, " if (last > first) == (self.better == "lower") else "improvement, "
        size = f", {100 * (last / first - 1):+.2f} %" if self.levels.logarithmic else ""
        begins = f"from {self.valued[place].run.id} on, " if place else ""
        return (
            f"drift: {kind}{begins}{humanise(first, self.unit)} to {humanise(last, self.unit)}{size} over"
            f" {len(self.valued) - place:,} runs; a steady slope describes them better than changes of level"
        )


@takes_options
def history(
    *runs: str | Path | Run,
    metrics: Sequence[str] = (),
    last: int = 10,
    fail_on: Sequence[str] = (),
    **options: Unpack[WorkspaceOptions],
) -> tuple[list[FigureHistory], list[GateCheck]]:
    """The history of each of `metrics` and of `fail_on`, and the checks of the newest run.

    `runs` are run ids, SOURCEs or patterns of them, by default all runs of the store; `metrics` are names or
    parts of a metric, such as `time.step[stat=p95]`.  `fail_on` takes expressions of `gate.parse_gate`; a
    change is one against the mean of the `last` comparable runs before.  `options` are those of `workspace`.
    """
    gates = [parse_gate(expression) for expression in fail_on]
    figures = [parse_figure(text) for text in metrics] + [(gate.metric, gate.keys) for gate in gates]
    with workspace(**options) as session:
        chosen = expand_patterns(runs or session.store.ids(), session.store)
        if not chosen:
            raise UsageError(
                f"{session.store.place} has no runs", hint="create some with `cclbench run SOURCE`"
            )
        opened = [session.open_run(run) for run in chosen]
        distinct = {run.path.resolve(): run for run in opened if run.record.published is None}
        if not distinct:
            raise UsageError("only runs from traces and logs have a history, not published figures")
        candidates = figures or [(name, {}) for name in _DEFAULTS]
        read = [_read_run(run, candidates, session) for run in distinct.values()]
        read.sort(key=attrgetter("date"))
        figures = figures or [_default_figure(read)]
        histories = {metric_selector(*figure): _figure_history(figure, read, session) for figure in figures}
        checks = [
            _check_newest(gate, histories[metric_selector(gate.metric, gate.keys)], last, session)
            for gate in gates
        ]
    return list(histories.values()), checks


@dataclass(frozen=True, slots=True)
class _RunRows:
    """A run's date and facts, and its row of each figure, by selector."""

    run: Run
    date: datetime
    dated_by: Dated
    facts: Mapping[tuple[str, str], str]
    rows: Mapping[str, Row | None]


def _read_run(run: Run, figures: Sequence[Figure], session: Workspace) -> _RunRows:
    subject = _subject(run, session)
    rows = {metric_selector(*figure): subject.results.row(figure[0], **figure[1]) for figure in figures}
    date, dated_by = session.store.date_of(run)
    return _RunRows(run, date, dated_by, dict(_run_facts(subject)), rows)


def _subject(run: Run, session: Workspace) -> ComparisonSubject:
    return run_subject("", run, engine=session.engine, progress=session.progress)


def _run_facts(subject: ComparisonSubject) -> Iterator[tuple[tuple[str, str], str]]:
    """Facts about a run that are listed where they change with a figure."""
    record = subject.stored.record
    for name, label in record.labels.items():
        if name != "date":
            yield ("label", name), label
    yield ("hardware", "devices"), ", ".join(subject.devices)
    yield ("hardware", "number of devices"), str(subject.device_count)
    yield ("method", "ranks with a trace"), str(len(record.ranks))
    yield ("method", "kind of trace"), str(subject.stored.reader)
    facts = [entry.facts for entry in record.ranks]
    for name, stated in (
        ("profiler", {" ".join(filter(None, (fact.producer, fact.producer_version))) for fact in facts}),
        ("communication library", {fact.library_version or "" for fact in facts}),
    ):
        yield ("software", name), ", ".join(sorted(stated - {""}))
    for path, value in flatten_card(subject.card or {}):
        topic = path.partition(".")[0]
        yield (topic if topic in ("hardware", "software") else "card", path), str(value)


def _default_figure(read: Sequence[_RunRows]) -> Figure:
    for name in _DEFAULTS:
        if any((row := run_rows.rows[name]) is not None and row.has_value for run_rows in read):
            return name, {}
    raise UsageError(
        f"no run has {' or '.join(_DEFAULTS)}",
        hint="--metric names another figure; `cclbench metrics RUN` shows those of a run",
    )


def _figure_history(figure: Figure, read: Sequence[_RunRows], session: Workspace) -> FigureHistory:
    name = metric_selector(*figure)
    points = tuple(_history_point(run_rows, run_rows.rows[name]) for run_rows in read)
    valued = [point for point in points if point.value is not None]
    levels = find_levels(np.array([point.value for point in valued], np.float64))
    metric = METRICS.get(figure[0])
    bounds = [0, *levels.changes, len(valued)]
    changes = tuple(
        _level_change(valued, levels, number, bounds, metric.better, session)
        for number in range(len(levels.changes))
    )
    unit = next((row.unit for run_rows in read if (row := run_rows.rows[name]) is not None), metric.unit)
    return FigureHistory(name, unit, metric.better, points, levels, changes)


def _history_point(run_rows: _RunRows, row: Row | None) -> HistoryPoint:
    if row is None or not row.has_value:
        reason = "the run has no such figure" if row is None else row.reason or row.status
        return HistoryPoint(run_rows.run, run_rows.date, run_rows.dated_by, None, reason, run_rows.facts)
    facts = {
        **run_rows.facts,
        ("method", "window"): row.window,
        ("method", "provenance"): str(row.provenance),
        ("method", "version of the metric"): str(row.version),
    }
    return HistoryPoint(run_rows.run, run_rows.date, run_rows.dated_by, row.number, row.reason, facts)


def _level_change(
    valued: Sequence[HistoryPoint],
    levels: Levels,
    number: int,
    bounds: Sequence[int],
    better: str | None,
    session: Workspace,
) -> LevelChange:
    first = levels.changes[number]
    before, after = levels.means[number : number + 2]
    share = sum(1 / (end - begin) for begin, end in pairwise(bounds[number : number + 3]))
    low, high = levels.interval(after, share)
    if levels.logarithmic:
        low, high = low / before, high / before
    else:
        low, high = low - before, high - before
    last_before, first_after = valued[first - 1], valued[first]
    differing = _differing_facts(last_before, first_after)
    work = _work_differences(last_before, first_after, session)
    topics = {topic for (topic, _), _, _ in differing}
    verdict: Verdict
    if work:
        verdict = "work"
    elif "hardware" in topics:
        verdict = "hardware"
    elif "method" in topics:
        verdict = "method"
    elif better in ("lower", "higher"):
        verdict = "regression" if (after > before) == (better == "lower") else "improvement"
    else:
        verdict = "change"
    beside = tuple(
        (f"label {name}" if topic == "label" else name, old, new) for (topic, name), old, new in differing
    )
    return LevelChange(first, before, after, low, high, verdict, beside, work)


def _differing_facts(
    before: HistoryPoint, after: HistoryPoint
) -> list[tuple[tuple[str, str], str | None, str | None]]:
    """Topic and name, text before and text after of each fact that differs."""
    pairs = ((key, before.facts.get(key), after.facts.get(key)) for key in {**before.facts, **after.facts})
    return [(key, old, new) for key, old, new in pairs if old != new]


def _work_differences(before: HistoryPoint, after: HistoryPoint, session: Workspace) -> tuple[str, ...]:
    """How the work of a step differs by cards or evidence, as a comparison of the two runs finds it."""
    base, other = (_subject(point.run, session) for point in (before, after))
    base, other = replace(base, letter="A"), replace(other, letter="B")
    tables = subject_operator_tables((base, other), session.engine, session.progress)
    equality = work_equality(
        *(work_fingerprint(subject, tables.get(subject.letter)) for subject in (base, other))
    )
    return tuple(work_inequalities(base, other, equality))


def _check_newest(gate: Gate, series: FigureHistory, last: int, session: Workspace) -> GateCheck:
    """Check an expression for the newest run; a change is judged by the interval of a single new run."""
    newest = series.points[-1]

    def check(outcome: Literal["passed", "failed", "refused"], reason: str) -> GateCheck:
        return GateCheck(gate.expression, newest.run.id, outcome, reason)

    if newest.value is None:
        return check("failed", f"{newest.run.id} has no {series.figure}: {newest.reason}")
    words = f"{series.figure} of {newest.run.id} is {humanise(newest.value, series.unit)}"
    if not gate.against:
        return check("failed" if gate.is_met(newest.value, gate.number) else "passed", words)
    valued = series.valued
    method = {key: text for key, text in newest.facts.items() if key[0] in ("method", "hardware")}
    reference = [point for point in valued[:-1] if method.items() <= point.facts.items()][-last:]
    if len(reference) < _LEAST_REFERENCE or series.levels.noise is None:
        return check(
            "refused",
            f"{words}, but {len(reference)} of {len(valued) - 1} earlier runs are comparable (method and"
            f" hardware), and {_LEAST_REFERENCE} are needed",
        )
    if work := _work_differences(reference[-1], newest, session):
        return check(
            "refused", f"{words}, but its work differs from {reference[-1].run.id}'s: {'; '.join(work)}"
        )
    values = np.array([point.value for point in reference], np.float64)
    mean = float(np.exp(np.log(values).mean())) if series.levels.logarithmic else float(values.mean())
    low, high = series.levels.interval(newest.value, 1 + 1 / len(values))
    limit = gate.limit(mean)
    words += (
        f" ({humanise(low, series.unit)} to {humanise(high, series.unit)} by the noise between runs), of the"
        f" last {len(values)} comparable runs {humanise(mean, series.unit)}"
    )
    if gate.is_met(low if gate.operator.startswith(">") else high, limit):
        return check("failed", words)
    return check("passed", words + ", not wholly beyond the limit" * gate.is_met(newest.value, limit))
