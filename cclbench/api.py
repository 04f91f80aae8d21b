# SPDX-License-Identifier: Apache-2.0
"""The public functions: from a source to a run with results.  The command line is a thin layer over this.

`options` of each function are those of `workspace`: `store`, `jobs`, `engine`, `inference` and others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Unpack

from cclbench import results
from cclbench.analyzers.metric import resolve_metrics
from cclbench.engine import Engine
from cclbench.ground.errors import InputError, UsageError
from cclbench.machine import Machine, machine_of
from cclbench.record.metric_name import metric_name
from cclbench.record.run import Run
from cclbench.record.selection import Selection, Steps
from cclbench.results import ChosenMetrics
from cclbench.workspace import WorkspaceOptions, store_at, takes_options, workspace

if TYPE_CHECKING:
    from cclbench.export.figure_files import FigureFormat
    from cclbench.export.folder import ExportedFolder, Format
    from cclbench.record.store import Store
    from cclbench.replay.projection import Projection
    from cclbench.replay.result import ReplayResult
    from cclbench.replay.search import Goal, SearchResult

_TOKENS_PER_DEVICE: Final = metric_name("throughput.tokens_per_device")
_CONTENTION: Final = metric_name("compute.contention")


@takes_options
def run(
    source: str | Path | Run,
    *,
    metrics: Sequence[str] = ("*",),
    window: str = "steps",
    steps: Steps | None = None,
    ranks: Sequence[int] | None = None,
    model: bool = True,
    labels: Mapping[str, str] | None = None,
    **options: Unpack[WorkspaceOptions],
) -> Run:
    """Ingest SOURCE (a card, a trace folder or a trace file) unless the store has it, and compute metrics.

    SOURCE may also be a run or the id of a stored run; SOURCE and `store` may be URLs, such as
    `s3://bucket/job`.  Stored results with the same options are reused.  Metrics that replay the run
    (`whatif.*`) do so only if `metrics` names them.  `model` adds modelled values, with their intervals,
    where measurements are missing; `labels`, such as a commit, are added to the stored run; the other options
    are those of `workspace`.  Raises `InputError` for bad
    input, `UsageError` for a wrong call.
    """
    chosen, replay = _selected_metrics(metrics)
    selection = Selection(window, steps, ranks, model, replay)
    with workspace(**options) as work:
        opened = work.label_run(work.open_run(source), labels)
        figures, policy = results.compute_metrics(
            opened, chosen, selection, engine=work.engine, progress=work.progress
        )
        return opened.with_figures(figures, policy)


metrics = run
"""The same as `run`, for stored runs."""


@takes_options
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
    **options: Unpack[WorkspaceOptions],
) -> ReplayResult:
    """Replay a run on other hardware, and predict its step time.

    `sets` such as `scale_up.bandwidth=x2` are combined; each of `scenarios` (comma-separated settings, or a
    file of them) and `sweeps` is applied in addition.  `system` is the machine of the catalog that the run
    used, if no card states it; one that contradicts the traces is refused unless `force_system`.
    `contention` is the slowdown of kernels during communication (None: the run's `compute.contention`).
    """
    from cclbench.replay.result import replay_scenarios

    with workspace(**options) as work:
        opened = work.open_run(run)
        machine = _run_machine(opened, system, force_system, per_node)
        factor, notes = (
            (contention, ()) if contention is not None else _contention_factor(opened, ranks, work.engine)
        )
    return replay_scenarios(
        opened,
        sets,
        scenarios=scenarios,
        sweeps=sweeps,
        machine=machine,
        ranks=ranks,
        contention=factor,
        notes=notes,
    )


@takes_options
def project(
    run: str | Path | Run,
    system: str,
    gpus: int,
    *,
    layout: str | None = None,
    sets: Sequence[str] = (),
    per_node: int | None = None,
    step_s: float | None = None,
    **options: Unpack[WorkspaceOptions],
) -> Projection:
    """Predict the step of one rank's job on `gpus` accelerators of a machine of the catalog.

    `layout` are degrees such as `tp=8,pp=2`, of which the rest are replicas; without it layouts are compared,
    and that with the most samples per second is proposed.  `sets` are further settings of `whatif`.
    With `step_s`, a measured step in seconds, `run` is the card of a job of any size, and no trace is read.
    `InputError` with what is missing, `UsageError` for a layout that does not make that many ranks.
    """
    from cclbench.card import load_card
    from cclbench.replay.card_projection import project_card
    from cclbench.replay.projection import project_run

    if step_s is not None:
        if isinstance(run, Run):
            raise UsageError("a measured step is of a card, not of a run", hint="give the card's file")
        return project_card(
            load_card(run), str(run), system, gpus, step_s, layout=layout, sets=sets, per_node=per_node
        )
    with workspace(**options) as work:
        opened = work.open_run(run)
    return project_run(opened, system, gpus, layout=layout, sets=sets, per_node=per_node)


@takes_options
def export(
    run: str | Path | Run,
    folder: str | Path,
    form: Format = "chakra",
    *,
    system: str | None = None,
    per_node: int | None = None,
    ranks: Sequence[int] | None = None,
    check: bool = False,
    **options: Unpack[WorkspaceOptions],
) -> ExportedFolder:
    """Export a run's graph, as `whatif` replays it, for simulators: `chakra` execution traces, `astra-sim`.

    `system` is the machine of the catalog that the run used, if no card states it.  The folder is written
    whole or not at all; `check` reads it back and replays it from its dependencies.
    """
    from cclbench.export.folder import write_folder

    with workspace(**options) as work:
        opened = work.open_run(run)
        machine = machine_of(opened, system=system, per_node=per_node)
        return write_folder(
            opened, Path(folder), form, machine=machine, ranks=ranks, check=check, progress=work.progress
        )


@takes_options
def export_figures(
    run: str | Path | Run,
    path: str | Path,
    form: FigureFormat,
    *,
    metrics: Sequence[str] = ("*",),
    ranks: Sequence[int] | None = None,
    **options: Unpack[WorkspaceOptions],
) -> Path:
    """Export a run's figures, and return the file or folder written.

    `form`: `prometheus`, a file of the textfile collector; `otlp`, a file of OpenTelemetry metrics; `mlflow`,
    a run in the file store `path`; `wandb`, an offline run below `path`, which needs the extra `wandb`.
    """
    from cclbench.export.figure_files import write_figures

    chosen, replay = _selected_metrics(metrics)
    selection = Selection(ranks=ranks, replay=replay)
    with workspace(**options) as work:
        opened = work.open_run(run)
        figures, policy = results.compute_metrics(
            opened, chosen, selection, engine=work.engine, progress=work.progress
        )
        date, _ = work.store.date_of(opened)
        return write_figures(opened.with_figures(figures, policy), Path(path), form, date)


@takes_options
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
    **options: Unpack[WorkspaceOptions],
) -> SearchResult:
    """Replay a run under the scenarios of a search space, a YAML file, and rank them.

    All scenarios of a small space are replayed, else at most `trials`, chosen by descent from random starts
    (`seed`).  `constraints` such as `cost<=100`, `devices<=64` or `step<=12ms` exclude others.  `InputError`
    if tokens are the objective and their number per step is unknown.  `system`, `force_system` and `per_node`
    are those of `whatif`.
    """
    from cclbench.replay.answer import Replay
    from cclbench.replay.search import parse_limit
    from cclbench.replay.search import search_space as searched
    from cclbench.replay.space import read_space

    search_grid, limits = read_space(Path(space)), [parse_limit(text) for text in constraints]
    with workspace(**options) as work:
        opened = work.open_run(run)
        machine = _run_machine(opened, system, force_system, per_node)
        tokens = None
        if objective == "tokens_per_second_per_device":
            chosen = resolve_metrics([_TOKENS_PER_DEVICE])
            rows, _ = results.compute_metrics(opened, chosen, Selection(model=False), engine=work.engine)
            row = next(candidate for candidate in rows if not candidate.narrowed)
            if row.value is None:
                raise InputError(f"tokens per second unknown: {row.reason}", where=opened.id)
            tokens = row.value
    replay = Replay(opened, machine=machine)
    return searched(
        replay, search_grid, goal=objective, limits=limits, trials=trials, seed=seed, tokens=tokens
    )


@takes_options
def ingest(
    source: str | Path,
    *,
    labels: Mapping[str, str] | None = None,
    **options: Unpack[WorkspaceOptions],
) -> Run:
    """Read SOURCE into the store, whole or not at all, unless it is already there, unchanged.

    `labels`, such as a commit, are added to the stored run.
    """
    with workspace(**options) as work:
        return work.label_run(work.ingest_source(source), labels)


def runs(store: str | Path | Store | None = None) -> list[dict[str, Any]]:
    """Manifests of all runs in the store, by id."""
    return [stored.manifest for stored in store_at(store).runs()]


def _run_machine(run: Run, system: str | None, force_system: bool, per_node: int | None) -> Machine:
    """The run's machine; `UsageError` if the traces name another device than that of `system`."""
    from cclbench.hardware import catalog
    from cclbench.replay.layout import is_single_rank

    if system is not None and per_node is None and is_single_rank(run):
        # where one rank ran says nothing of how more of them fill the system's nodes
        per_node = catalog.system(system).per_node
    machine = machine_of(run, system=system, per_node=per_node)
    if machine.other_device is not None and not force_system:
        hint = "use it anyway with --force-system"
        raise UsageError(f"--system {machine.other_device}", hint=hint)
    return machine


def _contention_factor(
    run: Run, ranks: Sequence[int] | None, engine: Engine
) -> tuple[float, tuple[str, ...]]:
    """The run's `compute.contention`; 1 with a note if there is none or it is confounded."""
    chosen = resolve_metrics([_CONTENTION])
    rows, _ = results.compute_metrics(run, chosen, Selection(ranks=ranks, model=False), engine=engine)
    row = next(iter(rows))
    if row.value is not None and row.value >= 1:
        return row.value, ()
    reason = row.reason if row.value is None else f"{row.value:.3g}, {row.reason}"
    return 1.0, (f"kernels are assumed not to slow down during communication: compute.contention: {reason}",)


def _selected_metrics(patterns: str | Sequence[str]) -> tuple[ChosenMetrics, bool]:
    """The metrics that one or several patterns select, and whether any of them replays the run.

    `*` requests no replay.
    """
    listed = [patterns] if isinstance(patterns, str) else list(patterns)
    explicit = resolve_metrics(pattern for pattern in listed if pattern != "*")
    return resolve_metrics(listed), any(metric.is_replayed for metric, _ in explicit)
