# SPDX-License-Identifier: Apache-2.0
"""Plant a cause: edit a healthy job's program, and state which findings are correct."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from cclbench.selftest.job import LAYOUTS, JobShape
from cclbench.selftest.program import (
    Collective,
    Edit,
    Instruction,
    Kernel,
    Program,
    ProgramCall,
    edit_steps,
)

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True, slots=True)
class HealthyJob:
    """A healthy job, and the strength of the cause to plant in it."""

    job: JobShape
    program: Program
    step_ns: float
    strength: float
    """On the cause's own scale; 0 is no cause."""
    seed: int

    @property
    def random_numbers(self) -> np.random.Generator:
        """The cause's random numbers, the same at every strength."""
        import numpy as np

        return np.random.default_rng([self.seed, 7])

    @property
    def victim_rank(self) -> int:
        """The rank with the cause, for causes of one rank."""
        return int(self.random_numbers.integers(self.program.rank_count))

    @property
    def victim_stage(self) -> frozenset[int]:
        """The ranks of the pipeline stage with the cause, for causes of one stage."""
        inner = self.job.inner
        return frozenset(range(self.victim_rank % inner, self.program.rank_count, inner))

    def edit_program(self, change: Edit) -> PlantedJob:
        """The program with each instruction replaced."""
        return PlantedJob(replace(self.program, steps=edit_steps(self.program.steps, change)), self.program)

    def scale_kernels(
        self, factor: Callable[[int, int, ProgramCall], float], **changes: object
    ) -> PlantedJob:
        """Scale the duration of kernels by `factor` (rank, step, call)."""

        def scale_instruction(rank: int, step: int, instruction: Instruction) -> Sequence[Instruction]:
            if not isinstance(instruction, ProgramCall) or (scale := factor(rank, step, instruction)) == 1.0:
                return (instruction,)
            return (replace(stretch_kernels(instruction, scale), **changes),)  # type: ignore[arg-type]

        return self.edit_program(scale_instruction)

    def insert_near_calls(
        self,
        instructions: Callable[[int, int, ProgramCall], Sequence[Instruction]],
        before: bool = False,
    ) -> PlantedJob:
        """The program with instructions inserted after (or before) its calls."""

        def insert_instructions(rank: int, step: int, instruction: Instruction) -> Sequence[Instruction]:
            if not isinstance(instruction, ProgramCall):
                return (instruction,)
            inserted = instructions(rank, step, instruction)
            return (*inserted, instruction) if before else (instruction, *inserted)

        return self.edit_program(insert_instructions)


@dataclass(frozen=True, slots=True)
class PlantedJob:
    """A job's program with a cause, and without it."""

    with_cause: Program
    without_cause: Program | None
    """None if it is not defined, as for a cause that changes the schedule."""
    ranks: frozenset[int] | None = None
    """Ranks with the cause; None if all have it."""


Plant = Callable[[HealthyJob], PlantedJob]


@dataclass(frozen=True, slots=True)
class PlantedCause:
    """A cause: how to plant it, and the names of the correct findings."""

    name: str
    plant: Plant
    findings: tuple[str, ...]
    rank_findings: tuple[str, ...]
    """Correct only if they name the ranks with the cause."""
    layouts: tuple[str, ...]
    steps: int | None
    fixed: bool
    """Whether its strength is fixed, not chosen by the gain."""


CAUSES: Final[dict[str, PlantedCause]] = {}


def cause(
    *findings: str,
    ranks: tuple[str, ...] = (),
    layouts: tuple[str, ...] = LAYOUTS[:4],
    steps: int | None = None,
    fixed: bool = False,
) -> Callable[[Plant], Plant]:
    """Register a cause by its function's name."""

    def register(plant: Plant) -> Plant:
        name = plant.__name__
        CAUSES[name] = PlantedCause(name, plant, findings, ranks, layouts, steps, fixed)
        return plant

    return register


def stretch_kernels(call: ProgramCall, factor: float) -> ProgramCall:
    """The call with kernel durations multiplied by `factor`."""
    works = tuple(
        replace(work, ns=max(1_000, round(work.ns * factor))) if isinstance(work, Kernel) else work
        for work in call.works
    )
    return replace(call, works=works)


def lengthen_rows(call: ProgramCall, factor: float) -> ProgramCall:
    """The call with `factor` as many rows: longer kernels, larger grids, other shapes."""
    works = tuple(
        replace(work, grid=max(1, round(work.grid * factor))) if isinstance(work, Kernel) else work
        for work in stretch_kernels(call, factor).works
    )
    if not call.dims:
        return replace(call, works=works)
    rows, *columns = call.dims[0]
    dims = ((max(1, round(rows * factor)), *columns), *call.dims[1:])
    return replace(call, works=works, dims=dims)


def is_collective(call: ProgramCall) -> bool:
    """Whether the call launches a collective."""
    return any(isinstance(work, Collective) for work in call.works)


def is_layer_compute(call: ProgramCall) -> bool:
    """Whether the call is compute of a layer, not a collective."""
    return call.layer >= 0 and not is_collective(call)
