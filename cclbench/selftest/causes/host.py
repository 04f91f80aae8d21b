# SPDX-License-Identifier: Apache-2.0
"""Causes on the host: Python, launches, waits, loaders, first calls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cclbench.selftest.planting import HealthyJob, PlantedJob, cause, is_collective, is_layer_compute
from cclbench.selftest.program import (
    COMPUTE,
    Batch,
    Copy,
    Instruction,
    Kernel,
    Pause,
    ProgramCall,
    Synchronize,
    item_call,
)

_ADAM = (
    "aten::mul_",
    "aten::lerp_",
    "aten::mul_",
    "aten::addcmul_",
    "aten::sqrt",
    "aten::div_",
    "aten::add_",
    "aten::addcdiv_",
)
"""Kernels of an AdamW step per parameter."""


@cause("synchronization")
def synchronized_layers(subject: HealthyJob) -> PlantedJob:
    """The host waits for the device after some operators, as in code that measures times."""
    random = subject.random_numbers
    draws = {step: random.random(10_000) for step in range(subject.job.steps)}
    count = [0]

    def after(_: int, step: int, call: ProgramCall) -> Sequence[Instruction]:
        count[0] += 1
        if not is_layer_compute(call) or draws[step][count[0] % 10_000] > subject.strength:
            return ()
        return (
            Synchronize(phase=call.phase),
            Pause(20_000 + round(0.02 * subject.strength * subject.step_ns), phase=call.phase),
        )

    return subject.insert_near_calls(after)


@cause("synchronization")
def item_in_layers(subject: HealthyJob) -> PlantedJob:
    """`.item()` of a device tensor, and Python that branches on it."""
    every = 4

    def after(_: int, __: int, call: ProgramCall) -> Sequence[Instruction]:
        if call.family not in ("gemm", "norm") or call.layer % every or call.phase != "forward":
            return ()
        return (
            item_call(call.phase),
            Pause(round(subject.strength * 0.1 * subject.step_ns), phase=call.phase),
        )

    return subject.insert_near_calls(after)


@cause("host_bound")
def slow_python(subject: HealthyJob) -> PlantedJob:
    """Python between operators takes long on all ranks."""

    return _slow_python(subject, frozenset(range(subject.program.rank_count)))


def _slow_python(subject: HealthyJob, ranks: frozenset[int]) -> PlantedJob:
    def slow_python(rank: int, _: int, instruction: Instruction) -> Sequence[Instruction]:
        if not isinstance(instruction, ProgramCall) or rank not in ranks:
            return (instruction,)
        return (replace(instruction, python_ns=round(instruction.python_ns * (1 + 300 * subject.strength))),)

    return subject.edit_program(slow_python)


@cause("short_kernels")
def unfused_kernels(subject: HealthyJob) -> PlantedJob:
    """The same work of a layer in many short kernels: no fusion, no graph."""
    pieces = 1 + round(60 * subject.strength)

    def change(_: int, __: int, instruction: Instruction) -> Sequence[Instruction]:
        if not isinstance(instruction, ProgramCall) or not is_layer_compute(instruction):
            return (instruction,)
        works = tuple(replace(work, ns=max(1_000, work.ns // pieces)) for work in instruction.works)
        return (replace(instruction, works=works),) * pieces

    return subject.edit_program(change)


@cause("unfused_optimizer", "short_kernels")
def unfused_optimizer(subject: HealthyJob) -> PlantedJob:
    """AdamW parameter by parameter: eight kernels of a few µs each."""
    parameters = round(400 * subject.strength)

    def change(_: int, __: int, instruction: Instruction) -> Sequence[Instruction]:
        if not isinstance(instruction, ProgramCall) or instruction.family != "optimizer":
            return (instruction,)
        total = sum(work.ns for work in instruction.works)
        number = max(1, parameters) * len(_ADAM)
        kernel = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_{}<float>>"
        return [
            replace(
                instruction,
                op=op,
                works=(Kernel(kernel.format(op[6:]), max(1_500, total // number), 64),),
                dims=((1024, 64),),
                dtype="float",
            )
            for _ in range(max(1, parameters))
            for op in _ADAM
        ]

    return subject.edit_program(change)


@cause("data_loading")
def slow_workers(subject: HealthyJob) -> PlantedJob:
    """Workers make a batch more slowly than the device uses it."""

    def change(_: int, __: int, instruction: Instruction) -> Sequence[Instruction]:
        if isinstance(instruction, Batch):
            return (replace(instruction, period_ns=round(subject.step_ns * (1 + subject.strength))),)
        return (instruction,)

    return subject.edit_program(change)


@cause("data_loading")
def loading_in_process(subject: HealthyJob) -> PlantedJob:
    """No workers: the training thread makes the batch."""
    pause = Pause(
        round(subject.step_ns * 2 * subject.strength),
        "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",
        "aten::stack",
        phase="loader",
    )
    return subject.edit_program(lambda _, __, it: (pause,) if isinstance(it, Batch) else (it,))


@cause("data_loading", ranks=("late_rank",), steps=9)
def slow_loader_of_one_rank(subject: HealthyJob) -> PlantedJob:
    """One rank's storage is slow."""
    victim = subject.victim_rank
    pause = Pause(
        round(subject.step_ns * 2 * subject.strength),
        "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",
        phase="loader",
    )
    planted = subject.edit_program(
        lambda rank, _, it: (pause,) if isinstance(it, Batch) and rank == victim else (it,)
    )
    return replace(planted, ranks=frozenset((victim,)))


