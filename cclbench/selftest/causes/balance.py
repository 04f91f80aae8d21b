# SPDX-License-Identifier: Apache-2.0
"""Causes between ranks that have different work by design: experts and pipeline stages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from cclbench.selftest.jobs import build_program
from cclbench.selftest.planting import HealthyJob, PlantedJob, cause, is_layer_compute, lengthen_rows
from cclbench.selftest.program import Instruction, ProgramCall


def _plant_uneven_experts(subject: HealthyJob, share: Callable[[int, int, int], float]) -> PlantedJob:
    ranks = range(subject.program.rank_count)

    def plant_experts(mean: bool) -> PlantedJob:
        def change_experts(rank: int, step: int, instruction: Instruction) -> Sequence[Instruction]:
            if not isinstance(instruction, ProgramCall) or instruction.family != "expert":
                return (instruction,)
            shares = [share(any_rank, step, instruction.layer) for any_rank in ranks]
            return (lengthen_rows(instruction, sum(shares) / len(shares) if mean else shares[rank]),)

        return subject.edit_program(change_experts)

    return PlantedJob(plant_experts(False).with_cause, plant_experts(True).with_cause)


@cause("expert_imbalance", layouts=("ep",))
def busy_experts_of_one_rank(subject: HealthyJob) -> PlantedJob:
    """One rank's experts are sent more tokens than the others'."""
    victim = subject.victim_rank
    return _plant_uneven_experts(
        subject, lambda rank, _, __: 1 + 2 * subject.strength if rank == victim else 1.0
    )


@cause("expert_imbalance", layouts=("ep",))
def experts_by_layer(subject: HealthyJob) -> PlantedJob:
    """In each layer and step different experts are busy."""
    factors = subject.random_numbers.lognormal(
        0.0, 2 * subject.strength, (subject.program.rank_count, subject.job.steps, subject.job.layers)
    )
    return _plant_uneven_experts(subject, lambda rank, step, layer: float(factors[rank, step, layer]))


@cause("pipeline_bubble", layouts=("pp",), fixed=True)
def few_microbatches(subject: HealthyJob) -> PlantedJob:
    """As many micro-batches as stages."""
    return PlantedJob(build_program(replace(subject.job, microbatches=subject.job.inner)), None)


@cause("pipeline_bubble", ranks=("late_rank",), layouts=("pp",), fixed=True)
def uneven_stages(subject: HealthyJob) -> PlantedJob:
    """One stage has 50 % more compute."""
    stage = subject.victim_stage
    planted = subject.edit_program(
        lambda rank, _, it: (
            (it, it)
            if isinstance(it, ProgramCall)
            and is_layer_compute(it)
            and rank in stage
            and it.family in ("gemm", "norm")
            else (it,)
        )
    )
    return PlantedJob(planted.with_cause, None, stage)
