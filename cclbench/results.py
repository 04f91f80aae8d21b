# SPDX-License-Identifier: Apache-2.0
"""Compute the result rows of a stored run: chosen metrics of each rank, and of the run as a whole."""

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
from cclbench.analyzers.lacking import lacking_rows, with_lacking
from cclbench.analyzers.metric import METRICS, Metric, NotApplicable, resolve_metrics
from cclbench.analyzers.rows import (
    metric_rows,
    policy_of,
    rank_rows,
    run_values,
    select_alias_rows,
    window_policy,
    with_caveat,
)
from cclbench.analyzers.view.rank_view import RankView
from cclbench.analyzers.view.run_view import RunView
from cclbench.analyzers.view.sources import side_by_side
from cclbench.engine import SERIAL, Engine, Progress
from cclbench.ground.code_hash import code_hash, module_files, plugin_files
from cclbench.ground.errors import ChangedRunError, InputError
from cclbench.hardware.catalog import user_entries_hash
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
_MOST_SPLIT: Final = 600_000_000
"""Largest work, by `_text_bytes`, of which groups of metrics are computed side by side."""
ChosenMetrics = Sequence[tuple[Metric, Alias | None]]

NOT_REPLAYED: Final = (
    "replayed only where that is asked for: by --metric with its name, or by a report or comparison of a run"
    f" of at most {PASSING_ROWS:,} rows"
)


class _RankTask(NamedTuple):
    """The input of a rank's metrics, whose size does not depend on the number of ranks."""

    tables: Rank
    card: Card | None
    machine: Machine
    metrics: Sequence[str] = ()


def compute_metrics(
    run: Run,
    chosen: ChosenMetrics,
    selection: Selection,
    *,
    engine: Engine = SERIAL,
    progress: Progress | None = None,
) -> tuple[Results, str]:
    """The rows of the chosen metrics, and their window.

    Rows in the store with the same options are reused; those of all metrics of a whole run are stored.
    """
    selection.check(run)
    if run.record.published is not None:
        return _select_results(run.saved_results or Results.from_tables(()), chosen), selection.window
    selection = _feasible_selection(selection)
    metrics = list({metric.name: metric for metric, _ in chosen}.values())
    results, window = _stored_results(run, metrics, selection) or _computed_results(
        run, metrics, selection, engine, progress
    )
    return _select_results(results, chosen), window


def full_results(
    run: Run, selection: Selection, *, engine: Engine = SERIAL, progress: Progress | None = None
) -> Results:
    """Rows of all metrics of a whole run, see `compute_metrics`; a run that is not large is replayed."""
    rows = sum(sum(entry.rows.values()) for entry in run.record.ranks)
    selection = _feasible_selection(replace(selection, replay=rows <= PASSING_ROWS))
    as_stored = run.record.published is not None or _stored_with_replays(run, selection) == selection.replay
    if as_stored and (saved := run.saved_results) is not None:
        return saved
    return compute_metrics(run, resolve_metrics(["*"]), selection, engine=engine, progress=progress)[0]


def _feasible_selection(selection: Selection) -> Selection:
    """The selection without replay, if there are no models or only a part of the run is selected."""
    possible = selection.model and selection.window == "steps" and selection.is_whole_run
    return replace(selection, replay=selection.replay and possible)


def _computation_key(selection: Selection) -> str:
    """A key of everything that determines the rows of a run: cclbench, its metrics, the catalog, options."""
    versions = {name: METRICS.get(name).version for name in METRICS}
    by = {
        "cclbench": __version__,
        "metrics": versions,
        "code": _metrics_code_hash(),
        "hardware": user_entries_hash(),
    }
    options = {"window": selection.window, "model": selection.model, "replay": selection.replay}
    return json.dumps({**by, **options})


@cache
def _metrics_code_hash() -> str:
    """The hash of the modules that compute metrics, and of plug-ins' cost models."""
    of_plugins = module_files({METRICS.origin(name) for name in METRICS})
    modules = (path for folder in analyzers.__path__ for path in Path(folder).rglob("*.py"))
    return code_hash([*modules, *of_plugins, *plugin_files("cclbench.operators")])


