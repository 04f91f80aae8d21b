# SPDX-License-Identifier: Apache-2.0
"""Train a small Llama-like model on random tokens under the PyTorch profiler, sharded in one of three ways.

    torchrun --standalone --nproc-per-node 4 tiny_llama.py --parallelism fsdp_tp --tp 2 --output traces

- `ddp`: every rank holds the whole model; gradients are averaged in buckets.
- `fsdp`: FSDP2; each layer's parameters are sharded over all ranks and gathered when they are needed.
- `fsdp_tp`: tensor and sequence parallelism within groups of `--tp` neighbouring ranks, FSDP2 across them.

All three see the same global batch and reach the same loss. `--wait` steps wait and two warm up; the
`--steps` that follow are in OUTPUT/rank{R}_trace.json.gz, each with the marks forward, backward and
optimizer, as cclbench.torch.profile captures them. The name of the host, the path of the profiler's temporary
file and the running numbers of events (`Ev Idx`) are left out.

`--stacks` records Python's stacks and with them the modules, `--memory` each allocation. The first
`--recomputed-layers` layers keep no activations: backward computes them again.
"""

from __future__ import annotations

import argparse
import gzip
import os
import re
from contextlib import AbstractContextManager
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import record_function
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, Dataset, DistributedSampler

import cclbench.torch

WARMUP = 2
VOCABULARY = 2048
BUCKET_MB = 4  # DDP's default of 25 would leave so small a model one bucket, with nothing to overlap

Rotation = tuple[torch.Tensor, torch.Tensor]


def rotation(sequence: int, head_dim: int, device: torch.device, theta: float = 10_000.0) -> Rotation:
    """Cosine and sine [sequence, head_dim / 2] of rotary position embedding (Su et al. 2021)."""
    frequency = theta ** (-torch.arange(0, head_dim, 2, device=device) / head_dim)
    angle = torch.outer(torch.arange(sequence, device=device), frequency)
    return angle.cos(), angle.sin()


def rotate(x: torch.Tensor, by: Rotation) -> torch.Tensor:
    """Rotate the pairs (i, i + head_dim / 2) of x [batch, heads, sequence, head_dim]."""
    cosine, sine = (table.to(x.dtype) for table in by)
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cosine - second * sine, first * sine + second * cosine), dim=-1)


class Attention(nn.Module):
    """Causal multi-head self-attention, q, k and v in one projection; tensor parallelism splits heads."""

    def __init__(self, hidden: int, head_dim: int) -> None:
        super().__init__()
        self.head_dim = head_dim
        self.wqkv = nn.Linear(hidden, 3 * hidden, bias=False)
        self.wo = nn.Linear(hidden, hidden, bias=False)

    def forward(self, x: torch.Tensor, by: Rotation) -> torch.Tensor:
        by_head = self.wqkv(x).unflatten(-1, (-1, 3, self.head_dim))
        q, k, v = (y.transpose(1, 2) for y in by_head.unbind(-2))
        y = functional.scaled_dot_product_attention(rotate(q, by), rotate(k, by), v, is_causal=True)
        return self.wo(y.transpose(1, 2).flatten(2))


