# SPDX-License-Identifier: Apache-2.0
"""A job of one traced rank on many accelerators of a machine: its layouts, replayed and compared.

All layouts have the same number of accelerators, and each replica the traced batch; so they are compared by
samples per second, in proportion to groups of ranks with different samples / step.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from msgspec import structs

from cclbench.ground.errors import ChangedRunError, InputError, UsageError
from cclbench.ground.text import listed
from cclbench.hardware import catalog
from cclbench.hardware.accelerator import Accelerator
from cclbench.hardware.system import System
from cclbench.machine import Machine, machine_of
from cclbench.record.manifest import Manifest
from cclbench.record.run import Run
from cclbench.replay.answer import Replay
from cclbench.replay.gradient_exchange import shards_parameters
from cclbench.replay.layout import DIMENSIONS, Layout, Relayout, is_single_rank, target_relayout
from cclbench.replay.memory import held_state, memory_of
from cclbench.replay.outcome import Predicted
from cclbench.replay.result import ReplayResult, replay_result
from cclbench.replay.scenario import Scenario, key_and_value, parse_scenario, split_settings

_MOST_STAGES: Final = 16
"""Largest number of pipeline stages of a proposed layout."""
_MOST_SHOWN: Final = 3
_SMALLER: Final = "--set strategy=fsdp, or a layout with more tp or pp"


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
    """The projected step, as a replay's result, all layouts, the chosen one first, and the run's manifest."""

    result: ReplayResult
    layouts: tuple[ProjectedLayout, ...]
    record: Manifest


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
    if not run.ranks:
        raise InputError(
            "has no trace of a rank", where=run.id, hint="a measured step and a card suffice: --step 1.23s"
        )
    if not is_single_rank(run):
        raise InputError(
            "the job is not one of a single rank: its traces or its card state more",
            where=run.id,
            hint=f"`cclbench whatif {run.id} --set ranks={gpus}` repeats the traced replicas",
        )
    target = _target_machine(run, system, per_node)
    parse_scenario([*target.settings, *sets])  # its errors are not those of a layout
    replay = Replay(run, machine=target.machine)
    memory = _DeviceMemory(replay, catalog.accelerator(catalog.system(system).accelerator))
    common = [*target.settings, *sets]
    if layout is not None:
        layouts = [_replay_layout(replay, memory, gpus, [*degree_settings(layout), *common])]
    else:
        layouts = [
            _compare_layout(replay, memory, gpus, [*degrees, *common])
            for degrees in _candidates(gpus, target.machine)
        ]
    layouts.sort(key=lambda candidate: -candidate.throughput)
    best = layouts[0]
    if best.outcome is None:
        raise InputError(f"no layout of {gpus:,} ranks can be projected: {best.refused}", where=run.id)
    outcome = replace(best.outcome, basis=(*best.outcome.basis, *target.notes, *memory.notes))
    notes = tuple(_comparison_notes(layouts, replay.unchanged.step_ns, gpus))
    return Projection(replay_result(replay, [outcome], notes=notes), tuple(layouts), run.record)


class _Target(NamedTuple):
    """The machine to project to, with the traced accelerator; settings that exchange that; assumptions."""

    machine: Machine
    settings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def _target_machine(run: Run, system_id: str, per_node: int | None) -> _Target:
    """The machine of the catalog, on which kernels take their time on the traced accelerator."""
    system = system_with(system_id, per_node)
    traced = machine_of(run)
    if traced.on_host:
        raise InputError(
            f"the trace is of a CPU: the kernels of {system.accelerator}, their launches, and what the host"
            " does between them are missing",
            where=run.id,
            hint="trace a step on an accelerator; `--set accelerator=` exchanges it for another one",
        )
    machine = machine_of(run, system=system_id, per_node=system.per_node)
    accelerator = traced.accelerator
    if accelerator.value is not None:
        hardware = structs.replace(machine.hardware, accelerator=accelerator.value.id)
        other = accelerator.value.id != system.accelerator
        settings = (f"accelerator={system.accelerator}",) if other else ()
        return _Target(replace(machine, hardware=hardware), settings)
    if traced.device_names or traced.hardware.accelerator:
        raise InputError(
            accelerator.reason or "the traced accelerator is unknown",
            where=run.id,
            hint="state hardware.accelerator in a card, with a name of `cclbench list hardware`",
        )
    assumed = f"the trace does not name its accelerator, which is assumed to be {system.accelerator}"
    return _Target(machine, (), (assumed,))


def system_with(system_id: str, per_node: int | None) -> System:
    """The machine of the catalog, of whose accelerators a node uses so many."""
    system = catalog.system(system_id)
    if per_node is None:
        return system
    if per_node > system.per_node:
        raise UsageError(f"{system_id} has {system.per_node} accelerators a node, not {per_node}")
    return structs.replace(system, per_node=per_node)


class _DeviceMemory:
    """Whether layouts of a run fit into the memory of an accelerator."""

    def __init__(self, replay: Replay, accelerator: Accelerator) -> None:
        self.replay, self.accelerator = replay, accelerator
        self.held = held_state(replay.run, sequences=False)
        self.traced = replay.machine.accelerator.value
        self.unknown: str | None = None

    def refuse_excess(self, relayout: Relayout, scenario: Scenario) -> None:
        """Raise `InputError` for a layout that needs more than a device has."""
        shards = shards_parameters(scenario.changes)
        try:
            need = memory_of(self.replay.run, self.held, relayout, self.accelerator, shards=shards)
        except ChangedRunError:
            raise
        except InputError as error:
            self.unknown = str(error)
            return
        if not need.is_enough:
            what = f"a device needs {need.total_bytes / 1e9:.3g} GB of {need.device / 1e9:.3g}"
            raise InputError(f"{what}, {need.activations / 1e9:.3g} of them activations", hint=_SMALLER)

    @property
    def notes(self) -> tuple[str, ...]:
        """What is assumed where the need is unknown."""
        if self.unknown is None:
            return ()
        sizes = [device and device.hbm_bytes for device in (self.traced, self.accelerator)]
        if sizes[0] and sizes[1] and sizes[0] <= sizes[1]:
            return ("a device has at least the memory of the traced one, where one rank fits",)
        return (f"memory not examined: {self.unknown}",)


def degree_settings(layout: str) -> list[str]:
    """Settings of degrees such as `tp=8,pp=2`."""
    degrees = [key_and_value(text) for text in split_settings(layout)]
    unknown = [name for name, _ in degrees if name not in DIMENSIONS]
    if unknown:
        dimensions = ", ".join(DIMENSIONS)
        raise UsageError(
            f"--layout {layout}: there is no dimension {unknown[0]!r}",
            hint=f"such as tp=8,pp=2; of {dimensions}",
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


def _compare_layout(replay: Replay, memory: _DeviceMemory, gpus: int, texts: list[str]) -> ProjectedLayout:
    """A candidate's outcome, or why it has none."""
    try:
        return _replay_layout(replay, memory, gpus, texts)
    except ChangedRunError:
        raise
    except (InputError, UsageError) as error:
        degrees = [text.removeprefix("parallelism.") for text in texts if text.startswith("parallelism.")]
        words = " x ".join(degree.replace("=", " ") for degree in degrees) or "replicas alone"
        return ProjectedLayout(words, None, 0.0, str(error))


