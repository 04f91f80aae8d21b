# SPDX-License-Identifier: Apache-2.0
"""Healthy training jobs: DDP, FSDP, tensor, expert and pipeline parallel, drawn from a seed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from cclbench.selftest.program import (
    COMPUTE,
    Batch,
    Call,
    Collective,
    Copy,
    Instruction,
    Kernel,
    Pause,
    Program,
    Step,
    StreamWait,
    edited,
)
from cclbench.selftest.truth import simulate

if TYPE_CHECKING:
    import numpy as np

    Random = np.random.Generator

LAYOUTS: Final = ("ddp", "fsdp", "tp", "ep", "pp")
LAWS: Final = ("lognormal", "autoregressive", "heavy_tailed")
DEVICES: Final = {
    "NVIDIA A100-SXM4-80GB": (312e12, 2.0e12),
    "NVIDIA H100 80GB HBM3": (989e12, 3.35e12),
}
"""Dense bf16 FLOP/s and bytes/s of memory."""
_WIDENINGS: Final = 12
_FASTEST_LINKS: Final = 4.0e11
"""Bytes/s of bus bandwidth, as a node's switches reach."""
_PREFIX: Final = {
    "NVIDIA A100-SXM4-80GB": "ampere_bf16_s16816gemm_bf16",
    "NVIDIA H100 80GB HBM3": "nvjet_tst",
}
GATHER, REDUCE, EXCHANGE = 21, 25, 29
"""Streams of all-gathers, of reductions, and of what layers exchange."""
_FORWARD_OUT, _FORWARD_IN, _BACKWARD_OUT, _BACKWARD_IN = 31, 33, 35, 37


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The shape of a job; its random numbers follow from the seed."""

    layout: str
    seed: int
    inner: int = 1
    """Ranks of a tensor, expert or pipeline group."""
    outer: int = 2
    """Ranks of a data-parallel group."""
    layers: int = 3
    hidden: int = 2048
    tokens: int = 8192
    steps: int = 6
    microbatches: int = 1
    device: str = "NVIDIA A100-SXM4-80GB"
    efficiency: float = 0.84
    bus_bytes_per_s: float = 2.0e11
    latency_ns: int = 12_000
    law: str = "lognormal"
    spread: float = 0.004
    """Of the work of a rank in a step."""
    logs_loss: bool = False
    """Each step ends with `loss.item()`."""
    clock_ns: int = 0
    """How far clocks are apart."""
    sync_events: bool = False

    @property
    def ranks(self) -> int:
        """How many."""
        return self.inner * self.outer


def drawn(random: Random, seed: int, layouts: Sequence[str] = LAYOUTS) -> Job:
    """A healthy job."""
    layout = layouts[int(random.integers(len(layouts)))]
    inner = 1 if layout in ("ddp", "fsdp") else int(random.choice([2, 4] if layout == "pp" else [2]))
    outer = int(random.choice([4, 4, 8] if inner == 1 else [2, 2, 4] if inner == 2 else [1]))
    fast = bool(random.integers(2))
    return Job(
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


def transfers_hidden(job: Job) -> Job:
    """The job with links so fast, and layers so wide, that a step gains less than 0.6 % without transfers."""
    for _ in range(_WIDENINGS):
        program = build(replace(job, steps=3))
        without = transfers_scaled(program, 0.0, lambda _, __: True)
        if simulate(without).step_s > 0.994 * simulate(program).step_s:
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
    """What a rank's work of each step takes, of its mean."""
    import numpy as np

    normal = random.standard_normal(steps)
    if law == "heavy_tailed":
        return [float(one) for one in 1 + spread * (random.pareto(2.5, steps) - 1 / 1.5)]
    if law == "autoregressive":
        for step in range(1, steps):
            normal[step] = 0.6 * normal[step - 1] + 0.8 * normal[step]
    return [float(one) for one in np.exp(spread * normal - spread**2 / 2)]


