# SPDX-License-Identifier: Apache-2.0
"""Result rows of a run in the store: the chosen metrics on each rank, and of the run as a whole."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from cclbench import __version__, analyzers
from cclbench.analyzers.aliases import Alias
from cclbench.analyzers.answers import Answers, RankAnswers
from cclbench.analyzers.metric import METRICS, Metric, NotApplicable, resolve_metrics
from cclbench.analyzers.rows import (
    metric_rows,
    policy_of,
    rank_rows,
    run_values,
    select_alias_rows,
    window_policy,
    with_caveat,
    with_lacking,
)
from cclbench.analyzers.view.rank_view import RankView
from cclbench.analyzers.view.run_view import RunView
from cclbench.analyzers.view.sources import side_by_side
from cclbench.engine import SERIAL, Engine, Progress
from cclbench.ground.code_hash import code_hash, module_files, plugin_files
from cclbench.ground.errors import ChangedRunError, InputError
from cclbench.hardware.catalog import users_own
from cclbench.machine import Machine, machine_of
from cclbench.record.metric_name import MetricName
from cclbench.record.rank import Rank
from cclbench.record.results import Results
from cclbench.record.rows import Row, rows_of, table_of
from cclbench.record.run import Made, Run
from cclbench.record.selection import Selection, Steps
from cclbench.replay import PASSING_ROWS

if TYPE_CHECKING:
    import pyarrow as pa

    from cclbench.card import Card
    from cclbench.replay.step_ratio import StepRatio
    from cclbench.replay.stragglers import StragglerSlowdown

Replayed = TypeVar("Replayed")
Chosen = Sequence[tuple[Metric, Alias | None]]

NOT_REPLAYED: Final = (
    "replayed only where that is asked for: by --metric with its name, or by a report or comparison of a run"
    f" of at most {PASSING_ROWS:,} rows"
)


class _RankTask(NamedTuple):
    """What a rank's metrics are computed from: nothing that grows with the number of ranks."""

    tables: Rank
    card: Card | None
    machine: Machine


def compute(
    run: Run,
    chosen: Chosen,
    selection: Selection,
    *,
    engine: Engine = SERIAL,
    progress: Progress | None = None,
) -> tuple[Results, str]:
    """The rows of the chosen metrics, and the window that they are about.

    They are the store's where it has them of the same options, else computed; those of all metrics of a whole
    run are kept there.
    """
    selection.check(run)
    if run.record.published is not None:
        return _chosen(run.saved_results or Results.joined(()), chosen), selection.window
    selection = _feasible(selection)
    metrics = list({metric.name: metric for metric, _ in chosen}.values())
    results, window = _stored(run, metrics, selection) or _computed(run, metrics, selection, engine, progress)
    return _chosen(results, chosen), window


def full_results(
    run: Run, selection: Selection, *, engine: Engine = SERIAL, progress: Progress | None = None
) -> Results:
    """All metrics' rows of a whole run, as `compute` gives them; a run that is not large is replayed."""
    rows = sum(sum(entry.rows.values()) for entry in run.record.ranks)
    selection = _feasible(replace(selection, replay=rows <= PASSING_ROWS))
    as_stored = run.record.published is not None or _made_by(run, selection) == selection.replay
    if as_stored and (found := run.saved_results) is not None:
        return found
    return compute(run, resolve_metrics(["*"]), selection, engine=engine, progress=progress)[0]


def _feasible(selection: Selection) -> Selection:
    """The selection, without a replay where there is none: without models, or of a part of the run."""
    possible = selection.model and selection.window == "steps" and selection.whole
    return replace(selection, replay=selection.replay and possible)


def _key(selection: Selection) -> str:
    """What decides all rows of a run: cclbench, its metrics, the catalog, the options."""
    versions = {name: METRICS.get(name).version for name in METRICS}
    by = {"cclbench": __version__, "metrics": versions, "code": _code(), "hardware": users_own()}
    asked = {"window": selection.window, "model": selection.model, "replay": selection.replay}
    return json.dumps({**by, **asked})


