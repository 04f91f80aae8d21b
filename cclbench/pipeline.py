# SPDX-License-Identifier: Apache-2.0
"""The main job: from a source to a run with results.  The command line is a thin layer over this."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from cclbench import __version__, engine
from cclbench.analyzers.aliases import Alias
from cclbench.analyzers.inferred import with_caveat
from cclbench.analyzers.metric import METRICS, Metric, NotApplicable, Value, resolve
from cclbench.analyzers.rows import Row, rank_rows, run_rows, run_values, select, window_policy
from cclbench.analyzers.run_view import Replayed, RunView
from cclbench.analyzers.sources import side_by_side
from cclbench.analyzers.view import RankView
from cclbench.engine import Progress
from cclbench.errors import InputError, UsageError, near
from cclbench.hardware.catalog import users_own
from cclbench.ingestion import Options
from cclbench.ingestion import ingest as ingest_source
from cclbench.normalize.steps import POLICIES
from cclbench.schema import EVENTS, EVIDENCE, KINDS, RESULTS
from cclbench.source import find
from cclbench.store import Store, StoredRun

if TYPE_CHECKING:
    import pandas as pd

    from cclbench.replay.answer import Answer

Steps = tuple[int | None, int | None]


class Run:
    """A data point in the store, with the metrics computed from it.

    `rows` are the result rows as flat dicts, `results` the same as a pandas DataFrame with the columns
    of `schema.RESULTS`; the tables come as Arrow (`.to_pandas()` where you want that).
    """

    def __init__(self, stored: StoredRun, rows: Sequence[Row] = (), window: str = "steps") -> None:
        self._stored, self.rows, self.window = stored, list(rows), window

    @property
    def id(self) -> str:
        """The run's name in its store."""
        return self._stored.id

    @property
    def path(self) -> Path:
        """The run's folder."""
        return self._stored.path

    @property
    def store(self) -> Path:
        """The store's folder."""
        return self._stored.path.parent

    @property
    def manifest(self) -> dict[str, Any]:
        """What was found: source files and their hashes, ranks, counts, what was left out and why."""
        return self._stored.manifest

    @property
    def results(self) -> pd.DataFrame:
        """The result rows, columns as `schema.RESULTS`."""
        import pandas as pd

        return pd.DataFrame(self.rows, columns=RESULTS.names).astype({"rank": "Int32", "step": "Int32"})

    def events(
        self,
        *,
        rank: int | None = None,
        kinds: Sequence[str] | None = None,
        columns: Sequence[str] | None = None,
    ) -> pa.Table:
        """Rows of `schema.EVENTS`, of one rank or all, of some kinds or all, with a column `rank`."""
        wanted = _known("kind of event", KINDS if kinds is None else _listed(kinds), KINDS)
        known = [*EVENTS.names, "rank"]
        names = _known("column of events", known if columns is None else _listed(columns), known)
        schema = pa.schema([EVENTS.field(name) for name in names if name != "rank"])
        tables = [schema.empty_table().append_column("rank", pa.array([], pa.int32()))]
        for one in self._stored.ranks if rank is None else [rank]:
            table = pa.Table.from_batches(self._stored.rank(one).events(wanted, schema.names), schema)
            tables.append(table.append_column("rank", pa.repeat(pa.scalar(one, pa.int32()), len(table))))
        return pa.concat_tables(tables).unify_dictionaries()

    def collectives(self) -> pa.Table:
        """Rows of `schema.COLLECTIVES` of all ranks."""
        return self._stored.table("collectives")

    def groups(self) -> pa.Table:
        """Rows of `schema.GROUPS`: the process groups that traces state, or that were inferred."""
        return self._stored.groups()

    def steps(self) -> pa.Table:
        """Rows of `schema.STEPS` of all ranks."""
        return self._stored.table("steps")

    def evidence(self, table: str) -> pa.Table:
        """Rows of `counters`, `timings`, `requests` or `serving`: what files other than traces tell."""
        (name,) = _known("table of evidence", [table], list(EVIDENCE))
        return self._stored.evidence(name)

    def sql(self, query: str) -> pa.Table:
        """DuckDB over the tables of `schema`: events, collectives, groups, steps, results, counters, ..."""
        return self._stored.sql(query)

    def __repr__(self) -> str:
        return f"<Run {self.id}: {len(self._stored.ranks)} ranks, {len(self.rows)} result rows>"

    def _repr_html_(self) -> str:
        own = self.results
        if not len(own):
            hint = "no metrics yet: cclbench.metrics(run) computes them"
            return f"<p><b>{escape(self.id)}</b>: {len(self._stored.ranks)} ranks; {hint}</p>"
        keys = ["rank", "step", "group", "collective", "category", "stat"]
        own = own[own[keys].isna().all(axis=1)][["metric", "value", "unit", "status", "reason"]]
        return f"<p><b>{escape(self.id)}</b></p>" + str(
            own.to_html(index=False, escape=True, na_rep="", border=0)
        )