@cause("data_loading", steps=9)
def checkpoint_every_third_step(subject: HealthyJob) -> PlantedJob:
    """The training thread writes a checkpoint."""

    def change(_: int, step: int, instruction: Instruction) -> Sequence[Instruction]:
        if not isinstance(instruction, Batch) or step % 3 != 1:
            return (instruction,)
        return (
            Synchronize(phase="loader"),
            Pause(round(subject.step_ns * 4 * subject.strength), "save_checkpoint", phase="loader"),
            instruction,
        )

    return subject.edit_program(change)


@cause("host_pauses", "host_bound", "uneven_ranks", steps=8)
def garbage_collection(subject: HealthyJob) -> PlantedJob:
    """Pauses of the interpreter, each rank's at its own times, twice a step on average."""
    random = subject.random_numbers

    def after(_: int, __: int, call: ProgramCall) -> Sequence[Instruction]:
        if not is_layer_compute(call) or random.random() > 0.04:
            return ()
        return (
            Pause(round(subject.step_ns * subject.strength * random.lognormal(0, 0.3)), phase=call.phase),
        )

    return subject.insert_near_calls(after)


@cause("cold_start", "warm_up")
def first_calls(subject: HealthyJob) -> PlantedJob:
    """In the first step each kernel's first launch loads its code."""
    loaded: set[tuple[int, str]] = set()

    def change(rank: int, _: int, instruction: Instruction) -> Sequence[Instruction]:
        if not isinstance(instruction, ProgramCall) or is_collective(instruction):
            return (instruction,)
        names = {(rank, work.name) for work in instruction.works if isinstance(work, Kernel)} - loaded
        loaded.update(names)
        load_ns = len(names) * round(subject.step_ns * subject.strength)
        return (replace(instruction, launch_ns=instruction.launch_ns + load_ns),)

    return subject.edit_program(change)


@cause(ranks=("late_rank", "host_bound", "short_kernels"), steps=9)
def oversubscribed_cores(subject: HealthyJob) -> PlantedJob:
    """One rank's host runs at a fraction of its speed."""
    victim, factor = subject.victim_rank, 1 + 60 * subject.strength

    def change(rank: int, _: int, instruction: Instruction) -> Sequence[Instruction]:
        if not isinstance(instruction, ProgramCall) or rank != victim:
            return (instruction,)
        return (
            replace(
                instruction,
                python_ns=round(instruction.python_ns * factor),
                operator_ns=round(instruction.operator_ns * factor),
                launch_ns=round(instruction.launch_ns * factor),
            ),
        )

    return replace(subject.edit_program(change), ranks=frozenset((victim,)))


