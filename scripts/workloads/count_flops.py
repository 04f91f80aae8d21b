# SPDX-License-Identifier: Apache-2.0
"""Operators and FLOPs of small models, for tests of the cost models: needs torch, a CPU is enough.

    python scripts/workloads/count_flops.py tests/operators/counted_flops.json

Each model runs forward and backward twice: under torch.profiler, whose exported trace has the operators and
their arguments, and under FlopCounterMode, PyTorch's own count.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode

Step = Callable[[], Tensor]


def mlp() -> Step:
    """Linear layers with and without bias."""
    net = nn.Sequential(
        nn.Linear(24, 48), nn.GELU(), nn.Linear(48, 48, bias=False), nn.ReLU(), nn.Linear(48, 10)
    )
    x = torch.randn(16, 24)
    return lambda: net(x).sum()


def conv_net() -> Step:
    """Strides, padding, dilation."""
    net = nn.Sequential(
        nn.Conv2d(3, 16, 7, stride=2, padding=3), nn.ReLU(), nn.Conv2d(16, 24, 3, dilation=2), nn.Flatten()
    )
    x = torch.randn(4, 3, 32, 32, requires_grad=True)
    return lambda: net(x).sum()


def grouped_convolution() -> Step:
    """Groups between one and the number of channels."""
    net = nn.Conv2d(16, 32, (3, 5), padding=(1, 2), groups=4)
    x = torch.randn(2, 16, 12, 12, requires_grad=True)
    return lambda: net(x).sum()


def depthwise_convolution() -> Step:
    """As many groups as channels, then a product of each point."""
    net = nn.Sequential(nn.Conv2d(16, 16, 3, padding=1, groups=16), nn.Conv2d(16, 32, 1, bias=False))
    x = torch.randn(2, 16, 14, 14, requires_grad=True)
    return lambda: net(x).sum()


def transposed_convolution() -> Step:
    """The transpose of a strided convolution, with an output padding."""
    net = nn.ConvTranspose2d(12, 8, 3, stride=2, padding=1, output_padding=1)
    x = torch.randn(2, 12, 9, 9, requires_grad=True)
    return lambda: net(x).sum()


def convolutions_of_sequences_and_volumes() -> Step:
    """One and three dimensions."""
    line, volume = nn.Conv1d(8, 16, 5, stride=2), nn.Conv3d(4, 6, 3, padding=1)
    x, y = torch.randn(2, 8, 50, requires_grad=True), torch.randn(2, 4, 6, 6, 6, requires_grad=True)
    return lambda: line(x).sum() + volume(y).sum()


class ResidualBlock(nn.Module):
    """Two convolutions, batch norms and a projected shortcut."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = (
            nn.Conv2d(8, 16, 3, 2, 1, bias=False),
            nn.Conv2d(16, 16, 3, 1, 1, bias=False),
        )
        self.shortcut = nn.Conv2d(8, 16, 1, 2, bias=False)
        self.norms = nn.ModuleList(nn.BatchNorm2d(16) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        made = torch.relu(self.norms[0](self.first(x)))
        return torch.relu(self.norms[1](self.second(made)) + self.norms[2](self.shortcut(x)))


def residual_block() -> Step:
    """A block of a ResNet."""
    net, x = ResidualBlock(), torch.randn(4, 8, 16, 16, requires_grad=True)
    return lambda: net(x).sum()


def recurrent_network() -> Step:
    """A cell of gates, step by step."""
    cell, x = nn.LSTMCell(12, 20), torch.randn(6, 3, 12)

    def step() -> Tensor:
        state = (torch.zeros(3, 20), torch.zeros(3, 20))
        for one in x:
            state = cell(one, state)
        return state[0].sum()

    return step


def transformer_layer() -> Step:
    """Self-attention and two linear layers, as PyTorch has them."""
    net = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
    x = torch.randn(2, 10, 32, requires_grad=True)
    return lambda: net(x).sum()


def attention(causal: bool, heads: int, keys: int) -> Step:
    """Scaled dot-product attention to so many heads of keys."""
    q = torch.randn(2, heads, 24, 16, requires_grad=True)
    k, v = (torch.randn(2, keys, 24, 16, requires_grad=True) for _ in range(2))
    grouped = heads != keys
    return lambda: functional.scaled_dot_product_attention(
        q, k, v, is_causal=causal, enable_gqa=grouped
    ).sum()


def cross_attention() -> Step:
    """More keys than queries."""
    q = torch.randn(2, 4, 7, 16, requires_grad=True)
    k, v = (torch.randn(2, 4, 19, 16, requires_grad=True) for _ in range(2))
    return lambda: functional.scaled_dot_product_attention(q, k, v).sum()


def mixture_of_experts() -> Step:
    """A loop over experts, each with the tokens that chose it."""
    gate, experts = nn.Linear(16, 4), nn.ModuleList(nn.Linear(16, 16) for _ in range(4))
    x = torch.randn(20, 16)

    def step() -> Tensor:
        weights, chosen = gate(x).softmax(-1).topk(2)
        total = torch.zeros_like(x)
        for number, expert in enumerate(experts):
            token, slot = torch.where(chosen == number)
            total = total.index_add(0, token, expert(x[token]) * weights[token, slot, None])
        return total.sum()

    return step


def language_model() -> Step:
    """Embedding, layer norm, head and cross entropy."""
    table, norm, head = nn.Embedding(50, 16), nn.LayerNorm(16), nn.Linear(16, 50, bias=False)
    tokens = torch.randint(50, (3, 8))

    def step() -> Tensor:
        return functional.cross_entropy(head(norm(table(tokens))).flatten(0, 1), tokens.flatten())

    return step


def patch_embedding() -> Step:
    """The first layer of a vision transformer."""
    net, x = nn.Conv2d(3, 32, 8, stride=8), torch.randn(2, 3, 32, 32)
    return lambda: net(x).flatten(2).transpose(1, 2).sum()


def batched_products() -> Step:
    """bmm, baddbmm, einsum, matmul that broadcasts, a matrix and a vector."""
    a, b = torch.randn(5, 6, 7, requires_grad=True), torch.randn(5, 7, 8, requires_grad=True)
    c = torch.randn(5, 6, 8, requires_grad=True)

    def step() -> Tensor:
        products = torch.bmm(a, b) + torch.baddbmm(c, a, b) + torch.einsum("bij,bjk->bik", a, b)
        return products.sum() + (a @ b[0]).sum() + torch.einsum("bij,bik->jk", a, c).sum()

    return step


def half_precision() -> Step:
    """Linear layers in bfloat16."""
    net, x = nn.Linear(32, 16).bfloat16(), torch.randn(2, 9, 32, dtype=torch.bfloat16, requires_grad=True)
    return lambda: net(x).sum()


MODELS: dict[str, Callable[[], Step]] = {
    "mlp": mlp,
    "conv_net": conv_net,
    "grouped_convolution": grouped_convolution,
    "depthwise_convolution": depthwise_convolution,
    "transposed_convolution": transposed_convolution,
    "convolutions_of_sequences_and_volumes": convolutions_of_sequences_and_volumes,
    "residual_block": residual_block,
    "recurrent_network": recurrent_network,
    "transformer_layer": transformer_layer,
    "attention": lambda: attention(causal=False, heads=4, keys=4),
    "causal_attention": lambda: attention(causal=True, heads=4, keys=4),
    "grouped_query_attention": lambda: attention(causal=False, heads=8, keys=2),
    "cross_attention": cross_attention,
    "mixture_of_experts": mixture_of_experts,
    "language_model": language_model,
    "patch_embedding": patch_embedding,
    "batched_products": batched_products,
    "half_precision": half_precision,
}


def exported(step: Step) -> list[dict[str, Any]]:
    """The events of the trace of one step, forward and backward."""
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as recorded:
        step().backward()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "trace.json")
        recorded.export_chrome_trace(str(path))
        events: list[dict[str, Any]] = json.loads(path.read_text())["traceEvents"]
    return [event for event in events if event.get("cat") == "cpu_op" and "dur" in event]