@cache
def _code() -> str:
    """The hash of the modules that compute metrics, and of others' cost models."""
    of_plugins = module_files({METRICS.origin(name) for name in METRICS})
    own = (path for folder in analyzers.__path__ for path in Path(folder).rglob("*.py"))
    return code_hash([*own, *of_plugins, *plugin_files("cclbench.operators")])


def _made_by(run: Run, selection: Selection) -> bool | None:
    """Whether the rows in the store, of those options, are with replays; None where they are of others."""
    made = run.saved_by
    if made is None or not selection.whole:
        return None
    return {_key(replace(selection, replay=replay)): replay for replay in (False, True)}.get(made.by)


def _stored(run: Run, metrics: Sequence[Metric], selection: Selection) -> tuple[Results, str] | None:
    """All metrics' rows as the store has them, replays added or taken away as they are asked for."""
    replayed, made = _made_by(run, selection), run.saved_by
    results = None if replayed is None else run.saved_results
    if made is None or results is None:
        return None
    if selection.replay and not replayed and any(metric.is_replayed for metric in metrics):
        results = _with_replays(results, partial(_replayed, run, selection))
        run.save_results(results, made=Made(_key(selection), made.window))
    elif replayed and not selection.replay:
        results = _with_replays(results, _not_replayed)
    return results, made.window


def _with_replays(results: Results, instead: Callable[[Row], list[Row]]) -> Results:
    """The rows, with what stands `instead` of the first one of each metric that replays the run."""

    def rows(metric: MetricName) -> pa.Table:
        former = results.of_metric(metric)
        replays = METRICS.get(metric).is_replayed
        return table_of(instead(rows_of(former.slice(0, 1))[0])) if replays else former

    return Results.joined(map(rows, results.metrics))


def _replayed(run: Run, selection: Selection, former: Row) -> list[Row]:
    """The rows of the metric of `former`, which replays the run."""
    metric = METRICS.get(former.metric)
    values = run_values(_run_view(run, selection, machine_of(run)), [metric])
    found = metric_rows(metric, {}, {}, values[metric.name], asked=former.window, source=run.reader)
    return with_caveat(found, run.inferred)


def _not_replayed(former: Row) -> list[Row]:
    """The row that says how a replay is asked for, of the metric of `former`."""
    return [
        Row(
            metric=former.metric,
            unit=METRICS.get(former.metric).unit,
            status="not_applicable",
            reason=NOT_REPLAYED,
            better=former.better,
            window=former.window,
            version=former.version,
            source=former.source,
        )
    ]


def _computed(
    run: Run, metrics: Sequence[Metric], selection: Selection, engine: Engine, progress: Progress | None
) -> tuple[Results, str]:
    """The metrics' rows, computed; all of a whole run are kept with it.

    Ranks' answers wait on disk, so that memory holds those of one metric at a time; so do the rows, where
    they are many.
    """
    ranks = selection.ranks
    of_ranks = [metric for metric in metrics if metric.per_rank is not None]
    names = [metric.name for metric in of_ranks]
    others = run.sources
    machines = {one: machine_of(one) for one in (run, *others)}
    sent = {one: machine.without_captures() for one, machine in machines.items()}
    wanted = [
        (one, rank)
        for one in machines
        for rank in (one.ranks if ranks is None else sorted(set(ranks) & set(one.ranks)))
    ]
    tasks = [_RankTask(one.rank(rank), one.card, sent[one]) for one, rank in wanted]
    work = partial(_rank_answer, names, selection.window, selection.steps, selection.model)
    answers = {one: Answers(names) for one in machines}
    coming = iter(wanted)

    def take(answer: RankAnswers) -> None:
        one, rank = next(coming)
        answers[one].add_answer(rank, answer)

    size = sum(map(_text_bytes, tasks))
    engine.gather(work, tasks, take, progress=progress, what="computing metrics", size_bytes=size)
    told = {
        one: run_values(_run_view(one, selection, machine), metrics if one is run else of_ranks)
        for one, machine in machines.items()
    }

    def rows_by(one: Run, metric: Metric) -> list[Row]:
        found = metric_rows(
            metric,
            answers[one].values_of(metric.name) if metric.per_rank is not None else {},
            answers[one].policies,
            told[one].get(metric.name, ()),
            asked=selection.window,
            source=one.reader,
        )
        return with_caveat(with_lacking(found, one.record.ranks), one.inferred)

    def rows_of_metric(metric: Metric) -> list[Row]:
        beside = others if metric.per_rank is not None else []
        return side_by_side(rows_by(run, metric), {one.reader or "": rows_by(one, metric) for one in beside})

    results = Results.joined(table_of(rows_of_metric(metric)) for metric in metrics)
    window = policy_of(answers[run].policies.values()) or selection.window
    if selection.whole and len(metrics) == len(list(METRICS)):
        run.save_results(results, made=Made(_key(selection), window))
    return results, window