def target_layout(layout: Layout, gpus: int, texts: list[str]) -> tuple[Scenario, Relayout]:
    """The settings, with replicas on the rest of so many ranks, and the change of layout that they make;
    `UsageError` if the degrees do not make that many."""
    replicas = any(text.startswith("parallelism.dp=") for text in texts)
    scenario = parse_scenario(texts if replicas else [f"ranks={gpus}", *texts])
    relayout = target_relayout(layout, scenario.changes)
    if relayout.new.world_size != gpus:
        raise UsageError(f"{relayout.new} makes {relayout.new.world_size:,} ranks, not {gpus:,}")
    return replace(scenario, label=str(relayout.new)), relayout


def _replay_layout(replay: Replay, memory: _DeviceMemory, gpus: int, texts: list[str]) -> ProjectedLayout:
    """Replay a layout."""
    scenario, relayout = target_layout(replay.layout, gpus, texts)
    memory.refuse_excess(relayout, scenario)
    samples = relayout.new.batch_groups * relayout.sample_share
    return ProjectedLayout(scenario.label, replay.predict(scenario), samples)


def _comparison_notes(layouts: Sequence[ProjectedLayout], unchanged_ns: float, gpus: int) -> Iterator[str]:
    """Throughput of the best layouts, and why some were not compared."""
    yield "all figures but the measured step are modelled"
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
