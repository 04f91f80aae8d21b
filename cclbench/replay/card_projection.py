# SPDX-License-Identifier: Apache-2.0
"""A training job without a trace on other numbers of accelerators: by a card and one measured step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import gcd
from typing import Final

from cclbench.card import Card
from cclbench.ground.errors import InputError, UsageError
from cclbench.hardware.system import System
from cclbench.record.manifest import CardLine, Manifest, Options
from cclbench.replay.answer_rows import NS_PER_S, modelled_row, predicted_rows
from cclbench.replay.critical_path import Path
from cclbench.replay.layout import DIMENSIONS, Relayout, stated_layout
from cclbench.replay.outcome import Predicted, ReplayedStep
from cclbench.replay.projection import (
    ProjectedLayout,
    Projection,
    degree_settings,
    system_with,
    target_layout,
)
from cclbench.replay.rescale import card_sizes
from cclbench.replay.result import ReplayResult
from cclbench.replay.scenario import Scenario
from cclbench.replay.schedules import SCHEDULES
from cclbench.replay.step_projection import JobLayout, project_step

_SETTINGS: Final = ("batch", "parallelism.schedule", "parallelism.interleave")
"""Settings besides degrees that need no trace."""
_KEYS: Final = ("ranks", *(f"parallelism.{name}" for name in DIMENSIONS), *_SETTINGS)
_NO_PATH: Final = Path(0, {}, {}, {})


def project_card(
    card: Card,
    source: str,
    system_id: str,
    gpus: int,
    step_s: float,
    *,
    layout: str | None = None,
    sets: Sequence[str] = (),
    per_node: int | None = None,
) -> Projection:
    """The step of the card's job in another layout on its machine, from its measured step; see `api.project`.

    `source` is the card's name in errors. Degrees that `layout` does not state stay as measured, the rest are
    replicas.
    """
    system = _measured_system(card, source, system_id, per_node)
    measured = _measured_layout(card, source)
    degrees = degree_settings(layout) if layout is not None else []
    scenario, relayout = target_layout(measured.degrees, gpus, [*degrees, *sets])
    target = _target_job(measured, scenario, relayout)
    step, notes = project_step(card, system, measured, step_s, target)
    outcome = Predicted(
        scenario,
        None if step.expected is None else ReplayedStep(step.expected, _NO_PATH),
        step.low,
        step.high,
        _NO_PATH,
        (*_batch_notes(measured, target), *notes),
    )
    unchanged = ReplayedStep(step_s * NS_PER_S, _NO_PATH)
    figures = (
        modelled_row("whatif.measured_step", step_s, provenance="measured"),
        *predicted_rows(outcome, unchanged),
    )
    own_notes = (
        f"measured: {measured.degrees}, {measured.microbatches:,} micro-batches of {measured.micro_batch:,}"
        + (f", by {measured.schedule}" if measured.degrees.degrees["pp"] > 1 else ""),
        "without a trace the optimizer is unknown, and whether the layout fits into memory not examined",
        "all figures but the measured step are modelled",
    )
    result = ReplayResult(unchanged.step_ns, unchanged, (outcome,), figures, own_notes)
    share = target.global_batch / measured.global_batch
    projected = ProjectedLayout(scenario.label, outcome, share * measured.degrees.batch_groups)
    return Projection(result, (projected,), _card_record(card, source))


def _measured_system(card: Card, source: str, system_id: str, per_node: int | None) -> System:
    """The machine of the measured step, with so many ranks in a node."""
    system, stated = system_with(system_id, per_node or card.hardware.per_node), card.hardware.system
    if stated is not None and stated != system_id:
        raise InputError(
            f"the step was measured on {stated} (hardware.system), and does not show that of {system_id}",
            where=source,
            hint=f"--system {stated}; another machine needs a trace of one rank",
        )
    return system


def _measured_layout(card: Card, source: str) -> JobLayout:
    """The layout that the card states; `InputError` with what is missing."""
    if card.workload.phase != "training":
        raise InputError(
            f"the job is not training (workload.phase: {card.workload.phase}), of which schedules are known",
            where=source,
        )
    sizes = card_sizes(card, "the measured step", "batch.global_", "batch.micro")
    plan = card.parallelism
    replicas = plan.dp_replicate * plan.dp_shard
    world = card.hardware.count or replicas * plan.tp * plan.cp * plan.pp
    stated = stated_layout(
        {"tp": plan.tp, "cp": plan.cp, "ep": plan.ep, "pp": plan.pp}, replicas, world, source
    )
    return JobLayout(stated, int(sizes["batch.micro"]), int(sizes["batch.global_"]))


def _target_job(measured: JobLayout, scenario: Scenario, relayout: Relayout) -> JobLayout:
    """The job in the new layout; micro-batches become smaller where a replica has too few samples."""
    unknown = [key for key in scenario.changes if key not in _KEYS]
    if unknown:
        raise UsageError(f"{unknown[0]} needs a trace of a rank", hint=f"without one: {', '.join(_SETTINGS)}")
    groups = relayout.new.batch_groups
    each = measured.global_batch // measured.degrees.batch_groups
    total = measured.global_batch if relayout.fixed_batch else each * groups
    return JobLayout(
        relayout.new,
        gcd(measured.micro_batch, total // groups),
        total,
        SCHEDULES[int(scenario.changes.get("parallelism.schedule", 0))],
        int(scenario.changes.get("parallelism.interleave", 1)),
    )


def _batch_notes(measured: JobLayout, target: JobLayout) -> Iterator[str]:
    """What becomes of samples."""
    if target.global_batch == measured.global_batch:
        yield f"the global batch stays {target.global_batch:,} samples"
    else:
        yield (
            f"each replica's batch stays, so the global batch is {target.global_batch:,} samples in place of"
            f" {measured.global_batch:,} (batch=rank)"
        )
    if target.micro_batch != measured.micro_batch:
        yield f"micro-batches of {target.micro_batch:,} samples in place of {measured.micro_batch:,}"


def _card_record(card: Card, source: str) -> Manifest:
    """What results say of their run, which has no trace."""
    line = CardLine(card.id, source, card.description)
    return Manifest(
        run=card.id,
        fingerprint="",
        source=source,
        card=line,
        ingest=Options(inference=False),
        notes=["the measured step was given; no trace was read"],
    )
