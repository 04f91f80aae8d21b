# SPDX-License-Identifier: Apache-2.0
"""Train a small Llama-like model on random tokens as a pipeline, under the PyTorch profiler.

    torchrun --standalone --nproc-per-node 4 tiny_pipeline.py --microbatches 6 --output traces

Each rank holds one stage: `--layers` layers, the first also the embedding, the last also the norm and the
head, so that the last has most to do.  torch.distributed.pipelining runs the micro-batches by its 1F1B
schedule: as many forwards as stages follow, then one forward and one backward in turn, then the remaining
backwards; activations and their gradients are sent and received on a group of all ranks, the mesh's `pp`.  A
step is the schedule and the optimizer.  One step waits and two warm up; the `--steps` that follow are in
OUTPUT/rank{R}_trace.json.gz, as cclbench.torch.profile captures them, cut as in tiny_llama.py.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
import torch.distributed as dist
from tiny_llama import VOCABULARY, WARMUP, Layer, RandomTokens, cut, rotation
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.nn import functional
from torch.profiler import record_function

import cclbench.torch


class Stage(nn.Module):
    """Layers of one stage: from tokens or activations to activations, or logits on the last stage."""

    def __init__(self, options: argparse.Namespace, place: int, stages: int) -> None:
        super().__init__()
        hidden, last = options.heads * options.head_dim, place == stages - 1
        self.embedding = nn.Embedding(VOCABULARY, hidden) if place == 0 else nn.Identity()
        self.layers = nn.ModuleList(Layer(hidden, options.head_dim) for _ in range(options.layers))
        self.head = nn.Identity()
        if last:
            self.head = nn.Sequential(nn.RMSNorm(hidden), nn.Linear(hidden, VOCABULARY, bias=False))
        self.rotation = rotation(options.sequence_length, options.head_dim, torch.device("cpu"))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.embedding(x)
        for layer in self.layers:
            x = layer(x, self.rotation)
        return self.head(x)


def loss_of(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Cross entropy of a micro-batch."""
    return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def train(options: argparse.Namespace) -> None:
    """Train for wait + warm-up + active steps, write this rank's trace; the last rank prints the losses."""
    rank, stages = dist.get_rank(), dist.get_world_size()
    mesh = init_device_mesh("cpu", (stages,), mesh_dim_names=("pp",))
    torch.manual_seed(rank)
    module = Stage(options, rank, stages)
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-3, fused=True)
    stage = PipelineStage(module, rank, stages, torch.device("cpu"), group=mesh.get_group("pp"))
    schedule = Schedule1F1B(stage, options.microbatches, loss_of)

    steps = options.wait + WARMUP + options.steps
    dataset = RandomTokens(options.global_batch * steps, options.sequence_length)
    means = []
    with cclbench.torch.profile(
        options.output,
        wait=options.wait,
        warmup=WARMUP,
        active=options.steps,
        mesh=mesh,
        global_batch=options.global_batch,
        sequence_length=options.sequence_length,
    ) as profiler:
        for step in range(steps):
            first = step * options.global_batch
            tokens = torch.stack([dataset[first + place] for place in range(options.global_batch)])
            losses: list[torch.Tensor] = []
            if rank == 0:
                schedule.step(tokens[:, :-1])
            elif rank == stages - 1:
                schedule.step(target=tokens[:, 1:], losses=losses)
            else:
                schedule.step()
            with record_function("optimizer"):
                optimizer.step()
                optimizer.zero_grad()
            means += [torch.stack(losses).mean().item()] if losses else []
            profiler.step()
    cut(options.output / f"rank{rank}_trace.json.gz")

    total = torch.tensor(sum(p.numel() for p in module.parameters()))
    dist.all_reduce(total)
    if rank == stages - 1:
        print(f"{total.item()} parameters; loss by step:", *(f"{mean:.5f}" for mean in means))


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--microbatches", type=int, default=6)
    parser.add_argument("--global-batch", type=int, default=12, help="sequences a step")
    parser.add_argument("--sequence-length", type=int, default=128, help="tokens")
    parser.add_argument("--layers", type=int, default=1, help="of one stage")
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--head-dim", type=int, default=64)
    parser.add_argument("--wait", type=int, default=1, help="steps without the profiler")
    parser.add_argument("--steps", type=int, default=3, help="steps in the trace")
    parser.add_argument("--output", type=Path, required=True, help="folder for the traces, made if missing")
    return parser.parse_args()


def main() -> None:
    options = arguments()
    dist.init_process_group("gloo")
    train(options)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
