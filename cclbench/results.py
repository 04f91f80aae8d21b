# SPDX-License-Identifier: Apache-2.0
"""Result rows of a run in the store: the chosen metrics on each rank, and of the run as a whole."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from cclbench import __version__, engine
from cclbench.analyzers.aliases import Alias
from cclbench.analyzers.inferred import with_caveat
from cclbench.analyzers.metric import METRICS, Metric, NotApplicable, Value
from cclbench.analyzers.rows import rank_rows, run_rows, run_values, select, window_policy
from cclbench.analyzers.run_view import Replayed, RunView
from cclbench.analyzers.sources import side_by_side
from cclbench.analyzers.view import RankView
from cclbench.engine import Progress
from cclbench.errors import InputError
from cclbench.hardware.catalog import users_own
from cclbench.normalize.steps import POLICIES
from cclbench.record.rows import Row, rows_of
from cclbench.record.run import Run
from cclbench.record.selection import Selection

Chosen = Sequence[tuple[Metric, Alias | None]]


def key(window: str, model: bool) -> str:
    """What decides all rows of a run: cclbench, its metrics' versions, the catalog, the options."""
    versions = {name: METRICS.get(name).version for name in METRICS}
    by = {"cclbench": __version__, "metrics": versions, "hardware": users_own()}
    return json.dumps({**by, "window": window, "model": model})


@dataclass(frozen=True, slots=True)
class _MetricTask:
    path: Path
    rank: int
    metrics: tuple[str, ...]
    selection: Selection


def compute(
    stored: Run, chosen: Chosen, selection: Selection, *, jobs: int, progress: Progress | None = None
) -> tuple[list[Row], str]:
    """The rows of the chosen metrics, and the window that they are about; all of a run are kept with it."""
    selection.check(stored)
    window, steps, ranks = selection.window, selection.steps, selection.ranks
    if stored.record.published is not None:
        published = stored.saved_results
        return _asked([] if published is None else rows_of(published), chosen), window
    unique = list({metric.name: metric for metric, _ in chosen}.values())
    of_ranks = [metric for metric in unique if metric.per_rank is not None]
    runs = [stored, *stored.sources]
    wanted = [
        (run, rank)
        for run in runs
        for rank in (run.ranks if ranks is None else sorted(set(ranks) & set(run.ranks)))
    ]
    names = tuple(m.name for m in of_ranks)
    tasks = [_MetricTask(run.path, rank, names, selection) for run, rank in wanted]
    computed = engine.each(_rank_metrics, tasks, jobs=jobs, progress=progress, what="computing metrics")
    answers = dict(zip([(run.path, rank) for run, rank in wanted], computed, strict=True))

    everything = len(unique) == len(list(METRICS))
    narrowed = window != "steps" or steps is not None or ranks is not None
    replayed = _replayed(stored, everything, narrowed) if selection.model else None

    def figures_of(run: Run, metrics: Sequence[Metric]) -> list[Row]:
        own = {rank: answer for (path, rank), answer in answers.items() if path == run.path}
        found = run_rows(
            metrics,
            {rank: values for rank, (values, _) in own.items()},
            {rank: policy for rank, (_, policy) in own.items()},
            run_values(_run_view(run, selection, replayed), metrics),
            asked=window,
            source=run.reader,
        )
        return with_caveat(found, run.inferred)

    others = {run.reader or "": figures_of(run, of_ranks) for run in stored.sources}
    rows = side_by_side(figures_of(stored, unique), others)
    policies = [policy for _, policy in answers.values()]
    if ranks is None and steps is None and everything:
        stored.save_results(rows, made=key(window, selection.model))
    return _asked(rows, chosen), max(policies, key=POLICIES.index, default=window)


def _asked(rows: Sequence[Row], chosen: Chosen) -> list[Row]:
    return [
        row
        for metric, alias in chosen
        for row in (select(rows, alias) if alias else [row for row in rows if row.metric == metric.name])
    ]


def _rank_metrics(task: _MetricTask) -> tuple[dict[str, list[Value]], str]:
    stored = Run(task.path)
    view = _rank_view(stored, task.rank, task.selection)
    chosen = [METRICS.get(name) for name in task.metrics]
    return rank_rows(view, chosen, model=task.selection.model), window_policy(view, task.selection.window)


def _rank_view(stored: Run, rank: int, selection: Selection) -> RankView:
    return RankView(
        stored.rank(rank), rank=rank, window=selection.window, steps=selection.steps, card=stored.card
    )


def _replayed(stored: Run, everything: bool, narrowed: bool) -> Callable[[str], Replayed]:
    """What replays the run for a metric, or says why it does not."""

    def replayed(setting: str) -> Replayed:
        from cclbench.replay.ratio import PASSING_ROWS, ratio

        if narrowed:
            raise NotApplicable("a replay is of all ranks' steps: ask without --window, --steps and --ranks")
        try:
            return ratio(stored, setting, PASSING_ROWS if everything else None)
        except InputError as error:
            raise NotApplicable(error.what) from None

    return replayed


def _run_view(stored: Run, selection: Selection, replayed: Callable[[str], Replayed] | None) -> RunView:
    def view(rank: int) -> RankView:
        return _rank_view(stored, rank, selection)

    return RunView(stored, ranks=stored.ranks, view=cache(view), card=stored.card, replayed=replayed)
