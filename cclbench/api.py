# SPDX-License-Identifier: Apache-2.0
"""The main job: from a source to a run with results.  The command line is a thin layer over this."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cclbench import results
from cclbench.analyzers.metric import resolve
from cclbench.engine import PROCESSES, SERIAL, Engine, Progress, engine_for
from cclbench.errors import InputError, UsageError
from cclbench.findings.diagnosis import Diagnosis, diagnosis
from cclbench.ingestion import ingest as ingest_source
from cclbench.machine import Machine, machine_of
from cclbench.record.manifest import Options
from cclbench.record.metric_name import metric_name
from cclbench.record.remote_store import store_at
from cclbench.record.results import Results
from cclbench.record.run import Run
from cclbench.record.selection import Selection, Steps
from cclbench.results import Chosen
from cclbench.source import found_at

if TYPE_CHECKING:
    from distributed import Client

    from cclbench.export.folder import Format, Written
    from cclbench.replay.answer import ReplayResult
    from cclbench.replay.search import Goal, SearchResult

_TOKENS_PER_DEVICE: Final = metric_name("throughput.tokens_per_device")
_CONTENTION: Final = metric_name("compute.contention")


def run(
    source: str | Path,
    *,
    store: str | Path | None = None,
    metrics: Sequence[str] = ("*",),
    window: str = "steps",
    steps: Steps | None = None,
    ranks: Sequence[int] | None = None,
    jobs: int = 1,
    engine: Engine | str = PROCESSES,
    client: Client | None = None,
    allow_truncated: bool = False,
    step_annotation: str | None = None,
    inference: bool = True,
    model: bool = True,
    progress: Progress | None = None,
) -> Run:
    """Ingest SOURCE (a card, a trace folder or a trace file) unless the store has it, and compute metrics.

    SOURCE may be the id of a run in the store, too; SOURCE and `store` may be URLs, such as
    `s3://bucket/job`. What the store has of the same options is not computed again; metrics that replay the
    run (`whatif.*`) do so where `metrics` names them.
    `jobs` processes share the work; more than one needs the usual `if __name__ == "__main__"` guard in a
    script.  `engine` and `client` put a Dask cluster in their place, see `engine.engine_of`.  `model` fills
    what was not measured with modelled figures and their bands, `inference` process groups that no trace
    states.  Raises `InputError` for bad input, `UsageError` for a wrong call.
    """
    chosen, replay = _chosen(metrics)
    with engine_for(engine, jobs, client) as runs_on:
        opened = open_run(
            source,
            store=store,
            engine=runs_on,
            allow_truncated=allow_truncated,
            step_annotation=step_annotation,
            inference=inference,
            progress=progress,
        )
        return _computed(opened, chosen, Selection(window, steps, ranks, model, replay), runs_on, progress)


def metrics(
    run: str | Path | Run,
    *,
    store: str | Path | None = None,
    metrics: Sequence[str] = ("*",),
    window: str = "steps",
    steps: Steps | None = None,
    ranks: Sequence[int] | None = None,
    jobs: int = 1,
    engine: Engine | str = PROCESSES,
    client: Client | None = None,
    inference: bool = True,
    model: bool = True,
    progress: Progress | None = None,
) -> Run:
    """Compute metrics of a run in the store, or of a SOURCE, which is then ingested on demand.

    What the store has of the same options is not computed again.
    """
    chosen, replay = _chosen(metrics)
    with engine_for(engine, jobs, client) as runs_on:
        opened = open_run(run, store=store, engine=runs_on, inference=inference)
        return _computed(opened, chosen, Selection(window, steps, ranks, model, replay), runs_on, progress)


def diagnose(run: str | Path | Run, **options: Any) -> Diagnosis:
    """What makes a run of the store, or of a SOURCE, slow: findings, by what a step would gain without each.

    `options` are those of `metrics`, but for `metrics` itself.
    """
    return diagnosis(metrics(run, **options))


def full_results(
    run: Run,
    *,
    window: str = "steps",
    engine: Engine = SERIAL,
    model: bool = True,
    progress: Progress | None = None,
) -> Results:
    """The rows of all metrics: those in the store where they were made alike, else new ones.

    Published figures are as they are.
    """
    selection = Selection(window, model=model)
    return results.full_results(run, selection, engine=engine, progress=progress)


def whatif(
    run: str | Path | Run,
    *sets: str,
    scenarios: Sequence[str | Path] = (),
    sweeps: Sequence[str] = (),
    system: str | None = None,
    force_system: bool = False,
    per_node: int | None = None,
    ranks: Sequence[int] | None = None,
    contention: float | None = 1.0,
    store: str | Path | None = None,
    jobs: int = 1,
    engine: Engine | str = PROCESSES,
    client: Client | None = None,
    inference: bool = True,
) -> ReplayResult:
    """Replay a run of the store, or of a SOURCE, under other hardware: what would the step take?

    `sets` such as `scale_up.bandwidth=x2` act together; `scenarios`, settings with commas or files
    of them, and `sweeps` come on top of them.
    `system` is the catalog's machine where no card says it, refused where the traces name another device
    unless `force_system`; `contention` how much longer kernels take beside
    communication (None: the run's own `compute.contention`).
    """
    from cclbench.replay.answer import answer

    with engine_for(engine, jobs, client) as runs_on:
        opened = open_run(run, store=store, engine=runs_on, inference=inference)
        machine = _machine(opened, system, force_system, per_node)
        factor, notes = (contention, ()) if contention is not None else _contention(opened, ranks, runs_on)
    return answer(
        opened,
        sets,
        scenarios=scenarios,
        sweeps=sweeps,
        machine=machine,
        ranks=ranks,
        contention=factor,
        notes=notes,
    )


def export(
    run: str | Path | Run,
    folder: str | Path,
    form: Format = "chakra",
    *,
    system: str | None = None,
    per_node: int | None = None,
    ranks: Sequence[int] | None = None,
    check: bool = False,
    store: str | Path | None = None,
    inference: bool = True,
    progress: Progress | None = None,
) -> Written:
    """Write a run's graph, as `whatif` replays it, for simulators: `chakra` execution traces, or `astra-sim`.

    `system` is the catalog's machine where no card says it.  The folder is made whole or not at all; `check`
    reads it back and replays it by its dependencies alone.
    """
    from cclbench.export.folder import write_folder

    opened = open_run(run, store=store, inference=inference, progress=progress)
    machine = machine_of(opened, system=system, per_node=per_node)
    return write_folder(
        opened, Path(folder), form, machine=machine, ranks=ranks, check=check, progress=progress
    )


def search(
    run: str | Path | Run,
    space: str | Path,
    *,
    objective: Goal = "step",
    constraints: Sequence[str] = (),
    trials: int | None = None,
    seed: int = 0,
    system: str | None = None,
    force_system: bool = False,
    per_node: int | None = None,
    store: str | Path | None = None,
    jobs: int = 1,
    engine: Engine | str = PROCESSES,
    client: Client | None = None,
    inference: bool = True,
) -> SearchResult:
    """Replay a run under the scenarios of a search space, a YAML file, and rank them.

    All scenarios where there are few, else at most `trials`, chosen by chance and descent, the same for a
    `seed`.  `constraints` such as `cost<=100`, `devices<=64` or `step<=12ms` make others infeasible;
    `InputError` where tokens are the objective and nothing tells how many a step has.  `system`,
    `force_system` and `per_node` are those of `whatif`.
    """
    from cclbench.replay.answer import Replay
    from cclbench.replay.search import limit
    from cclbench.replay.search import search as searched
    from cclbench.replay.space import read_space

    asked, limits = read_space(Path(space)), [limit(text) for text in constraints]
    with engine_for(engine, jobs, client) as runs_on:
        opened = open_run(run, store=store, engine=runs_on, inference=inference)
        machine = _machine(opened, system, force_system, per_node)
        tokens = None
        if objective == "tokens_per_second_per_device":
            chosen = resolve([_TOKENS_PER_DEVICE])
            rows, _ = results.compute(opened, chosen, Selection(model=False), engine=runs_on)
            row = next(one for one in rows if not one.narrowed)
            if row.value is None:
                raise InputError(f"tokens a second are not known: {row.reason}", where=opened.id)
            tokens = row.value
    replay = Replay(opened, machine=machine)
    return searched(replay, asked, goal=objective, limits=limits, trials=trials, seed=seed, tokens=tokens)


def _machine(run: Run, system: str | None, force_system: bool, per_node: int | None) -> Machine:
    """The run's machine; `UsageError` where the traces name another device than the `system` given."""
    machine = machine_of(run, system=system, per_node=per_node)
    if machine.other_device is not None and not force_system:
        hint = "--force-system takes it nevertheless"
        raise UsageError(f"--system {machine.other_device}", hint=hint)
    return machine


def _contention(run: Run, ranks: Sequence[int] | None, engine: Engine) -> tuple[float, tuple[str, ...]]:
    """The run's `compute.contention`, 1 where it is confounded or there is none, and a note that says so."""
    chosen = resolve([_CONTENTION])
    found, _ = results.compute(run, chosen, Selection(ranks=ranks, model=False), engine=engine)
    row = next(iter(found))
    if row.value is not None and row.value >= 1:
        return row.value, ()
    why = row.reason if row.value is None else f"{row.value:.3g}, {row.reason}"
    return 1.0, (
        f"kernels are taken to take as long beside communication as alone: compute.contention: {why}",
    )


def open_run(
    run: str | Path | Run,
    *,
    store: str | Path | None = None,
    engine: Engine = SERIAL,
    allow_truncated: bool = False,
    step_annotation: str | None = None,
    inference: bool = True,
    progress: Progress | None = None,
) -> Run:
    """The run of that id in the store, or of that SOURCE, ingested on demand, as `ingest` does."""
    if isinstance(run, Run):
        return run
    kept = store_at(store)
    stored = kept.find(str(run))
    if stored is None and (Path(run).expanduser().exists() or Path(run).name != str(run)):
        options = Options(allow_truncated, step_annotation, inference)
        with found_at(run, progress) as found:
            return ingest_source(found, kept, options, engine=engine, progress=progress)
    stored = stored or kept.get(str(run))
    if allow_truncated or step_annotation is not None:
        raise UsageError(f"run {stored.id} is read already", hint="name its SOURCE to read it in another way")
    if stored.inferred and not inference:
        raise UsageError(f"run {stored.id} has inferred process groups", hint="name its SOURCE instead")
    return stored


def _computed(
    run: Run, chosen: Chosen, selection: Selection, engine: Engine, progress: Progress | None
) -> Run:
    figures, window = results.compute(run, chosen, selection, engine=engine, progress=progress)
    return run.with_figures(figures, window)


def runs(store: str | Path | None = None) -> list[dict[str, Any]]:
    """Manifests of all runs in the store, by id."""
    return [stored.manifest for stored in store_at(store).runs()]


def ingest(
    source: str | Path,
    *,
    store: str | Path | None = None,
    jobs: int = 1,
    engine: Engine | str = PROCESSES,
    client: Client | None = None,
    allow_truncated: bool = False,
    step_annotation: str | None = None,
    inference: bool = True,
    progress: Progress | None = None,
) -> Run:
    """Bring SOURCE into the store, unless an unchanged copy is there; the run is whole or absent."""
    options = Options(allow_truncated, step_annotation, inference)
    with engine_for(engine, jobs, client) as runs_on, found_at(source, progress) as found:
        return ingest_source(found, store_at(store), options, engine=runs_on, progress=progress)


def _chosen(patterns: str | Sequence[str]) -> tuple[Chosen, bool]:
    """The metrics that patterns ask for, of which a lone one is a list of one; whether any is to replay.

    `*`, all there is, asks for no replay.
    """
    listed = [patterns] if isinstance(patterns, str) else list(patterns)
    named = resolve(pattern for pattern in listed if pattern != "*")
    return resolve(listed), any(metric.replays for metric, _ in named)