def build(job: Job) -> Program:
    """The program of a job, with its random numbers drawn."""
    import numpy as np

    steps = []
    for rank in range(job.ranks):
        random = np.random.default_rng([job.seed, rank])
        factors = work_factors(job.law, job.spread, job.steps, random)
        rank_builder = _RankBuilder(job, rank)
        plain = tuple(rank_builder.step())
        steps.append(
            tuple(
                _jittered(plain, float(factor), random, number * rank_builder.sequence)
                for number, factor in enumerate(factors)
            )
        )
    offsets = np.random.default_rng([job.seed, 1_000]).integers(-job.clock_ns, job.clock_ns + 1, job.ranks)
    return Program(
        tuple(steps),
        _groups(job),
        device=job.device,
        clock_offsets_ns=tuple(int(offset) for offset in offsets),
        sync_events=job.sync_events,
    )


def transfers_scaled(program: Program, factor: float, only: Callable[[int, Collective], bool]) -> Program:
    """The program with transfers that take `factor` of their time."""

    def scale(rank: int, _: int, instruction: Instruction) -> tuple[Instruction, ...]:
        if not isinstance(instruction, Call):
            return (instruction,)
        works = tuple(
            replace(work, ns=max(1, round(work.ns * factor)))
            if isinstance(work, Collective) and only(rank, work)
            else work
            for work in instruction.works
        )
        return (replace(instruction, works=works),)

    return replace(program, steps=edited(program.steps, scale))


def _jittered(step: Step, factor: float, random: Random, sequence: int) -> Step:
    def jitter(instruction: Instruction) -> Instruction:
        if not isinstance(instruction, Call):
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

    return tuple(jitter(instruction) for instruction in step)


def _groups(job: Job) -> tuple[tuple[str, str, tuple[int, ...]], ...]:
    world = tuple(range(job.ranks))
    groups = [("0", "default_pg", world)]
    if job.inner > 1:
        groups += [
            (f"inner{first}", f"mesh_{job.layout}", world[first : first + job.inner])
            for first in range(0, job.ranks, job.inner)
        ]
        if job.outer > 1:
            groups += [(f"outer{i}", "mesh_dp", world[i :: job.inner]) for i in range(job.inner)]
    return tuple(groups)