def run(
    source: str | Path,
    *,
    store: str | Path | None = None,
    metrics: Sequence[str] = ("*",),
    window: str = "steps",
    steps: Steps | None = None,
    ranks: Sequence[int] | None = None,
    jobs: int = 1,
    allow_truncated: bool = False,
    step_annotation: str | None = None,
    inference: bool = True,
    model: bool = True,
    progress: Progress | None = None,
) -> Run:
    """Ingest SOURCE (a card, a trace folder or a trace file) unless the store has it, and compute metrics.

    `jobs` processes share the work; more than one needs the usual `if __name__ == "__main__"` guard in a
    script.  `model` fills what was not measured with modelled figures and their bands, `inference` process
    groups that no trace states.  Raises `InputError` for bad input, `UsageError` for a wrong call.
    """
    chosen = resolve(_listed(metrics))
    ingested = ingest(
        source,
        store=store,
        jobs=jobs,
        allow_truncated=allow_truncated,
        step_annotation=step_annotation,
        inference=inference,
        progress=progress,
    )
    return _compute(ingested._stored, chosen, window, steps, ranks, jobs, model, progress)


def metrics(
    run: str | Path | Run,
    *,
    store: str | Path | None = None,
    metrics: Sequence[str] = ("*",),
    window: str = "steps",
    steps: Steps | None = None,
    ranks: Sequence[int] | None = None,
    jobs: int = 1,
    inference: bool = True,
    model: bool = True,
    progress: Progress | None = None,
) -> Run:
    """Compute metrics of a run in the store, or of a SOURCE, which is then ingested on demand."""
    chosen = resolve(_listed(metrics))
    stored = open_run(run, store=store, jobs=jobs, inference=inference)._stored
    return _compute(stored, chosen, window, steps, ranks, jobs, model, progress)


def full_results(
    run: Run,
    *,
    window: str = "steps",
    jobs: int = 1,
    model: bool = True,
    progress: Progress | None = None,
) -> pa.Table:
    """Rows of `schema.RESULTS` of all metrics: those in the store where they were made alike, else new ones.

    Published figures are as they are.
    """
    stored = run._stored
    kept = stored.manifest.get("published") is not None or stored.results_made == _made(window, model)
    if not kept:
        _compute(stored, resolve(["*"]), window, None, None, jobs, model, progress)
    found = stored.results
    return RESULTS.empty_table() if found is None else found


def _made(window: str, model: bool) -> str:
    """What decides the result rows of a run: cclbench, its metrics' versions, the catalog, the options."""
    versions = {name: METRICS.get(name).version for name in METRICS}
    by = {"cclbench": __version__, "metrics": versions, "hardware": users_own()}
    return json.dumps({**by, "window": window, "model": model})


def whatif(
    run: str | Path | Run,
    *sets: str,
    scenarios: Sequence[str] = (),
    sweeps: Sequence[str] = (),
    system: str | None = None,
    per_node: int | None = None,
    ranks: Sequence[int] | None = None,
    contention: float | None = 1.0,
    store: str | Path | None = None,
    jobs: int = 1,
    inference: bool = True,
) -> Answer:
    """Replay a run of the store, or of a SOURCE, under other hardware: what would the step take?

    `sets` such as `scale_up.bandwidth=x2` act together; `scenarios` and `sweeps` come on top of them.
    `system` is the catalog's machine where no card says it, `contention` how much longer kernels take beside
    communication (None: the run's own `compute.contention`).
    """
    from cclbench.replay.answer import answer
    from cclbench.replay.place import place_of

    stored = open_run(run, store=store, jobs=jobs, inference=inference)._stored
    place = place_of(stored, system=system, per_node=per_node)
    factor, notes = (contention, ()) if contention is not None else _contention(stored, ranks, jobs)
    return answer(
        stored,
        sets,
        scenarios=scenarios,
        sweeps=sweeps,
        place=place,
        ranks=ranks,
        contention=factor,
        notes=notes,
    )


def _contention(stored: StoredRun, ranks: Sequence[int] | None, jobs: int) -> tuple[float, tuple[str, ...]]:
    """The run's `compute.contention`, 1 where it is confounded or there is none, and a note that says so."""
    chosen = resolve(["compute.contention"])
    row = _compute(stored, chosen, "steps", None, ranks, jobs, False, None).rows[0]
    if row["value"] is not None and row["value"] >= 1:
        return row["value"], ()
    why = row["reason"] if row["value"] is None else f"{row['value']:.3g}, {row['reason']}"
    return 1.0, (
        f"kernels are taken to take as long beside communication as alone: compute.contention: {why}",
    )


def open_run(
    run: str | Path | Run, *, store: str | Path | None = None, jobs: int = 1, inference: bool = True
) -> Run:
    """The run of that id in the store, or of that SOURCE, ingested on demand, as `ingest` does."""
    if isinstance(run, Run):
        return run
    stored = Store(store).find(str(run))
    if stored is None and Path(run).exists():
        return ingest(run, store=store, jobs=jobs, inference=inference)
    stored = stored or Store(store).get(str(run))
    if stored.inferred and not inference:
        raise UsageError(f"run {stored.id} has inferred process groups", hint="name its SOURCE instead")
    return Run(stored)


