# SPDX-License-Identifier: Apache-2.0
"""Train a small mixture of experts on random tokens, experts and batch sharded over the ranks.

    torchrun --standalone --nproc-per-node 4 tiny_moe.py --hot 0.5 --output traces

Every rank holds the whole of a Llama-like model but for the experts of its feed-forward layers, of which it
has one.  A router sends each token to one expert: dispatch and combine are an all_to_all each, with as many
rows for each rank as tokens go there, and so are their gradients; the gradients of what all ranks hold are
averaged by one all_reduce.  The experts' group has the same ranks as that of the batch.

The imbalance is planted: a share `--hot` of each rank's tokens goes to rank 0's expert whatever the router
says, the others are spread evenly over all experts; the router's score only weights the expert's result.
With 0.5 and 4 ranks rank 0 computes 0.5 + 0.5 / 4 = 62.5 % of all tokens, 2.5 times the mean, and each other
rank 12.5 %.

One step waits and two warm up; the `--steps` that follow are in OUTPUT/rank{R}_trace.json.gz, as
cclbench.torch.profile captures them, cut as in tiny_llama.py.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
import torch.distributed as dist
from tiny_llama import VOCABULARY, WARMUP, Attention, FeedForward, RandomTokens, Rotation, cut, rotation
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.nn.functional import all_to_all_single
from torch.nn import functional
from torch.profiler import record_function

import cclbench.torch


class Experts(nn.Module):
    """One expert a rank, and the router to all of them."""

    def __init__(self, hidden: int, group: dist.ProcessGroup, hot: float) -> None:
        super().__init__()
        self.group, self.hot = group, hot
        self.router = nn.Linear(hidden, group.size(), bias=False)
        self.expert = FeedForward(hidden, 2 * hidden)

    def destination(self, tokens: int) -> torch.Tensor:
        """The expert of each token: the planted share goes to the first, the rest to all in turn."""
        place = torch.arange(tokens)
        return torch.where(place < round(self.hot * tokens), 0, place % self.group.size())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        tokens = x.flatten(0, 1)
        expert = self.destination(len(tokens))
        score = self.router(tokens).softmax(-1).gather(1, expert[:, None])
        order = expert.argsort(stable=True)
        sent = expert.bincount(minlength=self.group.size())
        received = torch.empty_like(sent)
        dist.all_to_all_single(received, sent, group=self.group)
        there, here = received.tolist(), sent.tolist()
        with record_function("dispatch"):
            own = all_to_all_single(
                x.new_empty(sum(there), x.shape[-1]), tokens[order], there, here, group=self.group
            )
        with record_function("moe experts"):
            own = self.expert(own)
        with record_function("combine"):
            back = all_to_all_single(torch.empty_like(tokens), own, here, there, group=self.group)
        return (score * back[order.argsort()]).view_as(x)


class Layer(nn.Module):
    """Attention and experts, each normalised first, each with its residual."""

    def __init__(self, options: argparse.Namespace, group: dist.ProcessGroup) -> None:
        super().__init__()
        hidden = options.heads * options.head_dim
        self.attention_norm, self.experts_norm = nn.RMSNorm(hidden), nn.RMSNorm(hidden)
        self.attention = Attention(hidden, options.head_dim)
        self.experts = Experts(hidden, group, options.hot)

    def forward(self, x: torch.Tensor, by: Rotation) -> torch.Tensor:
        x = x + self.attention(self.attention_norm(x), by)
        return x + self.experts(self.experts_norm(x))


class TinyMoe(nn.Module):
    """From token ids [batch, sequence] to logits [batch, sequence, vocabulary]; embeddings untied."""

    def __init__(self, options: argparse.Namespace, group: dist.ProcessGroup) -> None:
        super().__init__()
        hidden = options.heads * options.head_dim
        self.embedding = nn.Embedding(VOCABULARY, hidden)
        self.layers = nn.ModuleList(Layer(options, group) for _ in range(options.layers))
        self.norm, self.output = nn.RMSNorm(hidden), nn.Linear(hidden, VOCABULARY, bias=False)
        self.rotation = rotation(options.sequence_length, options.head_dim, torch.device("cpu"))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x, self.rotation)
        return self.output(self.norm(x))


def average_shared_gradients(model: TinyMoe) -> None:
    """Average the gradients of what all ranks hold, by one all_reduce."""
    shared = [p for name, p in model.named_parameters() if ".expert." not in name and p.grad is not None]
    flat = torch.cat([p.grad.flatten() for p in shared])
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    for parameter, part in zip(shared, flat.split([p.numel() for p in shared]), strict=True):
        parameter.grad.copy_(part.view_as(parameter))


def train(options: argparse.Namespace) -> None:
    """Train for wait + warm-up + active steps, write this rank's trace, print the loss of each step."""
    rank, world = dist.get_rank(), dist.get_world_size()
    mesh = init_device_mesh("cpu", (world,), mesh_dim_names=("dp",))
    torch.manual_seed(0)
    model = TinyMoe(options, dist.new_group(group_desc="ep"))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)

    steps, batch = options.wait + WARMUP + options.steps, options.global_batch // world
    dataset = RandomTokens(options.global_batch * steps, options.sequence_length)
    losses = []
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
            first = (step * world + rank) * batch
            tokens = torch.stack([dataset[first + place] for place in range(batch)])
            with record_function("forward"):
                logits = model(tokens[:, :-1])
                loss = functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
            with record_function("backward"):
                loss.backward()
                average_shared_gradients(model)
            with record_function("optimizer"):
                optimizer.step()
                optimizer.zero_grad()
            losses.append(loss.detach())
            profiler.step()
    cut(options.output / f"rank{rank}_trace.json.gz")

    total = torch.stack(losses)
    dist.all_reduce(total)
    if rank == 0:
        own = sum(p.numel() for name, p in model.named_parameters() if ".expert." in name)
        every = sum(p.numel() for p in model.parameters())
        print(f"{every + (world - 1) * own} parameters, {every} active; loss by step:", end=" ")
        print(*(f"{loss:.5f}" for loss in (total / world).tolist()))


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hot", type=float, default=0.5, help="share of tokens for rank 0's expert")
    parser.add_argument("--global-batch", type=int, default=16, help="sequences a step")
    parser.add_argument("--sequence-length", type=int, default=128, help="tokens")
    parser.add_argument("--layers", type=int, default=1)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--head-dim", type=int, default=32)
    parser.add_argument("--wait", type=int, default=1, help="steps without the profiler")
    parser.add_argument("--steps", type=int, default=12, help="steps in the trace")
    parser.add_argument("--output", type=Path, required=True, help="folder for the traces, made if missing")
    return parser.parse_args()


def main() -> None:
    options = arguments()
    dist.init_process_group("gloo")
    train(options)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
