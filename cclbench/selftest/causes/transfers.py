# SPDX-License-Identifier: Apache-2.0
"""Causes in communication: slow links, no overlap, small messages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cclbench.selftest.job import REDUCE
from cclbench.selftest.jobs import scale_transfers
from cclbench.selftest.planting import HealthyJob, PlantedJob, cause, is_collective
from cclbench.selftest.program import (
    COMPUTE,
    Collective,
    Instruction,
    Program,
    ProgramCall,
    Step,
    StreamWait,
    edit_steps,
)


@cause("slow_link", layouts=("tp", "ep"))
def slow_link_of_one_group(subject: HealthyJob) -> PlantedJob:
    """The links between one data-parallel group's ranks are slow."""
    groups = [group for group in subject.program.groups if group[0].startswith("outer")]
    name = groups[int(subject.random_numbers.integers(len(groups)))][0]
    factor = 2 + 200 * subject.strength
    slow = scale_transfers(subject.program, factor, lambda _, __, work: work.group == name)
    return PlantedJob(slow, subject.program)


@cause("slow_network", "exposed_communication", layouts=("ddp", "fsdp"))
def slow_network(subject: HealthyJob) -> PlantedJob:
    """All links are slow."""
    slow = scale_transfers(subject.program, 1 + 200 * subject.strength, lambda *_: True)
    return PlantedJob(slow, subject.program)


@cause("exposed_communication", layouts=("ddp", "fsdp"))
def no_overlap(subject: HealthyJob) -> PlantedJob:
    """Compute waits for each collective as soon as it is launched."""
    slower = scale_transfers(subject.program, min(4.0, 1 + 6 * subject.strength), lambda *_: True)

    def after(_: int, __: int, call: ProgramCall) -> Sequence[Instruction]:
        if not is_collective(call):
            return ()
        return (StreamWait(COMPUTE, call.works[0].stream, phase=call.phase),)

    return PlantedJob(replace(subject, program=slower).insert_near_calls(after).with_cause, slower)


@cause("small_messages", layouts=("ddp", "fsdp"))
def collective_per_parameter(subject: HealthyJob) -> PlantedJob:
    """A collective for each small tensor instead of each bucket, over links of high latency."""
    pieces = 2 + round(400 * subject.strength)
    subject = replace(subject, program=_add_latency(subject.program))

    def change(_: int, __: int, instruction: Instruction) -> Sequence[Instruction]:
        if not isinstance(instruction, ProgramCall) or not is_collective(instruction):
            return (instruction,)
        (work,) = instruction.works
        assert isinstance(work, Collective)  # noqa: S101
        moving = max(0, work.ns - work.latency_ns) // pieces
        small = replace(
            work, elements=max(64, work.elements // pieces // 64 * 64), ns=work.latency_ns + moving
        )
        return (replace(instruction, works=(small,)),) * pieces

    return subject.edit_program(change)


@cause("exposed_communication", layouts=("ddp",))
def reductions_behind_the_backward_pass(subject: HealthyJob) -> PlantedJob:
    """Gradients are reduced after the backward pass, instead of bucket by bucket during compute."""
    slower = scale_transfers(subject.program, min(6.0, 1 + 12 * subject.strength), lambda *_: True)

    def move_reductions(step: Step) -> Step:
        reductions = [it for it in step if isinstance(it, ProgramCall) and is_collective(it)]
        others = [it for it in step if it not in reductions]
        end = next(i for i, it in enumerate(others) if isinstance(it, StreamWait) and it.stream == COMPUTE)
        waits = [it for it in others if isinstance(it, StreamWait) and it.stream == REDUCE]
        backward = [it for it in others[:end] if it not in waits]
        return (*backward, StreamWait(REDUCE, COMPUTE, phase="backward"), *reductions, *others[end:])

    steps = tuple(tuple(move_reductions(step) for step in rank_steps) for rank_steps in slower.steps)
    return PlantedJob(replace(slower, steps=steps), slower)


@cause("slow_network", "slow_link", "exposed_communication", layouts=("ddp", "fsdp"), steps=9)
def network_that_is_slow_in_some_steps(subject: HealthyJob) -> PlantedJob:
    """Every third step all transfers take many times as long, as with another job's traffic."""
    slow = scale_transfers(subject.program, 1 + 400 * subject.strength, lambda _, step, __: step % 3 == 1)
    return PlantedJob(slow, subject.program)


@cause("slow_network", "slow_link", "exposed_communication", layouts=("tp",))
def tensor_parallel_across_nodes(subject: HealthyJob) -> PlantedJob:
    """The links between the ranks of a tensor-parallel group are those between nodes."""
    factor = 2 + 100 * subject.strength
    return PlantedJob(
        scale_transfers(subject.program, factor, lambda _, __, work: work.group.startswith("inner")),
        subject.program,
    )


def _add_latency(program: Program) -> Program:
    """The program with the latency of inter-node links, which exceeds the host time of a call."""

    def delay_transfers(_: int, __: int, instruction: Instruction) -> Sequence[Instruction]:
        if not isinstance(instruction, ProgramCall) or not is_collective(instruction):
            return (instruction,)
        works = tuple(
            replace(work, ns=work.ns + 60_000 - work.latency_ns, latency_ns=60_000)
            for work in instruction.works
            if isinstance(work, Collective)
        )
        return (replace(instruction, works=works),)

    return replace(program, steps=edit_steps(program.steps, delay_transfers))