def runs(store: str | Path | None = None) -> list[dict[str, Any]]:
    """Manifests of all runs in the store, by id."""
    return [stored.manifest for stored in Store(store).runs()]


def ingest(
    source: str | Path,
    *,
    store: str | Path | None = None,
    jobs: int = 1,
    allow_truncated: bool = False,
    step_annotation: str | None = None,
    inference: bool = True,
    progress: Progress | None = None,
) -> Run:
    """Bring SOURCE into the store, unless an unchanged copy is there; the run is whole or absent."""
    options = Options(allow_truncated, step_annotation, inference)
    return Run(ingest_source(find(source), Store(store), options, jobs=jobs, progress=progress))


def _listed(names: str | Sequence[str]) -> list[str]:
    """A lone name is a list of one."""
    return [names] if isinstance(names, str) else list(names)


def _known(noun: str, names: Sequence[str], known: Sequence[str]) -> list[str]:
    for name in names:
        if name not in known:
            raise UsageError(f"{name!r} is no {noun}", hint=near(name, known))
    return list(names)


@dataclass(frozen=True, slots=True)
class _MetricTask:
    path: Path
    rank: int
    metrics: tuple[str, ...]
    window: str
    steps: Steps | None
    model: bool


def _compute(
    stored: StoredRun,
    chosen: Sequence[tuple[Metric, Alias | None]],
    window: str,
    steps: Steps | None,
    ranks: Sequence[int] | None,
    jobs: int,
    model: bool,
    progress: Progress | None,
) -> Run:
    _known("window", [window], POLICIES)
    if steps is not None and not (isinstance(steps, tuple) and len(steps) == 2):
        raise UsageError(f"steps is {steps!r}", hint="give (first, last), either of them None")
    if ranks is not None and (isinstance(ranks, int) or not ranks):
        raise UsageError(f"ranks is {ranks!r}", hint="give a list of ranks, or None for all")
    for rank in ranks or ():
        stored.rank(rank)
    if stored.manifest.get("published") is not None:
        published = stored.results
        return Run(stored, _asked([] if published is None else published.to_pylist(), chosen), window)
    unique = list({metric.name: metric for metric, _ in chosen}.values())
    of_ranks = [metric for metric in unique if metric.per_rank is not None]
    runs = [stored, *stored.sources]
    wanted = [
        (run, rank)
        for run in runs
        for rank in (run.ranks if ranks is None else sorted(set(ranks) & set(run.ranks)))
    ]
    names = tuple(m.name for m in of_ranks)
    tasks = [_MetricTask(run.path, rank, names, window, steps, model) for run, rank in wanted]
    computed = engine.each(_rank_metrics, tasks, jobs=jobs, progress=progress, what="computing metrics")
    answers = dict(zip([(run.path, rank) for run, rank in wanted], computed, strict=True))

    everything = len(unique) == len(list(METRICS))
    narrowed = window != "steps" or steps is not None or ranks is not None
    replayed = _replayed(stored, everything, narrowed) if model else None

    def rows_of(run: StoredRun, metrics: Sequence[Metric]) -> list[Row]:
        own = {rank: answer for (path, rank), answer in answers.items() if path == run.path}
        found = run_rows(
            metrics,
            {rank: values for rank, (values, _) in own.items()},
            {rank: policy for rank, (_, policy) in own.items()},
            run_values(_run_view(run, window, steps, replayed), metrics),
            asked=window,
            source=run.reader,
        )
        return with_caveat(found, run.inferred)

    others = {run.reader or "": rows_of(run, of_ranks) for run in stored.sources}
    rows = side_by_side(rows_of(stored, unique), others)
    policies = [policy for _, policy in answers.values()]
    if ranks is None and steps is None and everything:
        stored.save_results(rows, made=_made(window, model))
    return Run(stored, _asked(rows, chosen), max(policies, key=POLICIES.index, default=window))


def _asked(rows: Sequence[Row], chosen: Sequence[tuple[Metric, Alias | None]]) -> list[Row]:
    return [
        row
        for metric, alias in chosen
        for row in (select(rows, alias) if alias else [row for row in rows if row["metric"] == metric.name])
    ]


def _rank_metrics(task: _MetricTask) -> tuple[dict[str, list[Value]], str]:
    stored = StoredRun(task.path)
    view = RankView(
        stored.rank(task.rank), rank=task.rank, window=task.window, steps=task.steps, card=stored.card
    )
    chosen = [METRICS.get(name) for name in task.metrics]
    return rank_rows(view, chosen, model=task.model), window_policy(view, task.window)


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
    stored: StoredRun, window: str, steps: Steps | None, replayed: Callable[[str], Replayed] | None
) -> RunView:
    def view(rank: int) -> RankView:
        return RankView(stored.rank(rank), rank=rank, window=window, steps=steps, card=stored.card)

    return RunView(stored, ranks=stored.ranks, view=cache(view), card=stored.card, replayed=replayed)
