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
from cclbench.analyzers.rows import Row, rank_rows, run_rows, run_values, select, window_policy
from cclbench.analyzers.run_view import Replayed, RunView
from cclbench.analyzers.sources import side_by_side
from cclbench.analyzers.view import RankView
from cclbench.engine import Progress
from cclbench.errors import InputError, UsageError, near
from cclbench.hardware.catalog import users_own
from cclbench.machine import Machine, machine_of
from cclbench.normalize.steps import POLICIES
from cclbench.store import StoredRun

Steps = tuple[int | None, int | None]
Chosen = Sequence[tuple[Metric, Alias | None]]
_LISTED = 20


@dataclass(frozen=True, slots=True)
class Selection:
    """What of a run its rows are about; `model`: with modelled figures where a measurement is missing."""

    window: str = "steps"
    steps: Steps | None = None
    """The first and the one after the last, either of them None."""
    ranks: Sequence[int] | None = None
    model: bool = True

    def check(self, stored: StoredRun) -> None:
        """`UsageError` for what is no selection, or chooses nothing of the run."""
        if self.window not in POLICIES:
            raise UsageError(f"{self.window!r} is no window", hint=near(self.window, POLICIES))
        if self.steps is not None and not (isinstance(self.steps, tuple) and len(self.steps) == 2):
            raise UsageError(f"steps is {self.steps!r}", hint="give (first, last), either of them None")
        if self.ranks is not None and (isinstance(self.ranks, int) or not self.ranks):
            raise UsageError(f"ranks is {self.ranks!r}", hint="give a list of ranks, or None for all")
        for rank in self.ranks or ():
            stored.rank(rank)
        if self.steps is not None:
            self._check_steps(stored, *self.steps)

    def _check_steps(self, stored: StoredRun, first: int | None, last: int | None) -> None:
        steps = {
            step
            for run in (stored, *stored.sources)
            for step in run.table("steps")["step"].drop_null().unique().to_pylist()
        }
        least, end = 0 if first is None else first, float("inf") if last is None else last
        if any(least <= step < end for step in steps):
            return
        asked = f"{'' if first is None else first}:{'' if last is None else last}"
        listed = ", ".join(map(str, sorted(steps)[:_LISTED])) + (", ..." if len(steps) > _LISTED else "")
        hint = f"the steps are {listed}" if steps else "ask for the whole trace: --window trace"
        what = f"no step lies in {asked}" if steps else "the trace marks no steps to choose from"
        raise UsageError(what, where=stored.id, hint=hint)


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
    machine: Machine


def compute(
    stored: StoredRun, chosen: Chosen, selection: Selection, *, jobs: int, progress: Progress | None = None
) -> tuple[list[Row], str]:
    """The rows of the chosen metrics, and the window that they are about; all of a run are kept with it."""
    selection.check(stored)
    window, steps, ranks = selection.window, selection.steps, selection.ranks
    if stored.manifest.get("published") is not None:
        published = stored.results
        return _asked([] if published is None else published.to_pylist(), chosen), window
    unique = list({metric.name: metric for metric, _ in chosen}.values())
    of_ranks = [metric for metric in unique if metric.per_rank is not None]
    runs = [stored, *stored.sources]
    wanted = [
        (run, rank)
        for run in runs
        for rank in (run.ranks if ranks is None else sorted(set(ranks) & set(run.ranks)))
    ]
    names = tuple(m.name for m in of_ranks)
    machines = {run.path: machine_of(run) for run in runs}
    tasks = [_MetricTask(run.path, rank, names, selection, machines[run.path]) for run, rank in wanted]
    computed = engine.each(_rank_metrics, tasks, jobs=jobs, progress=progress, what="computing metrics")
    answers = dict(zip([(run.path, rank) for run, rank in wanted], computed, strict=True))

    everything = len(unique) == len(list(METRICS))
    narrowed = window != "steps" or steps is not None or ranks is not None
    replayed = _replayed(stored, everything, narrowed) if selection.model else None

    def rows_of(run: StoredRun, metrics: Sequence[Metric]) -> list[Row]:
        own = {rank: answer for (path, rank), answer in answers.items() if path == run.path}
        found = run_rows(
            metrics,
            {rank: values for rank, (values, _) in own.items()},
            {rank: policy for rank, (_, policy) in own.items()},
            run_values(_run_view(run, selection, machines[run.path], replayed), metrics),
            asked=window,
            source=run.reader,
        )
        return with_caveat(found, run.inferred)

    others = {run.reader or "": rows_of(run, of_ranks) for run in stored.sources}
    rows = side_by_side(rows_of(stored, unique), others)
    policies = [policy for _, policy in answers.values()]
    if ranks is None and steps is None and everything:
        stored.save_results(rows, made=key(window, selection.model))
    return _asked(rows, chosen), max(policies, key=POLICIES.index, default=window)


def _asked(rows: Sequence[Row], chosen: Chosen) -> list[Row]:
    return [
        row
        for metric, alias in chosen
        for row in (select(rows, alias) if alias else [row for row in rows if row["metric"] == metric.name])
    ]


def _rank_metrics(task: _MetricTask) -> tuple[dict[str, list[Value]], str]:
    stored = StoredRun(task.path)
    view = _rank_view(stored, task.rank, task.selection, task.machine)
    chosen = [METRICS.get(name) for name in task.metrics]
    return rank_rows(view, chosen, model=task.selection.model), window_policy(view, task.selection.window)


def _rank_view(stored: StoredRun, rank: int, selection: Selection, machine: Machine) -> RankView:
    return RankView(
        stored.rank(rank),
        rank=rank,
        window=selection.window,
        steps=selection.steps,
        card=stored.card,
        machine=machine,
    )


def _replayed(stored: StoredRun, everything: bool, narrowed: bool) -> Callable[[str], Replayed]:
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


def _run_view(
    stored: StoredRun,
    selection: Selection,
    machine: Machine,
    replayed: Callable[[str], Replayed] | None,
) -> RunView:
    def view(rank: int) -> RankView:
        return _rank_view(stored, rank, selection, machine)

    return RunView(stored, ranks=stored.ranks, view=cache(view), card=stored.card, replayed=replayed)
