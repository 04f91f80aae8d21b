# SPDX-License-Identifier: Apache-2.0
"""Causes in kernels: clocks, precision, sizes, fusion, recomputation, contention."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import replace

from cclbench.selftest.jobs import scale_transfers
from cclbench.selftest.operators import RankOperators
from cclbench.selftest.planting import HealthyJob, PlantedJob, cause, is_layer_compute, lengthen_rows
from cclbench.selftest.program import RECOMPUTE_OFFSET, Instruction, Kernel, ProgramCall


@cause(ranks=("slow_device",), layouts=("ddp", "fsdp", "tp"), steps=9)
def slow_device(subject: HealthyJob) -> PlantedJob:
    """One rank's clocks are low."""
    victim = subject.victim_rank
    planted = subject.scale_kernels(lambda rank, _, __: 1 + subject.strength if rank == victim else 1.0)
    return replace(planted, ranks=frozenset((victim,)))


@cause("throttling", ranks=("slow_device",), layouts=("ddp", "fsdp"), steps=13)
def throttled_rank(subject: HealthyJob) -> PlantedJob:
    """One rank's clocks fall in the middle of the capture."""
    victim = subject.victim_rank
    since = int(subject.random_numbers.integers(4, 8))
    planted = subject.scale_kernels(
        lambda rank, step, _: 1 + 2 * subject.strength if rank == victim and step >= since else 1.0
    )
    return replace(planted, ranks=frozenset((victim,)))


@cause("throttling", layouts=("ddp", "fsdp"), steps=13)
def heat(subject: HealthyJob) -> PlantedJob:
    """All ranks' clocks fall from step to step."""
    return subject.scale_kernels(lambda _, step, __: 1 + 2 * subject.strength * step / subject.job.steps)


@cause("tensor_cores", "low_gemm_efficiency", layouts=("ddp", "fsdp", "tp", "pp"))
def single_precision_products(subject: HealthyJob) -> PlantedJob:
    """Some of the smallest matrix products run in fp32 without tensor cores."""
    least = min(
        work.ns
        for call in subject.program.steps[0][0]
        if isinstance(call, ProgramCall) and call.family == "gemm"
        for work in call.works
    )
    draws: dict[object, float] = {}
    random = subject.random_numbers

    def change(_: int, __: int, instruction: Instruction) -> Sequence[Instruction]:
        if not isinstance(instruction, ProgramCall) or instruction.family != "gemm":
            return (instruction,)
        product = (instruction.layer, instruction.phase, instruction.dims)
        small = instruction.works[0].ns < 2 * least
        if draws.setdefault(product, random.random()) > subject.strength or not small:
            return (instruction,)
        works = tuple(
            replace(work, ns=round(work.ns * 15.5), name="ampere_sgemm_128x128_tn")
            for work in instruction.works
            if isinstance(work, Kernel)
        )
        return (replace(instruction, works=works, dtype="float"),)

    return subject.edit_program(change)


@cause("misaligned_products", "low_gemm_efficiency", layouts=("ddp", "fsdp", "tp", "pp"))
def odd_sizes(subject: HealthyJob) -> PlantedJob:
    """Sizes that are not a multiple of a tile: the library uses a kernel for single elements."""
    factor = 1.6 + 3 * subject.strength

    def change(_: int, __: int, instruction: Instruction) -> Sequence[Instruction]:
        if not isinstance(instruction, ProgramCall) or instruction.family != "gemm":
            return (instruction,)
        (m, k), (_, n) = instruction.dims
        works = tuple(
            replace(work, ns=round(work.ns * factor), name=f"{work.name}_align1", grid=work.grid + 1)
            for work in instruction.works
            if isinstance(work, Kernel)
        )
        return (replace(instruction, works=works, dims=((m, k), (k, n - 1))),)

    return subject.edit_program(change)


@cause("unfused_attention", "memory_bound", layouts=("ddp", "fsdp", "pp"))
def unfused_attention(subject: HealthyJob) -> PlantedJob:
    """Attention as products and kernels that scale, mask and normalise the scores between them."""
    operators = RankOperators(subject.job, 0)
    between = ("aten::mul", "aten::masked_fill", "aten::add", "aten::copy_")
    passes = max(1, round(15 * subject.strength))
    names = (*(between[number % 4] for number in range(passes - 1)), "aten::_softmax")
    numbers: dict[tuple[int, int, int], deque[int | None]] = defaultdict(deque)

    def change(rank: int, step: int, call: Instruction) -> Sequence[Instruction]:
        if not isinstance(call, ProgramCall) or call.family != "attention":
            return (call,)
        unfinished = numbers[rank, step, call.layer]
        batches, heads, length, width = call.dims[0]
        scores = (batches * heads, length, length)
        is_backward = call.phase == "backward"
        if is_backward:
            call = replace(call, sequence=unfinished.popleft())
        else:
            unfinished.append(call.sequence)
        # Unlike fused attention, products also compute what the causal mask removes.
        product_ns = operators.flops_ns(2.0 * batches * heads * length**2 * width)
        gemm = Kernel(operators.product_name(False, "tn"), product_ns, scores[0] * 256)
        product = replace(
            call,
            op="aten::bmm",
            works=(gemm,),
            dims=((scores[0], length, width), (scores[0], width, length)),
            node="BmmBackward0" if is_backward else None,
        )
        ns = operators.bytes_ns(2.0 * 2 * scores[0] * length**2)
        elementwise = [
            replace(call, op=name, works=(Kernel(_kernel_name(name), ns, scores[0] * 4096),), dims=(scores,))
            for name in names
        ]
        products = (product,) * (2 if is_backward else 1)
        second = replace(product, dims=(scores, (scores[0], length, width)))
        return (*products, *elementwise, *(second,) * len(products))

    return subject.edit_program(change)


