# SPDX-License-Identifier: Apache-2.0
"""Train a small Llama on one GPU, eager, compiled or in fp8, or generate with it, under the PyTorch profiler.

    python one_gpu.py train --output traces [--compiled] [--fp8] [--memory]
    python one_gpu.py decode --output traces [--graph]
    python one_gpu.py out_of_memory --output traces --gigabytes 4

- `train`: steps of bf16 with fused AdamW.  `--fp8` makes each projection of a layer a product of E4M3 values
  (gradients E5M2), each tensor scaled by its largest value; `--memory` writes CUDA's memory snapshot and
  PyTorch's own split of it over time by category (`memory_timeline.json.gz`) as well.
- `decode`: one token of each sequence a step, with a cache of keys and values; `--graph` replays it as a CUDA
  graph.
- `out_of_memory`: batches that double until the allocator, kept to so many gigabytes, has no more, and the
  snapshot of that moment.

The first steps are timed without the profiler, two warm up; the `--steps` that follow are in the trace.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import torch
from tiny_llama import VOCABULARY, Attention, TinyLlama, cut, rotate, rotation, train_step
from torch import nn
from torch.autograd.function import FunctionCtx, once_differentiable
from torch.nn import functional
from torch.profiler import record_function

import cclbench.torch

WAIT, WARMUP = 10, 2
LAYERS, HEADS, HEAD_DIM = 4, 16, 64


def scaled(x: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """A tensor in fp8, and the factor that gives its values back."""
    factor = x.abs().amax().float().clamp(min=1e-12) / torch.finfo(dtype).max
    return (x / factor).to(dtype), factor


def product(left: torch.Tensor, right: torch.Tensor, types: tuple[torch.dtype, torch.dtype]) -> torch.Tensor:
    """left [m, k] times the transpose of right [n, k] on fp8 tensor cores."""
    (a, scale_a), (b, scale_b) = (scaled(x, t) for x, t in zip((left, right), types, strict=True))
    return torch._scaled_mm(a.contiguous(), b.contiguous().t(), scale_a, scale_b, out_dtype=torch.bfloat16)


class Fp8Product(torch.autograd.Function):
    """x [tokens, in] times the transpose of weight [out, in]; all three products in fp8."""

    @staticmethod
    def forward(ctx: FunctionCtx, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x, weight)
        return product(x, weight, (torch.float8_e4m3fn, torch.float8_e4m3fn))

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, gradient: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x, weight = ctx.saved_tensors
        types = (torch.float8_e5m2, torch.float8_e4m3fn)
        return product(gradient, weight.t(), types), product(gradient.t(), x.t(), types)


class Fp8Linear(nn.Linear):
    """A projection without bias in fp8."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return Fp8Product.apply(x.flatten(0, -2), self.weight).unflatten(0, x.shape[:-1])


def build(fp8: bool = False) -> TinyLlama:
    """The model in bf16, on the GPU."""
    torch.manual_seed(0)
    llama = TinyLlama(LAYERS, HEADS, HEAD_DIM)
    if fp8:
        for parent in [module for layer in llama.layers for module in layer.modules()]:
            for name, child in parent.named_children():
                if isinstance(child, nn.Linear):
                    setattr(parent, name, Fp8Linear(child.in_features, child.out_features, bias=False))
    return llama.to("cuda", torch.bfloat16)


def train(options: argparse.Namespace) -> None:
    """Steps over random tokens; the loss of each is printed."""
    llama = build(options.fp8)
    optimizer = torch.optim.AdamW(llama.parameters(), lr=1e-3, fused=True)
    model = torch.compile(llama) if options.compiled else llama
    losses = []
    with cclbench.torch.profile(
        options.output,
        wait=WAIT,
        warmup=WARMUP,
        active=options.steps,
        stacks=options.stacks or options.memory,
        memory=options.memory,
        memory_snapshot=options.memory,
        model=llama,
        global_batch=options.batch,
        sequence_length=options.sequence_length,
    ) as profiler:
        for step in range(WAIT + WARMUP + options.steps):
            torch.manual_seed(step)
            shape = (options.batch, options.sequence_length + 1)
            tokens = torch.randint(VOCABULARY, shape).pin_memory().to("cuda", non_blocking=True)
            losses.append(train_step(model, optimizer, tokens, nullcontext()))
            profiler.step()
    if options.memory:
        timeline(llama, optimizer, options)
    cut(options.output / "rank0_trace.json.gz")
    print("loss by step:", *(f"{loss.item():.3f}" for loss in losses))