class FeedForward(nn.Module):
    """SwiGLU: w2(silu(w1 x) · w3 x)."""

    def __init__(self, hidden: int, inner: int) -> None:
        super().__init__()
        self.w1, self.w3 = (nn.Linear(hidden, inner, bias=False) for _ in range(2))
        self.w2 = nn.Linear(inner, hidden, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.w2(functional.silu(self.w1(x)) * self.w3(x))


class Layer(nn.Module):
    """Attention and feed-forward (about 8/3 of the width), each normalised first, each with its residual."""

    def __init__(self, hidden: int, head_dim: int) -> None:
        super().__init__()
        self.attention_norm, self.feed_forward_norm = nn.RMSNorm(hidden), nn.RMSNorm(hidden)
        self.attention = Attention(hidden, head_dim)
        self.feed_forward = FeedForward(hidden, hidden * 8 // 3 // 64 * 64)

    def forward(self, x: torch.Tensor, by: Rotation) -> torch.Tensor:
        x = x + self.attention(self.attention_norm(x), by)
        return x + self.feed_forward(self.feed_forward_norm(x))


class TinyLlama(nn.Module):
    """From token ids [batch, sequence] to logits [batch, sequence, vocabulary]; embeddings untied."""

    def __init__(self, layers: int, heads: int, head_dim: int, recomputed_layers: int = 0) -> None:
        super().__init__()
        hidden = heads * head_dim
        self.head_dim, self.recomputed_layers = head_dim, recomputed_layers
        self.rotation: Rotation | None = None
        self.embedding = nn.Embedding(VOCABULARY, hidden)
        self.layers = nn.ModuleList(Layer(hidden, head_dim) for _ in range(layers))
        self.norm = nn.RMSNorm(hidden)
        self.output = nn.Linear(hidden, VOCABULARY, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        if self.rotation is None:
            self.rotation = rotation(tokens.shape[1], self.head_dim, tokens.device)
        x = self.embedding(tokens)
        for number, layer in enumerate(self.layers):
            if number < self.recomputed_layers:
                # An early stop cuts the last product short, and its row looks as if it had run.
                x = checkpoint(layer, x, self.rotation, use_reentrant=False, early_stop=False)
            else:
                x = layer(x, self.rotation)
        return self.output(self.norm(x))


class RandomTokens(Dataset[torch.Tensor]):
    """Sequences of random tokens, each drawn from its own index: the same in every run and sharding."""

    def __init__(self, count: int, sequence_length: int) -> None:
        self.count, self.sequence_length = count, sequence_length

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> torch.Tensor:
        generator = torch.Generator().manual_seed(index)
        return torch.randint(VOCABULARY, (self.sequence_length + 1,), generator=generator)


def tensor_parallel(model: TinyLlama, mesh: DeviceMesh) -> None:
    """Split heads, feed-forward columns and vocabulary over the mesh, and elsewhere the sequence."""
    whole = {
        "embedding": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
        "norm": SequenceParallel(),
        "output": ColwiseParallel(input_layouts=Shard(1), use_local_output=False),
    }
    layer = {
        "attention_norm": SequenceParallel(),
        "attention": PrepareModuleInput(
            input_layouts=(Shard(1), None), desired_input_layouts=(Replicate(), None)
        ),
        "attention.wqkv": ColwiseParallel(),
        "attention.wo": RowwiseParallel(output_layouts=Shard(1)),
        "feed_forward_norm": SequenceParallel(),
        "feed_forward": PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),)),
        "feed_forward.w1": ColwiseParallel(),
        "feed_forward.w3": ColwiseParallel(),
        "feed_forward.w2": RowwiseParallel(output_layouts=Shard(1)),
    }
    parallelize_module(model, mesh, whole)
    for block in model.layers:
        parallelize_module(block, mesh, layer)


def parallelize(model: TinyLlama, mesh: DeviceMesh, parallelism: str, precision: str) -> nn.Module:
    """The model as the ranks of the mesh (dp, tp) train it together."""
    if parallelism == "ddp":
        return DistributedDataParallel(model, process_group=mesh["dp"].get_group(), bucket_cap_mb=BUCKET_MB)
    if parallelism == "fsdp_tp":
        tensor_parallel(model, mesh["tp"])
    policy = MixedPrecisionPolicy()
    if precision == "bf16":
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for module in (*model.layers, model):
        fully_shard(module, mesh=mesh["dp"], mp_policy=policy)
    return model


def cut(path: Path) -> None:
    """Cut the host's name, the temporary file's path and `Ev Idx` out of a trace.

    The text is cut, not parsed and written anew: a number keeps each of its digits.
    """
    text = gzip.decompress(path.read_bytes()).decode()
    text = re.sub(r'\n *"host_name": "[^"]*",', "", text)
    text = re.sub(r'(?<="traceName": ")[^"]*', path.name, text)
    text = re.sub(r',\s*"Ev Idx": \d+', "", text)
    text = re.sub(r"\n *", "", text)  # no string of JSON holds a line break
    path.write_bytes(gzip.compress(text.encode(), mtime=0))


