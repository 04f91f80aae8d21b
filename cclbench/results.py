# SPDX-License-Identifier: Apache-2.0
"""Result rows of a run in the store: the chosen metrics on each rank, and of the run as a whole."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from cclbench import __version__
from cclbench.analyzers.aliases import Alias
from cclbench.analyzers.metric import METRICS, Metric, NotApplicable, Value
from cclbench.analyzers.rows import rank_rows, run_rows, run_values, select, window_policy, with_caveat
from cclbench.analyzers.view.rank_view import RankView
from cclbench.analyzers.view.run_view import RunView
from cclbench.analyzers.view.sources import side_by_side
from cclbench.engine import SERIAL, Engine, Progress
from cclbench.errors import InputError
from cclbench.hardware.catalog import users_own
from cclbench.machine import Machine, machine_of
from cclbench.normalize.steps import POLICIES
from cclbench.record.rows import Row, rows_of
from cclbench.record.run import Run
from cclbench.record.selection import Selection

if TYPE_CHECKING:
    from cclbench.replay.answer import Ratio

Chosen = Sequence[tuple[Metric, Alias | None]]


def key(window: str, model: bool) -> str:
    """What decides all rows of a run: cclbench, its metrics' versions, the catalog, the options."""
    versions = {name: METRICS.get(name).version for name in METRICS}
    by = {"cclbench": __version__, "metrics": versions, "hardware": users_own()}
    return json.dumps({**by, "window": window, "model": model})


def compute(
    run: Run,
    chosen: Chosen,
    selection: Selection,
    *,
    engine: Engine = SERIAL,
    progress: Progress | None = None,
) -> tuple[list[Row], str]:
    """The rows of the chosen metrics, and the window that they are about; all of a run are kept with it."""
    selection.check(run)
    window, steps, ranks = selection.window, selection.steps, selection.ranks
    if run.record.published is not None:
        published = run.saved_results
        return _chosen_rows([] if published is None else rows_of(published), chosen), window
    unique = list({metric.name: metric for metric, _ in chosen}.values())
    of_ranks = [metric for metric in unique if metric.per_rank is not None]
    runs = [run, *run.sources]
    machines = {one.path: machine_of(one) for one in runs}
    wanted = [
        (one.path, rank)
        for one in runs
        for rank in (one.ranks if ranks is None else sorted(set(ranks) & set(one.ranks)))
    ]
    work = partial(_rank_metrics, machines, [metric.name for metric in of_ranks], selection)
    computed = engine.map(work, wanted, progress=progress, what="computing metrics")
    answers = dict(zip(wanted, computed, strict=True))

    everything = len(unique) == len(list(METRICS))
    narrowed = window != "steps" or steps is not None or ranks is not None
    replayed = _replayed(run, everything, narrowed) if selection.model else None

    def figures_of(one: Run, metrics: Sequence[Metric]) -> list[Row]:
        own = {rank: answer for (path, rank), answer in answers.items() if path == one.path}
        of_rank = cache(partial(_rank_view, one, selection=selection, machine=machines[one.path]))
        view = RunView(one, ranks=one.ranks, view=of_rank, card=one.card, replayed=replayed)
        found = run_rows(
            metrics,
            {rank: values for rank, (values, _) in own.items()},
            {rank: policy for rank, (_, policy) in own.items()},
            run_values(view, metrics),
            asked=window,
            source=one.reader,
        )
        return with_caveat(found, one.inferred)

    others = {one.reader or "": figures_of(one, of_ranks) for one in runs[1:]}
    rows = side_by_side(figures_of(run, unique), others)
    policies = [policy for _, policy in answers.values()]
    if ranks is None and steps is None and everything:
        run.save_results(rows, made=key(window, selection.model))
    return _chosen_rows(rows, chosen), max(policies, key=POLICIES.index, default=window)


def _chosen_rows(rows: Sequence[Row], chosen: Chosen) -> list[Row]:
    return [
        row
        for metric, alias in chosen
        for row in (select(rows, alias) if alias else [row for row in rows if row.metric == metric.name])
    ]


def _rank_metrics(
    machines: Mapping[Path, Machine], metrics: Sequence[str], selection: Selection, of: tuple[Path, int]
) -> tuple[dict[str, list[Value]], str]:
    path, rank = of
    view = _rank_view(Run(path), rank, selection, machines[path])
    chosen = [METRICS.get(name) for name in metrics]
    return rank_rows(view, chosen, model=selection.model), window_policy(view, selection.window)


def _rank_view(run: Run, rank: int, selection: Selection, machine: Machine) -> RankView:
    window, steps = selection.window, selection.steps
    return RankView(run.rank(rank), rank=rank, window=window, steps=steps, card=run.card, machine=machine)


def _replayed(run: Run, everything: bool, narrowed: bool) -> Callable[[str], Ratio]:
    """What replays the run for a metric, or says why it does not."""

    def replayed(setting: str) -> Ratio:
        from cclbench.replay.answer import PASSING_ROWS, ratio

        if narrowed:
            raise NotApplicable("a replay is of all ranks' steps: ask without --window, --steps and --ranks")
        try:
            return ratio(run, setting, PASSING_ROWS if everything else None)
        except InputError as error:
            raise NotApplicable(error.what) from None

    return replayed
