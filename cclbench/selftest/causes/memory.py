# SPDX-License-Identifier: Apache-2.0
"""Causes in copies and allocations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cclbench.selftest.planting import HealthyJob, PlantedJob, cause, is_layer_compute
from cclbench.selftest.program import COMPUTE, Copy, Instruction, ProgramCall, Runtime


def _insert_copies(
    subject: HealthyJob, direction: str, bytes_per_ns: float, families: tuple[str, ...]
) -> PlantedJob:
    def copies_after(_: int, __: int, call: ProgramCall) -> Sequence[Instruction]:
        if call.family not in families or call.layer < 0:
            return ()
        ns = round(subject.step_ns * 0.1 * subject.strength) + 2_000
        copy = Copy(direction, round(ns * bytes_per_ns), ns, stream=COMPUTE)
        dims = ((max(1, copy.size // 2),),) * 2
        return (ProgramCall("aten::copy_", (copy,), dims=dims, family="copy", phase=call.phase),)

    return subject.insert_near_calls(copies_after)


@cause("exposed_copies")
def offloaded_activations(subject: HealthyJob) -> PlantedJob:
    """Activations are copied to pinned memory on the compute stream."""
    return _insert_copies(subject, "DtoH", 22.0, ("attention",))


@cause("exposed_copies")
def copies_on_the_device(subject: HealthyJob) -> PlantedJob:
    """`.clone()` and `.contiguous()` of contiguous tensors, by the copy engine."""
    return _insert_copies(subject, "DtoD", 800.0, ("gemm", "expert"))


@cause("device_allocation")
def allocator_retries(subject: HealthyJob) -> PlantedJob:
    """The caching allocator frees its blocks and allocates anew: cudaFree waits for the device."""

    def after(_: int, __: int, call: ProgramCall) -> Sequence[Instruction]:
        if call.family != "attention" or call.layer % 2:
            return ()
        ns = round(subject.step_ns * 0.05 * subject.strength)
        return (
            Runtime("cudaFree", ns, drains=True, phase=call.phase),
            Runtime("cudaFree", ns, drains=True, phase=call.phase),
            Runtime("cudaMalloc", 2 * ns, phase=call.phase),
        )

    return subject.insert_near_calls(after)


@cause("device_allocation")
def allocations_in_steps(subject: HealthyJob) -> PlantedJob:
    """Growing sizes: repeated cudaMalloc."""

    def after(_: int, __: int, call: ProgramCall) -> Sequence[Instruction]:
        if not is_layer_compute(call) or call.family == "norm":
            return ()
        return (Runtime("cudaMalloc", round(subject.step_ns * 0.2 * subject.strength), phase=call.phase),)

    return subject.insert_near_calls(after)


@cause("exposed_copies", ranks=("late_rank",), layouts=("ddp", "fsdp"), steps=9)
def slow_bus_of_one_rank(subject: HealthyJob) -> PlantedJob:
    """One rank's copies from its host are slow, as with fewer PCIe lanes."""
    victim = subject.victim_rank

    def change(rank: int, _: int, instruction: Instruction) -> Sequence[Instruction]:
        if not isinstance(instruction, ProgramCall) or rank != victim or instruction.phase != "loader":
            return (instruction,)
        works = tuple(
            replace(work, ns=work.ns + round(subject.step_ns * subject.strength))
            if isinstance(work, Copy)
            else work
            for work in instruction.works
        )
        return (replace(instruction, works=works),)

    return replace(subject.edit_program(change), ranks=frozenset((victim,)))
