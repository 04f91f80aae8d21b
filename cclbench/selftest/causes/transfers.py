# SPDX-License-Identifier: Apache-2.0
"""Causes in communication: slow links, no overlap, small messages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cclbench.selftest.job import REDUCE
from cclbench.selftest.jobs import scale_transfers
from cclbench.selftest.planting import HealthyJob, Planted, cause, is_collective
from cclbench.selftest.program import (
    COMPUTE,
    Call,
    Collective,
    Instruction,
    Program,
    Step,
    StreamWait,
    edit_steps,
)


@cause("slow_link", layouts=("tp", "ep"))
def slow_link_of_one_group(subject: HealthyJob) -> Planted:
    """The links between one data-parallel group's ranks are slow."""
    groups = [group for group in subject.program.groups if group[0].startswith("outer")]
    name = groups[int(subject.random_numbers.integers(len(groups)))][0]
    factor = 2 + 200 * subject.strength
    sick = scale_transfers(subject.program, factor, lambda _, __, work: work.group == name)
    return Planted(sick, subject.program)


@cause("slow_network", "exposed_communication", layouts=("ddp", "fsdp"))
def slow_network(subject: HealthyJob) -> Planted:
    """All links are slow."""
    sick = scale_transfers(subject.program, 1 + 200 * subject.strength, lambda *_: True)
    return Planted(sick, subject.program)


@cause("exposed_communication", layouts=("ddp", "fsdp"))
def no_overlap(subject: HealthyJob) -> Planted:
    """Compute waits for each collective as soon as it is launched."""
    slower = scale_transfers(subject.program, min(4.0, 1 + 6 * subject.strength), lambda *_: True)

    def after(_: int, __: int, call: Call) -> Sequence[Instruction]:
        if not is_collective(call):
            return ()
        return (StreamWait(COMPUTE, call.works[0].stream, phase=call.phase),)

    return Planted(replace(subject, program=slower).insert_beside_calls(after).sick, slower)


@cause("small_messages", layouts=("ddp", "fsdp"))
def collective_per_parameter(subject: HealthyJob) -> Planted:
    """A collective for each small tensor instead of each bucket, over links of high latency."""
    pieces = 2 + round(400 * subject.strength)
    subject = replace(subject, program=_add_latency(subject.program))

    def change(_: int, __: int, instruction: Instruction) -> Sequence[Instruction]:
        if not isinstance(instruction, Call) or not is_collective(instruction):
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
def reductions_behind_the_backward_pass(subject: HealthyJob) -> Planted:
    """Gradients are reduced after the backward pass, instead of bucket by bucket during compute."""
    slower = scale_transfers(subject.program, min(6.0, 1 + 12 * subject.strength), lambda *_: True)

    def late(step: Step) -> Step:
        reduced = [one for one in step if isinstance(one, Call) and is_collective(one)]
        kept = [one for one in step if one not in reduced]
        at = next(i for i, one in enumerate(kept) if isinstance(one, StreamWait) and one.stream == COMPUTE)
        waits = [one for one in kept if isinstance(one, StreamWait) and one.stream == REDUCE]
        rest = [one for one in kept[:at] if one not in waits]
        return (*rest, StreamWait(REDUCE, COMPUTE, phase="backward"), *reduced, *kept[at:])

    steps = tuple(tuple(late(step) for step in own) for own in slower.steps)
    return Planted(replace(slower, steps=steps), slower)


@cause("slow_network", "slow_link", "exposed_communication", layouts=("ddp", "fsdp"), steps=9)
def network_that_is_slow_in_some_steps(subject: HealthyJob) -> Planted:
    """Every third step all transfers take many times as long, as with another job's traffic."""
    sick = scale_transfers(subject.program, 1 + 400 * subject.strength, lambda _, step, __: step % 3 == 1)
    return Planted(sick, subject.program)


@cause("slow_network", "slow_link", "exposed_communication", layouts=("tp",))
def tensor_parallel_across_nodes(subject: HealthyJob) -> Planted:
    """The links between the ranks of a tensor-parallel group are those between nodes."""
    factor = 2 + 100 * subject.strength
    return Planted(
        scale_transfers(subject.program, factor, lambda _, __, work: work.group.startswith("inner")),
        subject.program,
    )


def _add_latency(program: Program) -> Program:
    """The program with the latency of inter-node links, which exceeds the host time of a call."""

    def delay_transfers(_: int, __: int, instruction: Instruction) -> Sequence[Instruction]:
        if not isinstance(instruction, Call) or not is_collective(instruction):
            return (instruction,)
        works = tuple(
            replace(work, ns=work.ns + 60_000 - work.latency_ns, latency_ns=60_000)
            for work in instruction.works
            if isinstance(work, Collective)
        )
        return (replace(instruction, works=works),)

    return replace(program, steps=edit_steps(program.steps, delay_transfers))
