# SPDX-License-Identifier: Apache-2.0
"""A job of one traced rank on many accelerators of a machine: its layouts, replayed and compared.

All layouts have the same number of accelerators, and each replica the traced batch; so they are compared by
samples per second, in proportion to groups of ranks with different samples / step.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from msgspec import structs

from cclbench.ground.errors import ChangedRunError, InputError, UsageError
from cclbench.ground.text import listed
from cclbench.hardware import catalog
from cclbench.machine import Machine, machine_of
from cclbench.record.run import Run
from cclbench.replay.answer import Predicted, Replay
from cclbench.replay.layout import DIMENSIONS, asked_relayout, is_single_rank
from cclbench.replay.result import ReplayResult, replay_result
from cclbench.replay.scenario import key_and_value, parse_scenario, split_settings

_MOST_STAGES: Final = 16
"""Largest number of pipeline stages of a proposed layout."""
_MOST_SHOWN: Final = 3


@dataclass(frozen=True, slots=True)
class ProjectedLayout:
    """A layout: its degrees in words, its outcome, or why there is none; `samples`: those of a step, relative
    to the traced rank's."""

    words: str
    outcome: Predicted | None
    samples: float
    refused: str | None = None

    @property
    def throughput(self) -> float:
        """Samples per ns, relative to those of the traced rank's step, at the upper bound of the step."""
        return self.samples / self.outcome.high_ns if self.outcome else 0.0


@dataclass(frozen=True, slots=True)
class Projection:
    """The projected step, as a replay's result, and all layouts, the chosen one first."""

    result: ReplayResult
    layouts: tuple[ProjectedLayout, ...]


def project_run(
    run: Run,
    system: str,
    gpus: int,
    *,
    layout: str | None = None,
    sets: Sequence[str] = (),
    per_node: int | None = None,
) -> Projection:
    """Replay a single rank's run as part of `gpus` ranks of a machine; see `api.project`."""
    if not is_single_rank(run):
        raise InputError(
            "the job is not one of a single rank: its traces or its card state more",
            where=run.id,
            hint=f"`cclbench whatif {run.id} --set ranks={gpus}` repeats the traced replicas",
        )
    machine, changed = _target_machine(run, system, per_node)
    replay = Replay(run, machine=machine)
    wanted = [_degrees(layout)] if layout is not None else [*_candidates(gpus, machine)]
    layouts = [_project_layout(replay, gpus, [*degrees, *changed, *sets]) for degrees in wanted]
    layouts.sort(key=lambda one: -one.throughput)
    best = layouts[0]
    if best.outcome is None:
        raise InputError(f"no layout of {gpus:,} ranks can be projected: {best.refused}", where=run.id)
    notes = tuple(_comparison_notes(layouts, replay.unchanged.step_ns, gpus))
    return Projection(replay_result(replay, [best.outcome], notes=notes), tuple(layouts))


def _target_machine(run: Run, system_id: str, per_node: int | None) -> tuple[Machine, list[str]]:
    """The machine to project to, with the traced accelerator, and the setting that exchanges the latter."""
    system = catalog.system(system_id)
    traced = machine_of(run)
    if traced.on_host:
        raise InputError(
            f"the trace is of a CPU, whose work says nothing of {system.accelerator}",
            where=run.id,
            hint="trace a step on an accelerator",
        )
    machine = machine_of(run, system=system_id, per_node=per_node or system.per_node)
    if traced.accelerator.value is None:
        return machine, []
    hardware = structs.replace(machine.hardware, accelerator=traced.accelerator.value.id)
    machine = replace(machine, hardware=hardware)
    other = traced.accelerator.value.id != system.accelerator
    return machine, [f"accelerator={system.accelerator}"] if other else []


def _degrees(layout: str) -> list[str]:
    """Settings of degrees such as `tp=8,pp=2`."""
    degrees = [key_and_value(text) for text in split_settings(layout)]
    unknown = [name for name, _ in degrees if name not in DIMENSIONS]
    if unknown:
        known = ", ".join(DIMENSIONS)
        raise UsageError(
            f"--layout {layout}: there is no dimension {unknown[0]!r}", hint=f"such as tp=8,pp=2; of {known}"
        )
    return [f"parallelism.{name}={degree}" for name, degree in degrees]


def _candidates(gpus: int, machine: Machine) -> Iterator[list[str]]:
    """Degrees to compare: replicas alone first, tensors split within a node, and stages."""
    per_node = machine.per_node.value or 1
    for stages in range(1, min(_MOST_STAGES, gpus) + 1):
        for tensors in range(1, min(per_node, gpus // stages) + 1):
            if stages & (stages - 1) == 0 and per_node % tensors == 0 and gpus % (stages * tensors) == 0:
                named = {"tp": tensors, "pp": stages}
                yield [f"parallelism.{name}={degree}" for name, degree in named.items() if degree > 1]


def _project_layout(replay: Replay, gpus: int, texts: list[str]) -> ProjectedLayout:
    """Replay a layout; one that is refused has the reason.

    `UsageError` if the degrees do not make that many ranks.
    """
    replicas = any(text.startswith("parallelism.dp=") for text in texts)
    scenario = parse_scenario(texts if replicas else [f"ranks={gpus}", *texts])
    relayout = asked_relayout(replay.layout, scenario.changes)
    if relayout.new.world_size != gpus:
        raise UsageError(f"{relayout.new} makes {relayout.new.world_size:,} ranks, not {gpus:,}")
    words, samples = str(relayout.new), relayout.new.batch_groups * relayout.sample_share
    try:
        return ProjectedLayout(words, replay.predict(replace(scenario, label=words)), samples)
    except ChangedRunError:
        raise
    except (InputError, UsageError) as error:
        return ProjectedLayout(words, None, samples, str(error))


def _comparison_notes(layouts: Sequence[ProjectedLayout], unchanged_ns: float, gpus: int) -> Iterator[str]:
    """Throughput of the best layouts, and why some were not compared."""
    compared = [layout for layout in layouts if layout.outcome is not None]
    for layout in compared[:_MOST_SHOWN]:
        assert layout.outcome is not None  # noqa: S101 - by the list above
        bounds = layout.outcome.high_ns, layout.outcome.low_ns
        slow, fast = (layout.samples * unchanged_ns / ns / gpus for ns in bounds)
        yield f"{layout.words}: {slow:.1%} to {fast:.1%} of the traced rank's samples per second and rank"
    refused: dict[str, list[str]] = {}
    for layout in layouts:
        if layout.refused is not None:
            refused.setdefault(layout.refused, []).append(layout.words)
    lines = [f"{', '.join(listed(words, _MOST_SHOWN))}: {reason}" for reason, words in refused.items()]
    yield from (f"not compared: {line}" for line in listed(lines, _MOST_SHOWN))