def timeline(llama: TinyLlama, optimizer: torch.optim.Optimizer, options: argparse.Namespace) -> None:
    """One more step, of which PyTorch itself says how much memory of which category it holds when."""
    tokens = torch.randint(VOCABULARY, (options.batch, options.sequence_length + 1), device="cuda")
    with torch.profiler.profile(record_shapes=True, with_stack=True, profile_memory=True) as profiler:
        logits = llama(tokens[:, :-1])
        functional.cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten()).backward()
        optimizer.step()
        optimizer.zero_grad()
    profiler.export_chrome_trace(str(options.output / "memory_step_trace.json.gz"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in ("memory_timeline.json.gz", "memory_timeline.raw.json.gz"):
            profiler.export_memory_timeline(str(options.output / name), device="cuda:0")


class CachedAttention(nn.Module):
    """Attention of one new token to all before it, whose keys and values are kept."""

    def __init__(self, attention: Attention, batch: int, length: int) -> None:
        super().__init__()
        self.wqkv, self.wo, self.head_dim = attention.wqkv, attention.wo, attention.head_dim
        heads = self.wo.in_features // self.head_dim
        shape = (batch, heads, length, self.head_dim)
        self.keys, self.values = (torch.zeros(shape, dtype=torch.bfloat16, device="cuda") for _ in range(2))
        self.position = torch.zeros(1, dtype=torch.long, device="cuda")
        self.is_past = torch.zeros((1, 1, 1, length), dtype=torch.bool, device="cuda")

    def forward(self, x: torch.Tensor, by: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        by_head = self.wqkv(x).unflatten(-1, (-1, 3, self.head_dim))
        q, k, v = (y.transpose(1, 2) for y in by_head.unbind(-2))
        here = tuple(table[self.position] for table in by)
        self.keys.index_copy_(2, self.position, rotate(k, here))
        self.values.index_copy_(2, self.position, v)
        self.is_past.index_fill_(3, self.position, True)
        y = functional.scaled_dot_product_attention(
            rotate(q, here), self.keys, self.values, attn_mask=self.is_past
        )
        self.position += 1
        return self.wo(y.transpose(1, 2).flatten(2))


def decode(options: argparse.Namespace) -> None:
    """Generate greedily from a prompt of one token."""
    llama, length = build(), options.sequence_length
    for layer in llama.layers:
        layer.attention = CachedAttention(layer.attention, options.batch, length)
    llama.rotation = rotation(length, HEAD_DIM, torch.device("cuda"))
    tokens = torch.zeros((options.batch, 1), dtype=torch.long, device="cuda")

    def step() -> None:
        tokens.copy_(llama(tokens)[:, -1:].argmax(-1))

    with torch.no_grad():
        generate = replayed(step) if options.graph else step
        with cclbench.torch.profile(
            options.output,
            wait=WAIT,
            warmup=WARMUP,
            active=options.steps,
            stacks=options.stacks,
            model=llama,
            global_batch=options.batch,
            sequence_length=length,
            phase="inference",
        ) as profiler:
            for _ in range(WAIT + WARMUP + options.steps):
                with record_function("decode"):
                    generate()
                profiler.step()
    cut(options.output / "rank0_trace.json.gz")


def replayed(step: Callable[[], None]) -> Callable[[], None]:
    """A step as a CUDA graph."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def out_of_memory(options: argparse.Namespace) -> None:
    """Train with batches that double until there is no memory left."""
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(options.gigabytes * 1e9 / total)
    torch.cuda.memory._record_memory_history(max_entries=100_000, stacks="python")
    options.output.mkdir(parents=True, exist_ok=True)
    llama = build()
    optimizer = torch.optim.AdamW(llama.parameters(), lr=1e-3, fused=True)
    batch = options.batch
    try:
        while True:
            tokens = torch.randint(VOCABULARY, (batch, options.sequence_length + 1), device="cuda")
            logits = llama(tokens[:, :-1])
            functional.cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten()).backward()
            optimizer.step()
            optimizer.zero_grad()
            batch *= 2
    except torch.OutOfMemoryError as error:
        torch.cuda.memory._dump_snapshot(str(options.output / "rank0_memory_snapshot.pickle"))
        (options.output / "error.txt").write_text(f"{error}\n")
        print(f"a batch of {batch} did not fit")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("train", "decode", "out_of_memory"))
    parser.add_argument("--output", type=Path, required=True, help="folder for the traces, made if missing")
    parser.add_argument("--batch", type=int, default=16, help="sequences a step")
    parser.add_argument("--sequence-length", type=int, default=512, help="tokens")
    parser.add_argument("--steps", type=int, default=4, help="steps in the trace")
    parser.add_argument("--compiled", action="store_true", help="train: with torch.compile")
    parser.add_argument("--fp8", action="store_true", help="train: projections in fp8")
    parser.add_argument("--memory", action="store_true", help="train: record memory, too")
    parser.add_argument("--stacks", action="store_true", help="record Python's stacks and the modules")
    parser.add_argument("--graph", action="store_true", help="decode: replay a CUDA graph")
    parser.add_argument("--gigabytes", type=float, default=4.0, help="out_of_memory: what the job may have")
    options = parser.parse_args()
    {"train": train, "decode": decode, "out_of_memory": out_of_memory}[options.what](options)


if __name__ == "__main__":
    main()
