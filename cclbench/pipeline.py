# SPDX-License-Identifier: Apache-2.0
"""The main job: from a source to a run with results.  The command line is a thin layer over this."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from cclbench.analyzers.metric import resolve
from cclbench.analyzers.rows import Row
from cclbench.engine import Progress
from cclbench.errors import UsageError, near
from cclbench.ingestion import Options
from cclbench.ingestion import ingest as ingest_source
from cclbench.results import Chosen, Selection, Steps, compute, key
from cclbench.schema import EVENTS, EVIDENCE, KINDS, RESULTS
from cclbench.source import find
from cclbench.store import Store, StoredRun

if TYPE_CHECKING:
    import pandas as pd

    from cclbench.replay.answer import Answer


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

    SOURCE may be the id of a run in the store, too.
    `jobs` processes share the work; more than one needs the usual `if __name__ == "__main__"` guard in a
    script.  `model` fills what was not measured with modelled figures and their bands, `inference` process
    groups that no trace states.  Raises `InputError` for bad input, `UsageError` for a wrong call.
    """
    chosen = resolve(_listed(metrics))
    opened = open_run(
        source,
        store=store,
        jobs=jobs,
        allow_truncated=allow_truncated,
        step_annotation=step_annotation,
        inference=inference,
        progress=progress,
    )
    return _computed(opened, chosen, Selection(window, steps, ranks, model), jobs, progress)


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
    opened = open_run(run, store=store, jobs=jobs, inference=inference)
    return _computed(opened, chosen, Selection(window, steps, ranks, model), jobs, progress)


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
    kept = stored.manifest.get("published") is not None or stored.results_made == key(window, model)
    if not kept:
        compute(stored, resolve(["*"]), Selection(window, model=model), jobs=jobs, progress=progress)
    found = stored.results
    return RESULTS.empty_table() if found is None else found


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
    from cclbench.machine import machine_of
    from cclbench.replay.answer import answer

    stored = open_run(run, store=store, jobs=jobs, inference=inference)._stored
    factor, notes = (contention, ()) if contention is not None else _contention(stored, ranks, jobs)
    return answer(
        stored,
        sets,
        scenarios=scenarios,
        sweeps=sweeps,
        machine=machine_of(stored, system=system, per_node=per_node),
        ranks=ranks,
        contention=factor,
        notes=notes,
    )


def _contention(stored: StoredRun, ranks: Sequence[int] | None, jobs: int) -> tuple[float, tuple[str, ...]]:
    """The run's `compute.contention`, 1 where it is confounded or there is none, and a note that says so."""
    chosen = resolve(["compute.contention"])
    row = compute(stored, chosen, Selection(ranks=ranks, model=False), jobs=jobs)[0][0]
    if row["value"] is not None and row["value"] >= 1:
        return row["value"], ()
    why = row["reason"] if row["value"] is None else f"{row['value']:.3g}, {row['reason']}"
    return 1.0, (
        f"kernels are taken to take as long beside communication as alone: compute.contention: {why}",
    )


def open_run(
    run: str | Path | Run,
    *,
    store: str | Path | None = None,
    jobs: int = 1,
    allow_truncated: bool = False,
    step_annotation: str | None = None,
    inference: bool = True,
    progress: Progress | None = None,
) -> Run:
    """The run of that id in the store, or of that SOURCE, ingested on demand, as `ingest` does."""
    if isinstance(run, Run):
        return run
    stored = Store(store).find(str(run))
    if stored is None and (Path(run).expanduser().exists() or Path(run).name != str(run)):
        options = Options(allow_truncated, step_annotation, inference)
        return Run(ingest_source(find(run), Store(store), options, jobs=jobs, progress=progress))
    stored = stored or Store(store).get(str(run))
    if allow_truncated or step_annotation is not None:
        raise UsageError(f"run {stored.id} is read already", hint="name its SOURCE to read it in another way")
    if stored.inferred and not inference:
        raise UsageError(f"run {stored.id} has inferred process groups", hint="name its SOURCE instead")
    return Run(stored)


def _computed(run: Run, chosen: Chosen, selection: Selection, jobs: int, progress: Progress | None) -> Run:
    rows, window = compute(run._stored, chosen, selection, jobs=jobs, progress=progress)
    return Run(run._stored, rows, window)


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