def train_step(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    tokens: torch.Tensor,
    precision: AbstractContextManager[object],
) -> torch.Tensor:
    """Forward, backward and optimizer, each marked, over a batch; its loss.  `precision` holds in forward."""
    with record_function("forward"), precision:
        logits = model(tokens[:, :-1])
        loss = functional.cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten())
    with record_function("backward"):
        loss.backward()
    with record_function("optimizer"):
        optimizer.step()
        optimizer.zero_grad()
    return loss.detach()


def train(options: argparse.Namespace) -> None:
    """Train for wait + warm-up + active steps, write this rank's trace, print the loss of each step."""
    rank, world = dist.get_rank(), dist.get_world_size()
    mesh = init_device_mesh(options.device, (world // options.tp, options.tp), mesh_dim_names=("dp", "tp"))
    torch.manual_seed(0)
    model = TinyLlama(options.layers, options.heads, options.head_dim, options.recomputed_layers)
    model = model.to(options.device)
    parameters = sum(p.numel() for p in model.parameters())
    model = parallelize(model, mesh, options.parallelism, options.precision)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)

    replicas = mesh["dp"].size()
    dataset = RandomTokens(
        options.global_batch * (options.wait + WARMUP + options.steps), options.sequence_length
    )
    sampler = DistributedSampler(dataset, replicas, mesh["dp"].get_local_rank(), shuffle=False)
    loader = DataLoader(dataset, batch_size=options.global_batch // replicas, sampler=sampler)

    # FSDP casts by its own policy.
    autocast = options.precision == "bf16" and options.parallelism == "ddp"
    losses = []
    with (
        loss_parallel(),
        cclbench.torch.profile(
            options.output,
            wait=options.wait,
            warmup=WARMUP,
            active=options.steps,
            stacks=options.stacks,
            memory=options.memory,
            execution_trace=options.execution_trace,
            model=model,
            mesh=mesh,
            global_batch=options.global_batch,
            sequence_length=options.sequence_length,
        ) as profiler,
    ):
        for batch in loader:
            precision = torch.autocast(options.device, torch.bfloat16, enabled=autocast)
            losses.append(train_step(model, optimizer, batch.to(options.device), precision))
            profiler.step()
    cut(options.output / f"rank{rank}_trace.json.gz")

    total = torch.tensor([loss.item() for loss in losses], device=options.device)
    dist.all_reduce(total)
    if rank == 0:
        print(
            f"{parameters} parameters; loss by step:", *(f"{loss:.5f}" for loss in (total / world).tolist())
        )


def arguments() -> argparse.Namespace:
    """The command line, checked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parallelism", choices=("ddp", "fsdp", "fsdp_tp"), required=True)
    parser.add_argument("--tp", type=int, default=1, help="tensor-parallel degree, for fsdp_tp")
    parser.add_argument("--backend", choices=("gloo", "nccl"), default="gloo")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32")
    parser.add_argument("--global-batch", type=int, default=16, help="sequences a step")
    parser.add_argument("--sequence-length", type=int, default=128, help="tokens")
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--head-dim", type=int, default=64)
    parser.add_argument(
        "--wait", type=int, default=1, help="steps without the profiler; from 2 on they are timed"
    )
    parser.add_argument("--steps", type=int, default=3, help="steps in the trace")
    parser.add_argument("--recomputed-layers", type=int, default=0, help="layers without kept activations")
    parser.add_argument("--stacks", action="store_true", help="record Python's stacks and the modules")
    parser.add_argument("--memory", action="store_true", help="record each allocation")
    parser.add_argument("--output", type=Path, required=True, help="folder for the traces, made if missing")
    parser.add_argument("--execution-trace", action="store_true", help="write OUTPUT/rank{R}_et.json as well")
    options = parser.parse_args()
    if (options.tp > 1) != (options.parallelism == "fsdp_tp"):
        parser.error("--tp 2 or more goes with --parallelism fsdp_tp, and only with it")
    return options


def main() -> None:
    options = arguments()
    if options.device == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
    dist.init_process_group(options.backend)
    train(options)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