@cause(ranks=("late_rank", "host_bound"), steps=9)
def late_thread_of_one_rank(subject: HealthyJob) -> PlantedJob:
    """One rank's host does other work before each step, after a wait for the device."""
    victim = subject.victim_rank
    delay = (
        Synchronize(phase="loader"),
        Pause(round(subject.step_ns * subject.strength), phase="loader"),
    )
    planted = subject.edit_program(
        lambda rank, _, it: (*delay, it) if isinstance(it, Batch) and rank == victim else (it,)
    )
    return replace(planted, ranks=frozenset((victim,)))


@cause("host_pauses", ranks=("late_rank", "host_bound"), steps=10)
def stall_every_third_step_of_one_rank(subject: HealthyJob) -> PlantedJob:
    """One rank writes logs every third step."""
    victim = subject.victim_rank
    delay = (
        Synchronize(phase="loader"),
        Pause(round(subject.step_ns * 3 * subject.strength), phase="loader"),
    )
    planted = subject.edit_program(
        lambda rank, step, it: (
            (*delay, it) if isinstance(it, Batch) and rank == victim and step % 3 == 1 else (it,)
        )
    )
    return replace(planted, ranks=frozenset((victim,)))


@cause("synchronization", "exposed_copies")
def pageable_input(subject: HealthyJob) -> PlantedJob:
    """Inputs of each layer are copied from pageable memory: the host waits for each."""

    def after(_: int, __: int, call: ProgramCall) -> Sequence[Instruction]:
        if call.family != "norm" or call.phase != "forward":
            return ()
        ns = round(subject.step_ns * 0.1 * subject.strength) + 2_000
        copy = Copy("HtoD", round(ns * 6.0), ns, pinned=False, stream=COMPUTE)
        dims = ((max(1, copy.size // 4),),) * 2
        return (ProgramCall("aten::copy_", (copy,), dims=dims, dtype="float", family="copy", blocks=True),)

    return subject.insert_near_calls(after)


@cause("synchronization", "short_kernels")
def norm_of_each_gradient(subject: HealthyJob) -> PlantedJob:
    """Before the optimizer step, the host reads the norm of each parameter's gradient."""
    parameters = max(1, round(300 * subject.strength))
    reduce = Kernel("void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>", 6_000, 80)
    norm = ProgramCall(
        "aten::linalg_vector_norm",
        (reduce,),
        dims=((2048, 2048),),
        dtype="float",
        family="norm of gradient",
        phase="optimizer",
    )

    def after(_: int, __: int, call: ProgramCall) -> Sequence[Instruction]:
        return (norm, item_call("optimizer")) * parameters if call.family == "optimizer" else ()

    return subject.insert_near_calls(after, before=True)


@cause("synchronization", "host_bound", "host_pauses")
def logging_behind_a_wait(subject: HealthyJob) -> PlantedJob:
    """Each step ends with a wait for the device, followed by logging."""

    def change(_: int, __: int, instruction: Instruction) -> Sequence[Instruction]:
        if not isinstance(instruction, Batch):
            return (instruction,)
        logged = Pause(round(subject.step_ns * subject.strength), phase="loader")
        return (Synchronize(phase="loader"), logged, instruction)

    return subject.edit_program(change)


@cause("data_loading", steps=10)
def loader_that_refills(subject: HealthyJob) -> PlantedJob:
    """Every fourth batch takes the workers long, as when a shuffle buffer is refilled."""

    def change(_: int, step: int, instruction: Instruction) -> Sequence[Instruction]:
        if not isinstance(instruction, Batch) or step % 4 != 2:
            return (instruction,)
        return (replace(instruction, period_ns=round(subject.step_ns * 5 * subject.strength), prefetch=1),)

    return subject.edit_program(change)


@cause("host_bound", "pipeline_bubble", ranks=("late_rank",), layouts=("pp",), steps=9)
def slow_python_of_one_stage(subject: HealthyJob) -> PlantedJob:
    """The hosts of one pipeline stage run Python for longer than their kernels take."""
    stage = subject.victim_stage
    return replace(_slow_python(subject, stage), ranks=stage)
