# SPDX-License-Identifier: Apache-2.0
"""One rank's training step of a small Llama under FSDP and, in an even world, tensor parallelism.

The workload is synthetic: eight layers, durations similar to those of an A100, kernel names of real traces.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import product
from random import Random

from kineto_rows import SM_COUNT, Recorder, tensor_args

LAYERS = 8
HIDDEN, TOKENS = 4096, 4096
LAYER_PARAMETERS = 4 * HIDDEN * HIDDEN
ACTIVATION_BYTES = 2 * TOKENS * HIDDEN
COMPUTE = 7  # the stream PyTorch's own kernels run on
AUTOGRAD_THREAD = 311  # after the main thread
NCCL_LATENCY_NS, NCCL_BYTES_PER_NS = 22_000, 120
DURATION_NS = {
    "gemm": 180_000,
    "attention": 320_000,
    "reduction": 18_000,
    "elementwise": 14_000,
    "fused": 16_000,
    "optimizer": 95_000,
    "copy_out": 60_000,
}
# Collective: host operator, its annotation, its NCCL kernel.
COLLECTIVES = {
    "_allgather_base": ("c10d::_allgather_base_", "nccl:_all_gather_base", "AllGather_RING_LL"),
    "_reduce_scatter_base": (
        "c10d::_reduce_scatter_base_",
        "nccl:_reduce_scatter_base",
        "ReduceScatter_Sum_bf16_RING_LL",
    ),
    "allreduce": ("c10d::allreduce_", "nccl:all_reduce", "AllReduce_Sum_bf16_RING_LL"),
}

# operator, kind of its kernel, autograd node, kernels of its backward
Operators = tuple[tuple[str, str, str, int], ...]
NORM: Operators = (
    ("aten::pow", "elementwise", "PowBackward0", 2),
    ("aten::mean", "reduction", "MeanBackward1", 1),
    ("aten::rsqrt", "elementwise", "RsqrtBackward0", 2),
    ("aten::mul", "fused", "MulBackward0", 2),
    ("aten::_to_copy", "fused", "ToCopyBackward0", 1),
)
LINEAR: Operators = (("aten::mm", "gemm", "MmBackward0", 2),)
LOSS: Operators = (
    ("aten::_log_softmax", "reduction", "LogSoftmaxBackward0", 1),
    ("aten::nll_loss_forward", "reduction", "NllLossBackward0", 1),
)
ROTARY: Operators = (
    ("aten::mul", "fused", "MulBackward0", 2),
    ("aten::neg", "elementwise", "NegBackward0", 1),
    ("aten::cat", "elementwise", "CatBackward0", 1),
    ("aten::add", "elementwise", "AddBackward0", 1),
)
FLASH = "aten::_scaled_dot_product_flash_attention"
LINEAR_SOURCE = "torch/nn/modules/linear.py(124): forward"
# class, place of its forward method, operators
Modules = tuple[tuple[str, str, Operators], ...]
LAYER: Modules = (
    ("RMSNorm", "model/norm.py(31): forward", NORM),
    ("Linear", LINEAR_SOURCE, LINEAR),
    ("Linear", LINEAR_SOURCE, LINEAR),
    ("Linear", LINEAR_SOURCE, LINEAR),
    ("Rotary", "model/rotary.py(58): forward", ROTARY + ROTARY),
    ("Attention", "model/attention.py(140): forward", ((FLASH, "attention", "FlashAttentionBackward0", 1),)),
    ("RowParallelLinear", LINEAR_SOURCE, LINEAR),
    ("RMSNorm", "model/norm.py(31): forward", NORM),
    ("Linear", LINEAR_SOURCE, LINEAR),
    ("SiLU", "torch/nn/modules/activation.py(432): forward", (("aten::silu", "fused", "SiluBackward0", 1),)),
    ("Linear", LINEAR_SOURCE, LINEAR),
    ("RowParallelLinear", LINEAR_SOURCE, LINEAR),
)
HEAD: Modules = (
    ("RMSNorm", "model/norm.py(31): forward", NORM),
    ("Linear", LINEAR_SOURCE, LINEAR),
    ("CrossEntropyLoss", "torch/nn/modules/loss.py(1293): forward", LOSS),
)
BACKWARD_OPERATORS = {
    "gemm": "aten::mm",
    "attention": "aten::_flash_attention_backward",
    "reduction": "aten::sum",
    "elementwise": "aten::mul",
    "fused": "aten::mul",
}
MODULE_CALL = (
    "torch/nn/modules/module.py(1739): _wrapped_call_impl",
    "torch/nn/modules/module.py(1750): _call_impl",
    "<built-in method _get_tracing_state of PyCapsule object at 0x7f10c8a1b4e0>",
)
LOOKUPS = ("torch/nn/modules/module.py(1915): __getattr__",) * 6 + ("<built-in function isinstance>",) * 2
LOADER = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
NEXT_BATCH = "torch/utils/data/dataloader.py(708): __next__"


ANONYMOUS = "at::native::(anonymous namespace)"
# Device kernels by kind, spelt as cuBLAS, FlashAttention, ATen and Triton do: a pattern and what fills it.
KERNELS: dict[str, tuple[str, tuple[tuple[object, ...], ...]]] = {
    "gemm": (
        "ampere_bf16_s16816gemm_bf16_{}x{}_ldg8_f2f_stages_{}x{}_{}",
        ((64, 128, 256), (64, 128), (32, 64), (3, 4, 5), ("nn", "nt", "tn")),
    ),
    "attention": (
        "void pytorch_flash::flash_{0}_kernel<pytorch_flash::Flash_{0}_kernel_traits<128, 128, 64, 4, {1}, "
        "cutlass::bfloat16_t>, false, true, false>(pytorch_flash::Flash_{0}_params)",
        (("fwd", "bwd_dq_dk_dv_loop"), ("true", "false")),
    ),
    "reduction": (
        "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::{0}<float, float>, "
        "unsigned int, float, {1}, 4> >(at::native::ReduceOp<float, at::native::{0}<float, float>, "
        "unsigned int, float, {1}, 4>)",
        (("MeanOps", "SumOps", "NormTwoOps", "MaxOps"), (1, 2, 4)),
    ),
    "elementwise": (
        "void at::native::vectorized_elementwise_kernel<4, at::native::{0}<{1}>, std::array<char*, 3ul> >"
        "(int, at::native::{0}<{1}>, std::array<char*, 3ul>)",
        (
            ("CUDAFunctor_add", "NegFunctor", "PowFunctor", "CatFunctor"),
            ("float", "c10::BFloat16", "c10::Half", "long"),
        ),
    ),
    "fused": (
        "triton_{}_{}",
        (
            ("poi_fused__to_copy_mul_silu", "red_fused__to_copy_mean_mul_pow_rsqrt", "poi_fused_add_cat_neg"),
            (*range(48),),
        ),
    ),
    "optimizer": (
        f"void {ANONYMOUS}::multi_tensor_apply_kernel<{ANONYMOUS}::FusedOptimizerTensorListMetadata<{{0}}>, "
        f"{ANONYMOUS}::FusedAdamMathFunctor<{{1}}, {{0}}, ({ANONYMOUS}::ADAM_MODE)1, false> >",
        ((3, 4, 5), ("float", "c10::BFloat16")),
    ),
    "copy_out": (
        f"void {ANONYMOUS}::split_with_sizes_copy_out_contiguous_no_cast_kernel(char**, char*, int, int)",
        (),
    ),
}


def kernel_names() -> dict[str, list[str]]:
    """Names of each kind of kernel, about three hundred in total."""
    return {
        kind: [pattern.format(*choice) for choice in product(*choices)]
        for kind, (pattern, choices) in KERNELS.items()
    }


@dataclass(frozen=True)
class Group:
    """A process group: its name and purpose, its ranks in order, the stream its NCCL kernels run on."""

    name: str
    description: str
    ranks: tuple[int, ...]
    stream: int

    def metadata(self, kind: str, in_elements: int, out_elements: int) -> str:
        """Arguments of a collective on its NCCL kernel, as the profiler writes them."""
        return (
            f'"Collective name": "{kind}", "In msg nelems": {in_elements}, "Out msg nelems": {out_elements}, '
            f'"Group size": {len(self.ranks)}, "dtype": "BFloat16", '
            '"In split size": "[]", "Out split size": "[]", '
            f'"Process Group Name": "{self.name}", "Process Group Description": "{self.description}", '
            f'"Process Group Ranks": "{list(self.ranks)}"'
        )


def process_groups(rank: int, world_size: int) -> dict[str, Group]:
    """The groups of a rank: the world, its data parallel ranks, its tensor parallel pair of neighbours."""
    width = 2 if world_size % 2 == 0 else 1
    first = rank - rank % width
    return {
        "world": Group("0", "default_pg", tuple(range(world_size)), 20),
        "dp": Group("1", "mesh_dp", tuple(range(rank % width, world_size, width)), 24),
        "tp": Group("2", "mesh_tp", tuple(range(first, first + width)), 28),
    }


Node = tuple[str, str, int, int]  # autograd node, kernel kind, sequence number, kernels of its backward


@dataclass
class Trainer:
    """The training loop of one rank, recorded step by step."""

    recorder: Recorder
    random: Random
    groups: dict[str, Group]
    names: dict[str, list[str]] = field(default_factory=kernel_names)
    tape: list[tuple[int, list[Node]]] = field(default_factory=list)
    sequence: int = 0
    launches: int = 0

    def launch(self, kind: str) -> tuple[int, int]:
        """A kernel on the compute stream; a position in the step has the same kernel in every step."""
        names = self.names[kind]
        self.launches += 1
        if kind == "gemm":
            self.recorder.call("cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags")
        duration = int(DURATION_NS[kind] * (0.8 + 0.4 * self.random.random()))
        blocks = 64 + self.launches % 7 * SM_COUNT
        return self.recorder.kernel(names[self.launches % len(names)], COMPUTE, duration, blocks)

    def compute(self, name: str, kind: str, sequence: int | None = None) -> tuple[int, int]:
        """An operator with its views and its kernel; one that autograd records has a `sequence` number."""
        record, shapes = self.recorder, ((TOKENS, HIDDEN), (HIDDEN, HIDDEN))
        with ExitStack() as outer:
            if kind == "gemm":
                with ExitStack() as views:
                    for view in ("aten::t", "aten::transpose", "aten::as_strided"):
                        views.enter_context(record.operator(view, tensor_args(shapes[1:])))
                outer.enter_context(record.operator("aten::matmul", tensor_args(shapes)))
            with record.operator(name, tensor_args(shapes), sequence=sequence):
                with record.operator("aten::empty_strided", tensor_args(((), ()))):
                    if sequence is not None:
                        record.allocate(ACTIVATION_BYTES)
                return self.launch(kind)

    def collective(self, kind: str, group: Group, elements: int) -> None:
        """A collective whose larger side has `elements` elements; one that sends results waits for them."""
        record, size, stream = self.recorder, len(group.ranks), group.stream
        inward = elements // size if kind == "_allgather_base" else elements
        outward = elements // size if kind == "_reduce_scatter_base" else elements
        operator, annotation, kernel = COLLECTIVES[kind]
        metadata = group.metadata(kind, inward, outward)
        stride = (group.ranks[-1] - group.ranks[0]) // max(size - 1, 1)
        span = f'"Global rank start": {group.ranks[0]}, "Global rank stride": {stride}'
        duration = NCCL_LATENCY_NS + 2 * elements // NCCL_BYTES_PER_NS
        with ExitStack() as outer:
            outer.enter_context(record.operator(operator, tensor_args(((inward,), (outward,)))))
            outer.enter_context(record.operator("record_param_comms", f"{span}, {metadata}"))
            external = outer.enter_context(record.operator(annotation, category="user_annotation"))
            record.call("cudaStreamIsCapturing")
            if kind != "_allgather_base":
                record.wait(stream, COMPUTE)
            name = f"ncclDevKernel_{kernel}(ncclDevKernelArgsStorage<4096ul>)"
            jitter = int(duration * 0.3 * self.random.random())
            start, end = record.kernel(name, stream, duration + jitter, 24, f", {metadata}")
        record.mark(annotation, stream, start, end, external)

    def gather(self, layer: int) -> None:
        """All-gather a layer's parameters."""
        with self.recorder.operator(f"FSDP::all_gather (layers.{layer})", category="user_annotation"):
            self.collective("_allgather_base", self.groups["dp"], LAYER_PARAMETERS)

    def unpack(self, layer: int) -> None:
        """Copy gathered parameters out of the buffer, which the next all-gather needs."""
        record, stream = self.recorder, self.groups["dp"].stream
        with record.operator(f"FSDP::all_gather_copy_out (layers.{layer})", category="user_annotation"):
            record.wait(COMPUTE, stream)
            with record.operator("fsdp::split_with_sizes_copy", tensor_args(((LAYER_PARAMETERS,),))):
                self.launch("copy_out")
        record.wait(stream, COMPUTE)

    def reduce_tensor_parallel(self) -> None:
        """Sum activations, or their gradients, over the tensor parallel ranks and wait for the sum."""
        group = self.groups["tp"]
        if len(group.ranks) > 1:
            self.collective("allreduce", group, TOKENS * HIDDEN)
            self.recorder.wait(COMPUTE, group.stream)

    def forward(self, layer: int, modules: Modules) -> None:
        """The forward pass of a layer, recorded on the tape."""
        record, nodes = self.recorder, list[Node]()
        self.gather(layer)
        self.unpack(layer)
        for number, (module, source, operators) in enumerate(modules):
            with record.frames(f"nn.Module: {module}_{layer * len(LAYER) + number}", *MODULE_CALL, source):
                for name, kind, node, kernels in operators:
                    for lookup in LOOKUPS:
                        with record.frames(lookup):
                            pass
                    with record.frames(f"<built-in method {name[6:]} of type object at 0x7f10c8d5c5e0>"):
                        self.sequence += 1
                        self.compute(name, kind, self.sequence)
                    nodes.append((node, kind, self.sequence, kernels))
                if module == "RowParallelLinear":
                    self.reduce_tensor_parallel()
        self.tape.append((layer, nodes))

    def backward(self) -> None:
        """The backward pass: the tape in reverse, on autograd's thread."""
        record, main = self.recorder, self.recorder.tid
        record.tid = main + AUTOGRAD_THREAD
        self.gather(LAYERS)
        for layer, nodes in reversed(self.tape):
            self.unpack(layer)
            if layer:
                self.gather(layer - 1)  # ahead of use, so that it runs beside this layer's kernels
            for node, kind, sequence, kernels in reversed(nodes):
                evaluate = f"autograd::engine::evaluate_function: {node}"
                with record.operator(evaluate, sequence=sequence, backward=True), record.operator(node):
                    for _ in range(kernels):
                        self.compute(BACKWARD_OPERATORS[kind], kind)
                record.allocate(-ACTIVATION_BYTES)
                if node == "PowBackward0":
                    self.reduce_tensor_parallel()
            with record.operator(f"FSDP::post_backward_reduce (layers.{layer})", category="user_annotation"):
                self.collective("_reduce_scatter_base", self.groups["dp"], LAYER_PARAMETERS)
        self.tape.clear()
        record.tid = main

    def optimize(self) -> None:
        """Clip the gradients by their norm over all ranks, and update the parameters."""
        record = self.recorder
        record.wait(COMPUTE, self.groups["dp"].stream)
        with record.frames("torch/nn/utils/clip_grad.py(186): clip_grad_norm_"):
            for _ in range(LAYERS):
                self.compute("aten::_foreach_norm", "reduction")
            self.collective("allreduce", self.groups["world"], 1)
            record.wait(COMPUTE, self.groups["world"].stream)
        with (
            record.operator("Optimizer.step#AdamW.step", category="user_annotation") as external,
            record.frames("torch/optim/adamw.py(220): step", "torch/optim/adam.py(827): _fused_adam"),
        ):
            updates = [self.compute("aten::_fused_adamw_", "optimizer") for _ in range(LAYERS)]
        record.mark("Optimizer.step#AdamW.step", COMPUTE, updates[0][0], updates[-1][1], external)

    def step(self, number: int) -> None:
        """A training step: load, forward, backward, optimizer, and the loss read by the host."""
        record = self.recorder
        self.launches = 0
        with ExitStack() as whole:
            external = whole.enter_context(
                record.operator(f"ProfilerStep#{number}", category="user_annotation")
            )
            whole.enter_context(record.frames("train.py(212): train_step"))
            with record.operator(LOADER, category="user_annotation"), record.frames(NEXT_BATCH):
                record.spend(400_000)
            with record.operator("aten::copy_", tensor_args(((TOKENS,), (TOKENS,)))):
                start, _ = record.copy("Memcpy HtoD (Pinned -> Device)", COMPUTE, 8 * TOKENS)
            with record.operator("Optimizer.zero_grad#AdamW.zero_grad", category="user_annotation"):
                record.copy("Memset (Device)", COMPUTE, 4 * HIDDEN)
            with record.frames("nn.Module: Llama_0", *MODULE_CALL, "model/llama.py(301): forward"):
                for layer in range(LAYERS):
                    self.forward(layer, LAYER)
                self.forward(LAYERS, HEAD)
            with record.frames(
                "torch/_tensor.py(570): backward", "torch/autograd/__init__.py(242): backward"
            ):
                self.backward()
            self.optimize()
            with record.operator("aten::item"), record.operator("aten::_local_scalar_dense"):
                _, end = record.copy("Memcpy DtoH (Device -> Pinned)", COMPUTE, 4)
                record.call("cudaStreamSynchronize", until=end + 1500)
            record.synchronise()
        record.mark(f"ProfilerStep#{number}", COMPUTE, start, end, external)