def _chosen(results: Results, chosen: Chosen) -> Results:
    """The rows of the chosen metrics, in that order."""
    known = set(results.metrics)
    chosen = [(metric, alias) for metric, alias in chosen if metric.name in known]
    if [metric.name for metric, _ in chosen] == results.metrics and not any(alias for _, alias in chosen):
        return results

    def rows(metric: MetricName, alias: Alias | None) -> pa.Table:
        own = results.of_metric(metric)
        return table_of(select_alias_rows(rows_of(own), alias)) if alias else own

    return Results.joined(rows(metric.name, alias) for metric, alias in chosen)


def _text_bytes(task: _RankTask) -> int:
    """How much text is read in the time that a rank's metrics take: at some 60 MB/s."""
    return 4_000_000 + 100 * sum(task.tables.entry.rows.values())


def _rank_answer(
    metrics: Sequence[str], window: str, steps: Steps | None, model: bool, task: _RankTask
) -> RankAnswers:
    view = _rank_view(task, window, steps)
    values = rank_rows(view, [METRICS.get(name) for name in metrics], model=model)
    return RankAnswers.of(window_policy(view, window), values.values())


def _rank_view(task: _RankTask, window: str, steps: Steps | None) -> RankView:
    tables = task.tables.keeping()
    return RankView(
        tables, rank=tables.entry.rank, window=window, steps=steps, card=task.card, machine=task.machine
    )


def _run_view(run: Run, selection: Selection, machine: Machine) -> RunView:
    """The run as its metrics see it."""

    @cache
    def of_rank(rank: int) -> RankView:
        return _rank_view(_RankTask(run.rank(rank), run.card, machine), selection.window, selection.steps)

    return RunView(
        run,
        ranks=run.ranks,
        view=of_rank,
        card=run.card,
        machine=machine,
        settings={one.name: one.facts for one in run.record.evidence},
        replayed=partial(_ratio, run, selection) if selection.model else None,
        slowdown=partial(_slowdown, run, selection) if selection.model else None,
    )


def _ratio(run: Run, selection: Selection, setting: str) -> StepRatio:
    """The run replayed under one setting, for a metric; not applicable where it is not to be."""
    from cclbench.replay.step_ratio import step_ratio

    return _of_replay(selection, partial(step_ratio, run, setting))


def _slowdown(run: Run, selection: Selection) -> StragglerSlowdown:
    """The run replayed without stragglers, for a metric; not applicable where it is not to be."""
    from cclbench.replay.stragglers import straggler_slowdown

    return _of_replay(selection, partial(straggler_slowdown, run))


def _of_replay(selection: Selection, replayed: Callable[[], Replayed]) -> Replayed:
    """What a replay gives; not applicable where none is asked for, or possible."""
    if selection.window != "steps" or not selection.whole:
        raise NotApplicable("a replay is of all ranks' steps: ask without --window, --steps and --ranks")
    if not selection.replay:
        raise NotApplicable(NOT_REPLAYED)
    try:
        return replayed()
    except ChangedRunError:
        raise
    except InputError as error:
        raise NotApplicable(error.what) from None
