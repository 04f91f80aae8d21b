# SPDX-License-Identifier: Apache-2.0
"""Operators of a transformer on one rank: their kernels, durations, shapes and collectives."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from cclbench.selftest.job import DEVICES, EXCHANGE, GATHER, PRODUCT_KERNELS, REDUCE, JobShape, process_groups
from cclbench.selftest.program import COMPUTE, Collective, Instruction, Kernel, ProgramCall, StreamWait


class RankOperators:
    """Calls of one rank, without noise; kernel durations follow from their FLOPs or bytes."""

    def __init__(self, job: JobShape, rank: int) -> None:
        self.job, self.rank = job, rank
        self.stage = rank % job.inner if job.layout == "pp" else 0
        self.sequence = 0
        groups = process_groups(job)
        self.data = groups[0][::2]
        self.inner = groups[0][::2]
        if job.inner > 1:
            self.inner = next((g[0], g[2]) for g in groups[1:] if g[0].startswith("inner") and rank in g[2])
            self.data = next(
                ((g[0], g[2]) for g in groups[1:] if g[0].startswith("outer") and rank in g[2]), ("", (rank,))
            )

    def attention_calls(self, layer: int, tokens: int) -> Iterator[ProgramCall]:
        """Norm, QKV, attention, output projection, residual."""
        hidden, width = self.job.hidden, self.layer_width
        yield self.norm_call(layer, tokens)
        yield self.product_call(layer, tokens, hidden, 3 * width)
        yield self.flash_attention(layer, tokens, width, "forward")
        yield self.product_call(layer, tokens, width, hidden)
        yield self.elementwise_call("aten::add", "CUDAFunctor_add", layer, tokens, hidden, 3)

    def mlp_calls(self, layer: int, tokens: int) -> Iterator[ProgramCall]:
        """Norm, up, activation, down, residual; grouped products where there are experts."""
        hidden, width = self.job.hidden, 4 * self.layer_width
        yield self.norm_call(layer, tokens)
        yield self.product_call(layer, tokens, hidden, width, expert=True)
        yield self.elementwise_call("aten::gelu", "GeluCUDAKernelImpl", layer, tokens, width, 2)
        yield self.product_call(layer, tokens, width, hidden, expert=True)
        yield self.elementwise_call("aten::add", "CUDAFunctor_add", layer, tokens, hidden, 3)

    def mlp_backward(self, layer: int, tokens: int) -> Iterator[ProgramCall]:
        """Gradients of `mlp_calls`."""
        hidden, width = self.job.hidden, 4 * self.layer_width
        yield from self.products_backward(layer, tokens, width, hidden, expert=True)
        yield self.elementwise_call(
            "aten::gelu_backward", "GeluBackwardCUDAKernelImpl", layer, tokens, width, 3, "Gelu"
        )
        yield from self.products_backward(layer, tokens, hidden, width, expert=True)
        yield self.norm_call(layer, tokens, "backward")

    def attention_backward(self, layer: int, tokens: int) -> Iterator[ProgramCall]:
        """Gradients of `attention_calls`."""
        yield from self.products_backward(layer, tokens, self.layer_width, self.job.hidden)
        yield self.flash_attention(layer, tokens, self.layer_width, "backward")
        yield from self.products_backward(layer, tokens, self.job.hidden, 3 * self.layer_width)
        yield self.norm_call(layer, tokens, "backward")

    @property
    def layer_width(self) -> int:
        """Width of a rank's part of a layer."""
        return self.job.hidden // (self.job.inner if self.job.layout == "tp" else 1)

    def flops_ns(self, flops: float, share: float = 1.0) -> int:
        """Duration of a compute-bound kernel, ns."""
        return round(flops / (DEVICES[self.job.device][0] * self.job.efficiency * share) * 1e9) + 2_000

    def bytes_ns(self, size: float) -> int:
        """Duration of a memory-bound kernel, ns."""
        return round(size / (DEVICES[self.job.device][1] * 0.88) * 1e9) + 1_500

    def next_sequence(self) -> int:
        """Sequence number of the next forward operator that autograd records."""
        self.sequence += 1
        return self.sequence

    def product_call(self, layer: int, m: int, k: int, n: int, *, expert: bool = False) -> ProgramCall:
        """A matrix product of the forward pass."""
        experts = expert and self.job.layout == "ep"
        dims = ((m, k), (8, k, n)) if experts else ((m, k), (k, n))
        kernel = Kernel(self.product_name(experts, "tn"), self.flops_ns(2.0 * m * k * n), m * n // 32768)
        return ProgramCall(
            "aten::_grouped_mm" if experts else "aten::mm",
            (kernel,),
            dims=dims,
            family="expert" if experts else "gemm",
            layer=layer,
            sequence=self.next_sequence(),
        )

    def product_name(self, experts: bool, form: str) -> str:
        """Kernel name as the libraries write it."""
        if experts:
            return (
                "void cutlass::device_kernel<at::cuda::detail::enable_3x_kernel_for_sm9x<cutlass::gemm::"
                "kernel::GemmUniversal<cutlass::gemm::GroupProblemShape<cute::tuple<int, int, int> > > > >"
            )
        return f"{PRODUCT_KERNELS[self.job.device]}_128x256_64x3_{form}"

    def products_backward(
        self, layer: int, m: int, k: int, n: int, *, expert: bool = False
    ) -> Iterator[ProgramCall]:
        """The two products of a product's gradients."""
        experts = expert and self.job.layout == "ep"
        node, number = ("GroupedMmBackward0" if experts else "MmBackward0"), self.sequence
        for form, (a, b, c) in (("nt", (k, m, n)), ("nn", (m, n, k))):
            second = (8, b // 8, c) if experts and form == "nt" else (8, b, c) if experts else (b, c)
            yield ProgramCall(
                "aten::_grouped_mm" if experts else "aten::mm",
                (Kernel(self.product_name(experts, form), self.flops_ns(2.0 * m * k * n), a * c // 32768),),
                dims=((a, b), second),
                family="expert" if experts else "gemm",
                phase="backward",
                layer=layer,
                node=node,
                sequence=number,
            )

    def flash_attention(self, layer: int, tokens: int, width: int, phase: str) -> ProgramCall:
        """Fused causal attention over sequences of 2,048."""
        heads, sequence = max(1, width // 128), 2048
        shape = (max(1, tokens // sequence), heads, sequence, 128)
        backward = phase == "backward"
        flops = (5.0 if backward else 2.0) * tokens * sequence * width
        name = "flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel" if backward else "flash_fwd_kernel"
        return ProgramCall(
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
            sequence=self.sequence if backward else self.next_sequence(),
        )

    def norm_call(self, layer: int, tokens: int, phase: str = "forward") -> ProgramCall:
        """Layer norm or its gradient."""
        backward, hidden = phase == "backward", self.job.hidden
        name = "layer_norm_grad_input_kernel" if backward else "vectorized_layer_norm_kernel"
        return ProgramCall(
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
            sequence=self.sequence if backward else self.next_sequence(),
        )

    def elementwise_call(
        self, op: str, functor: str, layer: int, tokens: int, width: int, operands: int, node: str = ""
    ) -> ProgramCall:
        """A kernel that reads and writes `operands` matrices in all."""
        name = f"void at::native::vectorized_elementwise_kernel<4, at::native::{functor}<c10::BFloat16>>"
        return ProgramCall(
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
            sequence=self.sequence if node else self.next_sequence(),
        )

    def loss_calls(self) -> Iterator[ProgramCall]:
        """The loss and its gradient."""
        tokens, hidden = self.job.tokens, self.job.hidden
        yield self.elementwise_call("aten::sub", "CUDAFunctor_sub", -1, tokens, hidden, 3)
        yield self.elementwise_call("aten::mul", "CUDAFunctor_mul", -1, tokens, hidden, 3, "Sub")

    def optimizer_calls(self) -> Iterator[ProgramCall]:
        """Fused AdamW over this rank's weights."""
        job = self.job
        shards = {"fsdp": job.outer, "tp": job.inner, "pp": job.inner}.get(job.layout, 1)
        weights = 12 * job.hidden**2 * job.layers // shards
        kernel = (
            "void at::native::(anonymous namespace)::multi_tensor_apply_kernel"
            "<FusedOptimizerTensorListMetadata<4>, FusedAdamMathFunctor<float, 4>>"
        )
        # Optimizer states are left out, so that the optimizer's share of a step is that of a large model.
        total_ns = self.bytes_ns(8.0 * weights)
        yield ProgramCall(
            "aten::_fused_adamw_",
            tuple(Kernel(kernel, total_ns // 2, 320) for _ in range(2)),
            family="optimizer",
            phase="optimizer",
        )

    def collective_ns(self, kind: str, size: float, ranks: int) -> int:
        """Latency plus transfer time at the links' bus bandwidth, ns."""
        factor = {"all_reduce": 2 * (ranks - 1) / ranks, "send": 1.0, "recv": 1.0}.get(
            kind, (ranks - 1) / ranks
        )
        return self.job.latency_ns + round(size * factor / self.job.bus_bytes_per_s * 1e9)

    def collective_call(
        self, kind: str, group: tuple[str, tuple[int, ...]], elements: int, stream: int, **call: Any
    ) -> ProgramCall:
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
        plain = ProgramCall("record_param_comms", (work,), operator_ns=12_000, family="collective")
        return replace(plain, **call)

    def gather_weights(self, layer: int, weights: int, phase: str) -> ProgramCall:
        """All ranks' parts of a layer's weights."""
        return self.collective_call(
            "all_gather", self.data, weights, GATHER, layer=layer, phase=phase, event=f"gather{layer}"
        )

    def reduce_gradients(self, layer: int, kind: str, elements: int) -> Iterator[Instruction]:
        """Reduce the gradients computed so far."""
        if len(self.data[1]) > 1:
            yield StreamWait(REDUCE, COMPUTE, phase="backward")
            yield self.collective_call(kind, self.data, elements, REDUCE, layer=layer, phase="backward")

    def exchange_activations(self, layer: int, tokens: int, half: str, phase: str) -> Iterator[Instruction]:
        """Exchange in the group for a half's part of a layer: a sum (tensor), or tokens (experts)."""
        kind = "all_reduce" if self.job.layout == "tp" else "all_to_all"
        yield StreamWait(EXCHANGE, COMPUTE, phase=phase)
        yield self.collective_call(
            kind,
            self.inner,
            tokens * self.job.hidden,
            EXCHANGE,
            layer=layer,
            phase=phase,
            event=f"half{half}",
        )

    def stage_transfer(self, kind: str, peer: int, stream: int, phase: str) -> ProgramCall:
        """Activations or gradients of a micro-batch, between stages."""
        call = self.collective_call(
            kind, self.inner, self.job.tokens // 2 * self.job.hidden, stream, phase=phase
        )
        (work,) = call.works
        assert isinstance(work, Collective)  # noqa: S101
        return replace(call, works=(replace(work, peer=peer),))