def _kernel_name(op: str) -> str:
    if op == "aten::_softmax":
        return "void at::native::(anonymous namespace)::cunn_SoftMaxForward<8, c10::BFloat16, float>"
    return f"void at::native::vectorized_elementwise_kernel<4, at::native::{op[6:]}_kernel<c10::BFloat16>>"


@cause("memory_bound")
def eager_activations(subject: HealthyJob) -> PlantedJob:
    """An activation as ten elementwise operators."""

    def after(_: int, __: int, call: ProgramCall) -> Sequence[Instruction]:
        if not call.op.startswith("aten::gelu"):
            return ()
        pieces = max(1, round(40 * subject.strength))
        ops = ("aten::mul", "aten::pow", "aten::tanh", "aten::add")
        return tuple(replace(call, op=ops[piece % 4]) for piece in range(pieces))

    return subject.insert_near_calls(after)


@cause("recompute", layouts=("ddp", "fsdp"))
def recomputed_layers(subject: HealthyJob) -> PlantedJob:
    """The backward pass of a layer runs its forward operators again (activation checkpointing)."""
    share = min(1.0, 3 * subject.strength)
    steps = []
    for rank_steps in subject.program.steps:
        recomputed = []
        for step in rank_steps:
            forward: dict[int, list[ProgramCall]] = {}
            new: list[Instruction] = []
            begun: set[int] = set()
            for it in step:
                if isinstance(it, ProgramCall) and is_layer_compute(it):
                    if it.phase == "forward":
                        forward.setdefault(it.layer, []).append(it)
                    elif it.layer not in begun:
                        begun.add(it.layer)
                        repeated = forward[it.layer][: round(share * len(forward[it.layer]))]
                        new += [
                            replace(
                                call,
                                phase="backward",
                                node="CheckpointFunctionBackward",
                                sequence=(call.sequence or 0) + RECOMPUTE_OFFSET,
                            )
                            for call in repeated
                        ]
                new.append(it)
            recomputed.append(tuple(new))
        steps.append(tuple(recomputed))
    return PlantedJob(replace(subject.program, steps=tuple(steps)), subject.program)


@cause("contention", layouts=("ddp", "fsdp"))
def contention(subject: HealthyJob) -> PlantedJob:
    """Communication takes cores and bandwidth from concurrent kernels."""
    # Transfers must overlap much of the compute and still be hidden.
    busy = scale_transfers(subject.program, 2.0, lambda *_: True)
    return PlantedJob(replace(busy, contention=1 + 2 * subject.strength), busy)


@cause("uneven_ranks", layouts=("ddp", "fsdp"), steps=10)
def varied_sequences(subject: HealthyJob) -> PlantedJob:
    """Each rank's sequences are longer in some steps and shorter in others; no rank is at fault."""
    factors = subject.random_numbers.lognormal(
        0.0, subject.strength, (subject.program.rank_count, subject.job.steps)
    )
    means = factors.mean(axis=0)

    def planted(rank_factor: bool) -> PlantedJob:
        def change(rank: int, step: int, instruction: Instruction) -> Sequence[Instruction]:
            if not isinstance(instruction, ProgramCall) or not is_layer_compute(instruction):
                return (instruction,)
            return (lengthen_rows(instruction, float(factors[rank, step] if rank_factor else means[step])),)

        return subject.edit_program(change)

    return PlantedJob(planted(True).with_cause, planted(False).with_cause)


@cause(ranks=("late_rank",), layouts=("ddp", "fsdp"), steps=8)
def longer_sequences_of_one_rank(subject: HealthyJob) -> PlantedJob:
    """One rank has more tokens in every step."""
    victim = subject.victim_rank
    planted = subject.edit_program(
        lambda rank, _, it: (
            (lengthen_rows(it, 1 + subject.strength),)
            if isinstance(it, ProgramCall) and is_layer_compute(it) and rank == victim
            else (it,)
        )
    )
    return replace(planted, ranks=frozenset((victim,)))


@cause(ranks=("slow_device", "late_rank"), layouts=("ddp", "fsdp"), steps=9)
def slow_memory_of_one_rank(subject: HealthyJob) -> PlantedJob:
    """One rank's memory is slow: kernels that move bytes take longer, products do not."""
    victim = subject.victim_rank

    def factor(rank: int, _: int, call: ProgramCall) -> float:
        moves = call.family not in ("gemm", "attention", "expert")
        return 1 + 6 * subject.strength if rank == victim and moves else 1.0

    return replace(subject.scale_kernels(factor), ranks=frozenset((victim,)))


@cause("low_gemm_efficiency", layouts=("ddp", "fsdp", "tp"))
def slow_products(subject: HealthyJob) -> PlantedJob:
    """Matrix products of all ranks take several times as long as their FLOPs need."""
    factor = 1 + 4 * subject.strength
    return subject.scale_kernels(lambda _, __, call: factor if call.family == "gemm" else 1.0)


@cause("below_roofline", "unfused_norm", "memory_bound", layouts=("ddp", "fsdp", "tp"))
def slow_norms(subject: HealthyJob) -> PlantedJob:
    """Normalisation kernels take many times as long as their bytes need."""
    factor = 1 + 20 * subject.strength
    return subject.scale_kernels(lambda _, __, call: factor if call.family == "norm" else 1.0)
