# SPDX-License-Identifier: Apache-2.0
"""Healthy training jobs: DDP, FSDP, tensor, expert and pipeline parallel, drawn from a seed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from cclbench.selftest.job import DEVICES, LAWS, LAYOUTS, JobShape, process_groups
from cclbench.selftest.program import Collective, Instruction, Kernel, Program, ProgramCall, Step, edit_steps
from cclbench.selftest.schedules import RankSchedule
from cclbench.selftest.truth import simulate_truth

if TYPE_CHECKING:
    import numpy as np

    Random = np.random.Generator

_MOST_WIDENINGS: Final = 12
_FASTEST_LINKS: Final = 4.0e11
"""Bus bandwidth that a node's switches reach, bytes/s."""


def draw_job(random: Random, seed: int, layouts: Sequence[str] = LAYOUTS) -> JobShape:
    """A healthy job."""
    layout = layouts[int(random.integers(len(layouts)))]
    inner = 1 if layout in ("ddp", "fsdp") else int(random.choice([2, 4] if layout == "pp" else [2]))
    outer = int(random.choice([4, 4, 8] if inner == 1 else [2, 2, 4] if inner == 2 else [1]))
    fast = bool(random.integers(2))
    return JobShape(
        layout=layout,
        seed=seed,
        inner=inner,
        outer=outer,
        layers=int(random.integers(2, 5)) if outer * inner < 8 else 2,
        hidden=int(random.choice([2560, 3072] if fast else [1536, 2048])),
        tokens=int(random.choice([8192, 12288])),
        steps=int(random.integers(5, 8)) if outer * inner < 8 else 5,
        microbatches=int(random.choice([8, 12])) if layout == "pp" else 1,
        device=list(DEVICES)[fast],
        efficiency=float(random.uniform(0.8, 0.86)),
        bus_bytes_per_s=float(random.uniform(1.5e11, 2.6e11)),
        latency_ns=int(random.integers(8_000, 20_000)),
        law=LAWS[random.integers(len(LAWS))],
        spread=float(random.uniform(0.001, 0.004)),
        logs_loss=bool(random.integers(2)),
        clock_ns=int(random.choice([0, 80_000])),
        sync_events=bool(random.integers(4) == 0),
    )


def hide_transfers(job: JobShape) -> JobShape:
    """The job with links so fast and layers so wide that transfers cost less than 0.6 % of a step."""
    for _ in range(_MOST_WIDENINGS):
        program = build_program(replace(job, steps=3))
        without_transfers = scale_transfers(program, 0.0, lambda *_: True)
        if simulate_truth(without_transfers).step_s > 0.994 * simulate_truth(program).step_s:
            break
        job = replace(
            job,
            bus_bytes_per_s=min(_FASTEST_LINKS, 1.3 * job.bus_bytes_per_s),
            latency_ns=max(5_000, round(0.7 * job.latency_ns)),
            hidden=job.hidden + (512 if job.layout in ("tp", "ep", "pp") else 0),
            tokens=job.tokens + 4096,
        )
    return job


def work_factors(law: str, spread: float, steps: int, random: Random) -> Sequence[float]:
    """A rank's work in each step, relative to its mean."""
    import numpy as np

    normal = random.standard_normal(steps)
    if law == "heavy_tailed":
        return [float(factor) for factor in 1 + spread * (random.pareto(2.5, steps) - 1 / 1.5)]
    if law == "autoregressive":
        for step in range(1, steps):
            normal[step] = 0.6 * normal[step - 1] + 0.8 * normal[step]
    return [float(factor) for factor in np.exp(spread * normal - spread**2 / 2)]


def build_program(job: JobShape) -> Program:
    """The program of a job, with its random numbers drawn."""
    import numpy as np

    steps = []
    for rank in range(job.rank_count):
        random = np.random.default_rng([job.seed, rank])
        factors = work_factors(job.law, job.spread, job.steps, random)
        schedule = RankSchedule(job, rank)
        step = tuple(schedule.step_instructions())
        steps.append(
            tuple(
                _jitter_step(step, float(factor), random, number * schedule.sequence)
                for number, factor in enumerate(factors)
            )
        )
    offsets = np.random.default_rng([job.seed, 1_000]).integers(
        -job.clock_ns, job.clock_ns + 1, job.rank_count
    )
    return Program(
        tuple(steps),
        process_groups(job),
        device=job.device,
        clock_offsets_ns=tuple(int(offset) for offset in offsets),
        sync_events=job.sync_events,
    )


def scale_transfers(
    program: Program, factor: float, applies: Callable[[int, int, Collective], bool]
) -> Program:
    """The program with the transfer times of some ranks and steps multiplied by `factor`."""

    def scale_instruction(rank: int, step: int, instruction: Instruction) -> tuple[Instruction, ...]:
        if not isinstance(instruction, ProgramCall):
            return (instruction,)
        works = tuple(
            replace(work, ns=max(1, round(work.ns * factor)))
            if isinstance(work, Collective) and applies(rank, step, work)
            else work
            for work in instruction.works
        )
        return (replace(instruction, works=works),)

    return replace(program, steps=edit_steps(program.steps, scale_instruction))


def _jitter_step(step: Step, factor: float, random: Random, sequence: int) -> Step:
    def jitter_instruction(instruction: Instruction) -> Instruction:
        if not isinstance(instruction, ProgramCall):
            return instruction
        host = random.lognormal(0.0, 0.25)
        works = tuple(
            replace(work, ns=max(1_000, round(work.ns * factor * random.lognormal(0.0, 0.004))))
            if isinstance(work, Kernel)
            else work
            for work in instruction.works
        )
        return replace(
            instruction,
            works=works,
            sequence=None if instruction.sequence is None else instruction.sequence + sequence,
            python_ns=round(instruction.python_ns * host),
            operator_ns=round(instruction.operator_ns * host),
            launch_ns=round(instruction.launch_ns * random.lognormal(0.0, 0.1)),
        )

    return tuple(jitter_instruction(instruction) for instruction in step)