def _stored_with_replays(run: Run, selection: Selection) -> bool | None:
    """Whether the stored rows include replays; None if there are none with these options."""
    provenance = run.saved_by
    if provenance is None or not selection.is_whole_run:
        return None
    return {_computation_key(replace(selection, replay=replay)): replay for replay in (False, True)}.get(
        provenance.by
    )


def _stored_results(run: Run, metrics: Sequence[Metric], selection: Selection) -> tuple[Results, str] | None:
    """The stored rows of all metrics, with replays added or removed as requested."""
    replayed, provenance = _stored_with_replays(run, selection), run.saved_by
    results = None if replayed is None else run.saved_results
    if provenance is None or results is None:
        return None
    if selection.replay and not replayed and any(metric.is_replayed for metric in metrics):
        results = _with_replays(results, partial(_replayed_rows, run, selection))
        run.save_results(results, provenance=Made(_computation_key(selection), provenance.window))
    elif replayed and not selection.replay:
        results = _with_replays(results, _not_replayed_rows)
    return results, provenance.window


def _with_replays(results: Results, instead: Callable[[Row], list[Row]]) -> Results:
    """The rows, with `instead` applied to the first one of each metric that replays the run."""

    def rows_of_metric(metric: MetricName) -> pa.Table:
        former = results.metric_rows(metric)
        replays = METRICS.get(metric).is_replayed
        return table_of(instead(rows_of(former.slice(0, 1))[0])) if replays else former

    return Results.from_tables(map(rows_of_metric, results.metrics))


def _replayed_rows(run: Run, selection: Selection, former: Row) -> list[Row]:
    """The rows of the metric of `former`, which replays the run."""
    metric = METRICS.get(former.metric)
    values = run_values(_run_view(run, selection, machine_of(run)), [metric])
    rows = metric_rows(metric, {}, {}, values[metric.name], default_window=former.window, source=run.reader)
    return with_caveat(rows, run.inference_note)


def _not_replayed_rows(former: Row) -> list[Row]:
    """A row without value for the metric of `former`, whose reason says how to request the replay."""
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


def _computed_results(
    run: Run, metrics: Sequence[Metric], selection: Selection, engine: Engine, progress: Progress | None
) -> tuple[Results, str]:
    """Compute the metrics' rows; those of all metrics of a whole run are saved with it.

    Answers of ranks are kept on disk, so that memory holds those of one metric at a time; so are many rows.
    """
    ranks = selection.ranks
    of_ranks = [metric for metric in metrics if metric.per_rank is not None]
    names = [metric.name for metric in of_ranks]
    sources = run.sources
    machines = {member: machine_of(member) for member in (run, *sources)}
    sent = {member: machine.without_captures() for member, machine in machines.items()}
    pairs = [
        (member, rank)
        for member in machines
        for rank in (member.ranks if ranks is None else sorted(set(ranks) & set(member.ranks)))
    ]
    size = sum(_text_bytes(member.rank(rank)) for member, rank in pairs)
    # Groups of metrics share little work. Of few ranks they run side by side, where that takes no more
    # memory than one large rank does.
    few = len(pairs) < engine.workers and size <= _MOST_SPLIT
    groups = _metric_groups(names) if few and engine.is_worthwhile(engine.workers, size) else [names]
    rank_groups = [(*pair, group) for pair in pairs for group in groups]
    tasks = [
        _RankTask(member.rank(rank), member.card, sent[member], group) for member, rank, group in rank_groups
    ]
    work = partial(_rank_answer, selection.window, selection.steps, selection.model)
    answers = {member: Answers(names) for member in machines}
    remaining = iter(rank_groups)

    def take_answer(answer: RankAnswers) -> None:
        member, rank, _ = next(remaining)
        answers[member].add_answer(rank, answer)

    engine.gather(work, tasks, take_answer, progress=progress, what="computing metrics", size_bytes=size)
    values_of_run = {
        member: run_values(_run_view(member, selection, machine), metrics if member is run else of_ranks)
        for member, machine in machines.items()
    }

    lacking = {member: lacking_rows(member.record.ranks) for member in machines}

    def rows_by(member: Run, metric: Metric) -> list[Row]:
        metric_result = metric_rows(
            metric,
            answers[member].values_of(metric.name) if metric.per_rank is not None else {},
            answers[member].policies,
            values_of_run[member].get(metric.name, ()),
            default_window=selection.window,
            source=member.reader,
        )
        return with_caveat(with_lacking(metric_result, lacking[member]), member.inference_note)

    def rows_of_metric(metric: Metric) -> list[Row]:
        further = sources if metric.per_rank is not None else []
        return side_by_side(
            rows_by(run, metric), {member.reader or "": rows_by(member, metric) for member in further}
        )

    results = Results.from_tables(table_of(rows_of_metric(metric)) for metric in metrics)
    window = policy_of(answers[run].policies.values()) or selection.window
    if selection.is_whole_run and len(metrics) == len(list(METRICS)):
        run.save_results(results, provenance=Made(_computation_key(selection), window))
    return results, window