class _RankBuilder:
    """One step of one rank, without noise."""

    def __init__(self, job: Job, rank: int) -> None:
        self.job, self.rank = job, rank
        self.stage = rank % job.inner if job.layout == "pp" else 0
        self.sequence = 0
        groups = _groups(job)
        self.data = groups[0][::2]
        self.inner = groups[0][::2]
        if job.inner > 1:
            self.inner = next((g[0], g[2]) for g in groups[1:] if g[0].startswith("inner") and rank in g[2])
            self.data = next(
                ((g[0], g[2]) for g in groups[1:] if g[0].startswith("outer") and rank in g[2]), ("", (rank,))
            )

    def step(self) -> Iterator[Instruction]:
        """A whole step."""
        job = self.job
        yield Batch(period_ns=1, phase="loader")
        size = job.tokens * 8
        yield Call(
            "aten::copy_",
            (Copy("HtoD", size, 1_500 + round(size / 22.0), stream=COMPUTE),),
            dims=((job.tokens,), (job.tokens,)),
            dtype="long int",
            family="copy",
            phase="loader",
        )
        if job.layout == "pp":
            yield from self.pipeline()
        elif job.layout in ("tp", "ep"):
            yield from self.halves()
        else:
            yield from self.plain()
        yield from self.optimizer()
        if job.logs_loss:
            yield Call(
                "aten::_local_scalar_dense",
                (Copy("DtoH", 4, 1_500, pinned=False),),
                family="item",
                phase="optimizer",
                blocks=True,
            )
        yield Pause(15_000, phase="optimizer")

    def plain(self) -> Iterator[Instruction]:
        """Layer after layer; FSDP gathers one layer ahead, DDP reduces in buckets."""
        job, shards = self.job, self.job.layout == "fsdp"
        weights = 12 * job.hidden**2
        layers = range(job.layers)
        if shards:
            yield StreamWait(GATHER, COMPUTE)
            yield self.gather(0, weights, "forward")
        for layer in layers:
            if shards:
                if layer + 1 < job.layers:
                    yield self.gather(layer + 1, weights, "forward")
                yield StreamWait(COMPUTE, GATHER, f"gather{layer}")
            yield from self.attention(layer, job.tokens)
            yield from self.mlp(layer, job.tokens)
        yield from self.loss()
        for layer in reversed(layers):
            if shards:
                if layer > 0:
                    yield self.gather(layer - 1, weights, "backward")
                if layer < job.layers - 1:
                    yield StreamWait(COMPUTE, GATHER, f"gather{layer}", phase="backward")
            yield from self.mlp_backward(layer, job.tokens)
            if not shards:
                yield from self.reduce(layer, "all_reduce", 8 * job.hidden**2)
            yield from self.attention_backward(layer, job.tokens)
            if shards:
                yield from self.reduce(layer, "reduce_scatter", weights)
            else:
                yield from self.reduce(layer, "all_reduce", 4 * job.hidden**2)
        yield StreamWait(COMPUTE, REDUCE, phase="backward")

    def halves(self) -> Iterator[Instruction]:
        """Two halves of a batch take turns, so that one computes while the other one's layers exchange."""
        tokens = self.job.tokens // 2
        for layer in range(self.job.layers):
            for part in (self.attention, self.mlp):
                for half in "ab":
                    yield StreamWait(COMPUTE, EXCHANGE, f"half{half}")
                    yield from part(layer, tokens)
                    yield from self.exchange(layer, tokens, half, "forward")
        for half in "ab":
            yield StreamWait(COMPUTE, EXCHANGE, f"half{half}")
        yield from self.loss()
        for layer in reversed(range(self.job.layers)):
            for back in (self.mlp_backward, self.attention_backward):
                for half in "ab":
                    if back == self.attention_backward or layer < self.job.layers - 1:
                        yield StreamWait(COMPUTE, EXCHANGE, f"half{half}", phase="backward")
                    yield from back(layer, tokens)
                    yield from self.exchange(layer, tokens, half, "backward")
            yield from self.reduce(layer, "all_reduce", 12 * self.job.hidden**2 // self.job.inner)
        yield StreamWait(COMPUTE, REDUCE, phase="backward")

    def pipeline(self) -> Iterator[Instruction]:
        """One forward, one backward (1F1B)."""
        job = self.job
        warm_up = min(job.inner - self.stage - 1, job.microbatches)
        for _ in range(warm_up):
            yield from self.stage_forward()
        for _ in range(job.microbatches - warm_up):
            yield from self.stage_forward()
            yield from self.stage_backward()
        for _ in range(warm_up):
            yield from self.stage_backward()
        for layer in reversed(range(max(1, job.layers // job.inner))):
            yield from self.reduce(layer, "all_reduce", 12 * job.hidden**2)
        yield StreamWait(COMPUTE, REDUCE, phase="backward")

    def stage_forward(self) -> Iterator[Instruction]:
        """A micro-batch through this stage."""
        tokens = self.job.tokens // 2
        if self.stage > 0:
            yield self.transfer("recv", self.rank - 1, _FORWARD_IN, "forward")
            yield StreamWait(COMPUTE, _FORWARD_IN)
        for layer in range(max(1, self.job.layers // self.job.inner)):
            yield from self.attention(layer, tokens)
            yield from self.mlp(layer, tokens)
        if self.stage < self.job.inner - 1:
            yield StreamWait(_FORWARD_OUT, COMPUTE)
            yield self.transfer("send", self.rank + 1, _FORWARD_OUT, "forward")

    def stage_backward(self) -> Iterator[Instruction]:
        """A micro-batch's gradients through this stage."""
        tokens = self.job.tokens // 2
        if self.stage < self.job.inner - 1:
            yield self.transfer("recv", self.rank + 1, _BACKWARD_IN, "backward")
            yield StreamWait(COMPUTE, _BACKWARD_IN, phase="backward")
        for layer in reversed(range(max(1, self.job.layers // self.job.inner))):
            yield from self.mlp_backward(layer, tokens)
            yield from self.attention_backward(layer, tokens)
        if self.stage > 0:
            yield StreamWait(_BACKWARD_OUT, COMPUTE, phase="backward")
            yield self.transfer("send", self.rank - 1, _BACKWARD_OUT, "backward")

    def attention(self, layer: int, tokens: int) -> Iterator[Call]:
        """Norm, QKV, attention, output projection, residual."""
        hidden, width = self.job.hidden, self.width
        yield self.norm(layer, tokens)
        yield self.product(layer, tokens, hidden, 3 * width)
        yield self.flash(layer, tokens, width, "forward")
        yield self.product(layer, tokens, width, hidden)
        yield self.elementwise("aten::add", "CUDAFunctor_add", layer, tokens, hidden, 3)

    def mlp(self, layer: int, tokens: int) -> Iterator[Call]:
        """Norm, up, activation, down, residual; grouped products where there are experts."""
        hidden, width = self.job.hidden, 4 * self.width
        yield self.norm(layer, tokens)
        yield self.product(layer, tokens, hidden, width, expert=True)
        yield self.elementwise("aten::gelu", "GeluCUDAKernelImpl", layer, tokens, width, 2)
        yield self.product(layer, tokens, width, hidden, expert=True)
        yield self.elementwise("aten::add", "CUDAFunctor_add", layer, tokens, hidden, 3)

    def mlp_backward(self, layer: int, tokens: int) -> Iterator[Call]:
        """Gradients of `mlp`."""
        hidden, width = self.job.hidden, 4 * self.width
        yield from self.products_backward(layer, tokens, width, hidden, expert=True)
        yield self.elementwise(
            "aten::gelu_backward", "GeluBackwardCUDAKernelImpl", layer, tokens, width, 3, "Gelu"
        )
        yield from self.products_backward(layer, tokens, hidden, width, expert=True)
        yield self.norm(layer, tokens, "backward")

    def attention_backward(self, layer: int, tokens: int) -> Iterator[Call]:
        """Gradients of `attention`."""
        yield from self.products_backward(layer, tokens, self.width, self.job.hidden)
        yield self.flash(layer, tokens, self.width, "backward")
        yield from self.products_backward(layer, tokens, self.job.hidden, 3 * self.width)
        yield self.norm(layer, tokens, "backward")

    @property
    def width(self) -> int:
        """Of a rank's part of a layer."""
        return self.job.hidden // (self.job.inner if self.job.layout == "tp" else 1)

    def flops_ns(self, flops: float, share: float = 1.0) -> int:
        """Duration of a kernel that computes."""
        return round(flops / (DEVICES[self.job.device][0] * self.job.efficiency * share) * 1e9) + 2_000

    def bytes_ns(self, size: float) -> int:
        """Duration of a kernel that moves bytes."""
        return round(size / (DEVICES[self.job.device][1] * 0.88) * 1e9) + 1_500

    def numbered(self) -> int:
        """The next operator of the forward pass that autograd records."""
        self.sequence += 1
        return self.sequence

    def product(self, layer: int, m: int, k: int, n: int, *, expert: bool = False) -> Call:
        """A matrix product of the forward pass."""
        experts = expert and self.job.layout == "ep"
        dims = ((m, k), (8, k, n)) if experts else ((m, k), (k, n))
        kernel = Kernel(self.product_name(experts, "tn"), self.flops_ns(2.0 * m * k * n), m * n // 32768)
        return Call(
            "aten::_grouped_mm" if experts else "aten::mm",
            (kernel,),
            dims=dims,
            family="expert" if experts else "gemm",
            layer=layer,
            sequence=self.numbered(),
        )

    def product_name(self, experts: bool, form: str) -> str:
        """As the libraries name their kernels."""
        if experts:
            return (
                "void cutlass::device_kernel<at::cuda::detail::enable_3x_kernel_for_sm9x<GroupProblemShape>>"
            )
        return f"{_PREFIX[self.job.device]}_128x256_64x3_{form}"

    def products_backward(
        self, layer: int, m: int, k: int, n: int, *, expert: bool = False
    ) -> Iterator[Call]:
        """The two products of a product's gradients."""
        experts = expert and self.job.layout == "ep"
        node, number = ("GroupedMmBackward0" if experts else "MmBackward0"), self.sequence
        for form, (a, b, c) in (("nt", (k, m, n)), ("nn", (m, n, k))):
            second = (8, b // 8, c) if experts and form == "nt" else (8, b, c) if experts else (b, c)
            yield Call(
                "aten::_grouped_mm" if experts else "aten::mm",
                (Kernel(self.product_name(experts, form), self.flops_ns(2.0 * m * k * n), a * c // 32768),),
                dims=((a, b), second),
                family="expert" if experts else "gemm",
                phase="backward",
                layer=layer,
                node=node,
                sequence=number,
            )

    def flash(self, layer: int, tokens: int, width: int, phase: str) -> Call:
        """Fused causal attention over sequences of 2,048."""
        heads, sequence = max(1, width // 128), 2048
        shape = (max(1, tokens // sequence), heads, sequence, 128)
        backward = phase == "backward"
        flops = (5.0 if backward else 2.0) * tokens * sequence * width
        name = "flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel" if backward else "flash_fwd_kernel"
        return Call(
            f"aten::_scaled_dot_product_flash_attention{'_backward' if backward else ''}",
            (
                Kernel(
                    f"void pytorch_flash::{name}<pytorch_flash::Flash_{name[6:9]}_kernel_traits<128>>",
                    self.flops_ns(flops, 0.7),
                    shape[0] * heads * 16,
                ),
            ),
            dims=(shape,) * (4 if backward else 3),
            family="attention",
            phase=phase,
            layer=layer,
            node="ScaledDotProductFlashAttentionBackward0" if backward else None,
            sequence=self.sequence if backward else self.numbered(),
        )

    def norm(self, layer: int, tokens: int, phase: str = "forward") -> Call:
        """Layer norm or its gradient."""
        backward, hidden = phase == "backward", self.job.hidden
        name = "layer_norm_grad_input_kernel" if backward else "vectorized_layer_norm_kernel"
        return Call(
            f"aten::native_layer_norm{'_backward' if backward else ''}",
            (
                Kernel(
                    f"void at::native::(anonymous namespace)::{name}<c10::BFloat16, float>",
                    self.bytes_ns((3 if backward else 2) * 2 * tokens * hidden),
                    tokens,
                ),
            ),
            dims=((tokens, hidden), (hidden,)),
            family="norm",
            phase=phase,
            layer=layer,
            node="NativeLayerNormBackward0" if backward else None,
            sequence=self.sequence if backward else self.numbered(),
        )

    def elementwise(
        self, op: str, functor: str, layer: int, tokens: int, width: int, operands: int, node: str = ""
    ) -> Call:
        """A kernel that reads and writes `operands` matrices in all."""
        name = f"void at::native::vectorized_elementwise_kernel<4, at::native::{functor}<c10::BFloat16>>"
        return Call(
            op,
            (
                Kernel(
                    name,
                    self.bytes_ns(2.0 * operands * tokens * width),
                    tokens * width // 1024,
                ),
            ),
            dims=((tokens, width),) * max(1, operands - 1),
            family="elementwise",
            phase="backward" if node else "forward",
            layer=layer,
            node=f"{node}Backward0" if node else None,
            sequence=self.sequence if node else self.numbered(),
        )

    def loss(self) -> Iterator[Call]:
        """The loss and its gradient."""
        tokens, hidden = self.job.tokens, self.job.hidden
        yield self.elementwise("aten::sub", "CUDAFunctor_sub", -1, tokens, hidden, 3)
        yield self.elementwise("aten::mul", "CUDAFunctor_mul", -1, tokens, hidden, 3, "Sub")

    def optimizer(self) -> Iterator[Call]:
        """Fused AdamW over this rank's weights."""
        job = self.job
        shards = {"fsdp": job.outer, "tp": job.inner, "pp": job.inner}.get(job.layout, 1)
        weights = 12 * job.hidden**2 * job.layers // shards
        kernel = (
            "void at::native::(anonymous namespace)::multi_tensor_apply_kernel"
            "<FusedOptimizerTensorListMetadata<4>, FusedAdamMathFunctor<float, 4>>"
        )
        # Optimizer states are not this test's matter: their share is kept as large models' batches make it.
        whole = self.bytes_ns(8.0 * weights)
        yield Call(
            "aten::_fused_adamw_",
            tuple(Kernel(kernel, whole // 2, 320) for _ in range(2)),
            family="optimizer",
            phase="optimizer",
        )

    def collective_ns(self, kind: str, size: float, ranks: int) -> int:
        """Latency and the time of the bytes at the links' bus bandwidth."""
        factor = {"all_reduce": 2 * (ranks - 1) / ranks, "send": 1.0, "recv": 1.0}.get(
            kind, (ranks - 1) / ranks
        )
        return self.job.latency_ns + round(size * factor / self.job.bus_bytes_per_s * 1e9)

    def meet(
        self, kind: str, group: tuple[str, tuple[int, ...]], elements: int, stream: int, **call: object
    ) -> Call:
        """The call of a collective of bf16 elements."""
        name, ranks = group
        work = Collective(
            kind,
            name,
            ranks,
            elements,
            self.collective_ns(kind, 2.0 * elements, len(ranks)),
            stream,
            self.job.latency_ns,
        )
        return replace(Call("record_param_comms", (work,), operator_ns=12_000, family="collective"), **call)  # type: ignore[arg-type]

    def gather(self, layer: int, weights: int, phase: str) -> Call:
        """All ranks' parts of a layer's weights."""
        return self.meet(
            "all_gather", self.data, weights, GATHER, layer=layer, phase=phase, event=f"gather{layer}"
        )

    def reduce(self, layer: int, kind: str, elements: int) -> Iterator[Instruction]:
        """Gradients of what has been computed so far."""
        if len(self.data[1]) > 1:
            yield StreamWait(REDUCE, COMPUTE, phase="backward")
            yield self.meet(kind, self.data, elements, REDUCE, layer=layer, phase="backward")

    def exchange(self, layer: int, tokens: int, half: str, phase: str) -> Iterator[Instruction]:
        """What a half's layer part needs of the group: a sum (tensor), or its tokens (experts)."""
        kind = "all_reduce" if self.job.layout == "tp" else "all_to_all"
        yield StreamWait(EXCHANGE, COMPUTE, phase=phase)
        yield self.meet(
            kind,
            self.inner,
            tokens * self.job.hidden,
            EXCHANGE,
            layer=layer,
            phase=phase,
            event=f"half{half}",
        )

    def transfer(self, kind: str, peer: int, stream: int, phase: str) -> Call:
        """Activations or gradients of a micro-batch, between stages."""
        call = self.meet(kind, self.inner, self.job.tokens // 2 * self.job.hidden, stream, phase=phase)
        (work,) = call.works
        assert isinstance(work, Collective)  # noqa: S101
        return replace(call, works=(replace(work, peer=peer),))