def calls(events: list[dict[str, Any]]) -> Counter[str]:
    """Distinct calls as JSON [operator, shapes, types, strides, values, operators in it], and how many."""
    inside: dict[int, set[str]] = {id(event): set() for event in events}
    by_thread: dict[Any, list[dict[str, Any]]] = {}
    for event in sorted(events, key=lambda one: (one["ts"], -one["dur"])):
        stack = by_thread.setdefault(event["tid"], [])
        while stack and stack[-1]["ts"] + stack[-1]["dur"] < event["ts"] + event["dur"]:
            stack.pop()
        for outer in stack:
            inside[id(outer)].add(event["name"])
        stack.append(event)
    found: Counter[str] = Counter()
    for event in events:
        name = event["name"].removeprefix("aten::")
        if "Input Dims" in event["args"] and name != event["name"] and name not in MOVE_NOTHING:
            recorded = [event["args"].get(key) for key in KEYS]
            found[
                json.dumps(
                    [
                        event["name"],
                        *recorded,
                        sorted(inside[id(event)] - {f"aten::{name}" for name in MOVE_NOTHING}),
                    ]
                )
            ] += 1
    return found


MOVE_NOTHING = (
    "empty",
    "empty_like",
    "empty_strided",
    "as_strided",
    "view",
    "t",
    "transpose",
    "detach",
    "resize_",
)
KEYS = ("Input Dims", "Input type", "Input Strides", "Concrete Inputs")


def counted(make: Callable[[], Step]) -> dict[str, Any]:
    """One model's calls, and FlopCounterMode's FLOPs by operator."""
    torch.manual_seed(0)
    rows = calls(exported(make()))
    torch.manual_seed(0)
    step = make()
    with FlopCounterMode(display=False) as counter:
        step().backward()
    by_operator = {str(name): flops for name, flops in counter.get_flop_counts()["Global"].items()}
    return {
        "calls": [[*json.loads(row), count] for row, count in rows.items()],
        "flops": by_operator,
        "total": counter.get_total_flops(),
    }


if __name__ == "__main__":
    torch.set_num_threads(1)
    found = {"torch": torch.__version__, "models": {name: counted(make) for name, make in MODELS.items()}}
    Path(sys.argv[1]).write_text(json.dumps(found, separators=(",", ":")) + "\n")
