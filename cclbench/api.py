# SPDX-License-Identifier: Apache-2.0
"""The main job: from a source to a run with results.  The command line is a thin layer over this.

`options` of each function are those of `workspace`: `store`, `jobs`, `engine`, `inference` and others.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Unpack

from cclbench import results
from cclbench.analyzers.metric import resolve_metrics
from cclbench.engine import Engine
from cclbench.findings.diagnosis import Diagnosis, diagnose_run
from cclbench.ground.errors import InputError, UsageError
from cclbench.machine import Machine, machine_of
from cclbench.record.metric_name import metric_name
from cclbench.record.run import Run
from cclbench.record.selection import Selection, Steps
from cclbench.results import Chosen
from cclbench.workspace import WorkspaceOptions, store_at, takes_options, workspace

if TYPE_CHECKING:
    from cclbench.export.folder import ExportedFolder, Format
    from cclbench.record.store import Store
    from cclbench.replay.answer import ReplayResult
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
    **options: Unpack[WorkspaceOptions],
) -> Run:
    """Ingest SOURCE (a card, a trace folder or a trace file) unless the store has it, and compute metrics.

    SOURCE may be a run, or the id of one in the store, too; SOURCE and `store` may be URLs, such as
    `s3://bucket/job`. What the store has of the same options is not computed again; metrics that replay the
    run (`whatif.*`) do so where `metrics` names them.
    `model` fills what was not measured with modelled figures and their bands; the other options are those of
    `workspace`.  Raises `InputError` for bad input, `UsageError` for a wrong call.
    """
    chosen, replay = _chosen(metrics)
    selection = Selection(window, steps, ranks, model, replay)
    with workspace(**options) as used:
        opened = used.opened(source)
        figures, of = results.compute(opened, chosen, selection, engine=used.engine, progress=used.progress)
        return opened.with_figures(figures, of)


metrics = run
"""`run`, as it is called for a run that is in the store."""


@takes_options
def diagnose(
    run: str | Path | Run,
    *,
    window: str = "steps",
    steps: Steps | None = None,
    ranks: Sequence[int] | None = None,
    model: bool = True,
    **options: Unpack[WorkspaceOptions],
) -> Diagnosis:
    """What makes a run of the store, or of a SOURCE, slow: findings, by what a step would gain without each.

    The options are those of `run`, but for `metrics`.
    """
    return diagnose_run(metrics(run, window=window, steps=steps, ranks=ranks, model=model, **options))


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
    """Replay a run of the store, or of a SOURCE, under other hardware: what would the step take?

    `sets` such as `scale_up.bandwidth=x2` act together; `scenarios`, settings with commas or files
    of them, and `sweeps` come on top of them.
    `system` is the catalog's machine where no card says it, refused where the traces name another device
    unless `force_system`; `contention` how much longer kernels take beside
    communication (None: the run's own `compute.contention`).
    """
    from cclbench.replay.answer import replay_scenarios

    with workspace(**options) as used:
        opened = used.opened(run)
        machine = _machine(opened, system, force_system, per_node)
        factor, notes = (
            (contention, ()) if contention is not None else _contention(opened, ranks, used.engine)
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
    """Write a run's graph, as `whatif` replays it, for simulators: `chakra` execution traces, or `astra-sim`.

    `system` is the catalog's machine where no card says it.  The folder is made whole or not at all; `check`
    reads it back and replays it by its dependencies alone.
    """
    from cclbench.export.folder import write_folder

    with workspace(**options) as used:
        opened = used.opened(run)
        machine = machine_of(opened, system=system, per_node=per_node)
        return write_folder(
            opened, Path(folder), form, machine=machine, ranks=ranks, check=check, progress=used.progress
        )


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

    All scenarios where there are few, else at most `trials`, chosen by chance and descent, the same for a
    `seed`.  `constraints` such as `cost<=100`, `devices<=64` or `step<=12ms` make others infeasible;
    `InputError` where tokens are the objective and nothing tells how many a step has.  `system`,
    `force_system` and `per_node` are those of `whatif`.
    """
    from cclbench.replay.answer import Replay
    from cclbench.replay.search import parse_limit
    from cclbench.replay.search import search_space as searched
    from cclbench.replay.space import read_space

    asked, limits = read_space(Path(space)), [parse_limit(text) for text in constraints]
    with workspace(**options) as used:
        opened = used.opened(run)
        machine = _machine(opened, system, force_system, per_node)
        tokens = None
        if objective == "tokens_per_second_per_device":
            chosen = resolve_metrics([_TOKENS_PER_DEVICE])
            rows, _ = results.compute(opened, chosen, Selection(model=False), engine=used.engine)
            row = next(one for one in rows if not one.narrowed)
            if row.value is None:
                raise InputError(f"tokens a second are not known: {row.reason}", where=opened.id)
            tokens = row.value
    replay = Replay(opened, machine=machine)
    return searched(replay, asked, goal=objective, limits=limits, trials=trials, seed=seed, tokens=tokens)


@takes_options
def ingest(source: str | Path, **options: Unpack[WorkspaceOptions]) -> Run:
    """Bring SOURCE into the store, unless an unchanged copy is there; the run is whole or absent."""
    with workspace(**options) as used:
        return used.ingested(source)


def runs(store: str | Path | Store | None = None) -> list[dict[str, Any]]:
    """Manifests of all runs in the store, by id."""
    return [stored.manifest for stored in store_at(store).runs()]


def _machine(run: Run, system: str | None, force_system: bool, per_node: int | None) -> Machine:
    """The run's machine; `UsageError` where the traces name another device than the `system` given."""
    machine = machine_of(run, system=system, per_node=per_node)
    if machine.other_device is not None and not force_system:
        hint = "--force-system takes it nevertheless"
        raise UsageError(f"--system {machine.other_device}", hint=hint)
    return machine


def _contention(run: Run, ranks: Sequence[int] | None, engine: Engine) -> tuple[float, tuple[str, ...]]:
    """The run's `compute.contention`, 1 where it is confounded or there is none, and a note that says so."""
    chosen = resolve_metrics([_CONTENTION])
    found, _ = results.compute(run, chosen, Selection(ranks=ranks, model=False), engine=engine)
    row = next(iter(found))
    if row.value is not None and row.value >= 1:
        return row.value, ()
    why = row.reason if row.value is None else f"{row.value:.3g}, {row.reason}"
    return 1.0, (
        f"kernels are taken to take as long while communication runs as alone: compute.contention: {why}",
    )


def _chosen(patterns: str | Sequence[str]) -> tuple[Chosen, bool]:
    """The metrics that patterns ask for, of which a lone one is a list of one; whether any is to replay.

    `*`, all there is, asks for no replay.
    """
    listed = [patterns] if isinstance(patterns, str) else list(patterns)
    named = resolve_metrics(pattern for pattern in listed if pattern != "*")
    return resolve_metrics(listed), any(metric.is_replayed for metric, _ in named)