def _select_results(results: Results, chosen: ChosenMetrics) -> Results:
    """The rows of the chosen metrics, in that order."""
    computed = set(results.metrics)
    chosen = [(metric, alias) for metric, alias in chosen if metric.name in computed]
    if [metric.name for metric, _ in chosen] == results.metrics and not any(alias for _, alias in chosen):
        return results

    def rows_of_metric(metric: MetricName, alias: Alias | None) -> pa.Table:
        table = results.metric_rows(metric)
        return table_of(select_alias_rows(rows_of(table), alias)) if alias else table

    return Results.from_tables(rows_of_metric(metric.name, alias) for metric, alias in chosen)


def _metric_groups(names: Sequence[str]) -> list[list[str]]:
    """The metrics by the first word of their names, the largest group first."""
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(name.partition(".")[0], []).append(name)
    return sorted(groups.values(), key=len, reverse=True)


def _text_bytes(tables: Rank) -> int:
    """The work of a rank's metrics, as bytes of text read in the same time, at about 60 MB/s."""
    return 4_000_000 + 100 * sum(tables.entry.rows.values())


def _rank_answer(window: str, steps: Steps | None, model: bool, task: _RankTask) -> RankAnswers:
    view = _rank_view(task, window, steps)
    values = rank_rows(view, [METRICS.get(name) for name in task.metrics], model=model)
    return RankAnswers.from_values(window_policy(view, window), values)


def _rank_view(task: _RankTask, window: str, steps: Steps | None) -> RankView:
    tables = task.tables.with_column_cache()
    return RankView(
        tables, rank=tables.entry.rank, window=window, steps=steps, card=task.card, machine=task.machine
    )


def _run_view(run: Run, selection: Selection, machine: Machine) -> RunView:
    """The view of the run for its metrics."""

    @cache
    def cached_view(rank: int) -> RankView:
        return _rank_view(_RankTask(run.rank(rank), run.card, machine), selection.window, selection.steps)

    return RunView(
        run,
        ranks=run.ranks,
        view=cached_view,
        card=run.card,
        machine=machine,
        settings={file.name: file.facts for file in run.record.evidence},
        replayed=partial(_replay_ratio, run, selection) if selection.model else None,
        slowdown=partial(_straggler_slowdown, run, selection) if selection.model else None,
    )


def _replay_ratio(run: Run, selection: Selection, setting: str) -> StepRatio:
    """Replay the run under one setting; `NotApplicable` if no replay is requested or possible."""
    from cclbench.replay.step_ratio import step_ratio

    return _require_replay(selection, partial(step_ratio, run, setting))


def _straggler_slowdown(run: Run, selection: Selection) -> StragglerSlowdown:
    """Replay the run without stragglers; `NotApplicable` if no replay is requested or possible."""
    from cclbench.replay.stragglers import straggler_slowdown

    return _require_replay(selection, partial(straggler_slowdown, run))


def _require_replay(selection: Selection, replayed: Callable[[], Replayed]) -> Replayed:
    """The result of a replay; `NotApplicable` if none is requested or possible."""
    if selection.window != "steps" or not selection.is_whole_run:
        raise NotApplicable("a replay is of all ranks' steps: ask without --window, --steps and --ranks")
    if not selection.replay:
        raise NotApplicable(NOT_REPLAYED)
    try:
        return replayed()
    except ChangedRunError:
        raise
    except InputError as error:
        raise NotApplicable(error.what) from None
