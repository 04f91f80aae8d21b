# SPDX-License-Identifier: Apache-2.0
"""Train a small transformer on the CPU and record its memory, and PyTorch's own split of it by category.

    python cpu_memory.py --output traces [--batch 9] [--recompute]

The recording begins before the model is made, so that it holds all memory. `--recompute` checkpoints
the blocks.
"""

from __future__ import annotations

import argparse
import gzip
import json
import warnings
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional
from torch.profiler import ProfilerActivity, profile, record_function
from torch.utils.checkpoint import checkpoint

VOCABULARY, WIDTH, HEADS, LENGTH = 256, 32, 2, 24
_ARGUMENTS = "Input Strides", "Input type", "Input Dims", "Concrete Inputs", "Record function id", "Ev Idx"


class Attention(nn.Module):
    """Self-attention whose scores are tensors of their own."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (y.unflatten(-1, (HEADS, -1)).transpose(1, 2) for y in self.qkv(x).chunk(3, -1))
        scores = (q @ k.transpose(-1, -2)).softmax(-1)
        return self.out((scores @ v).transpose(1, 2).flatten(2))


class Block(nn.Module):
    """Attention and two projections."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.attention = nn.LayerNorm(WIDTH), Attention()
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm(x))
        return x + self.down(functional.gelu(self.up(x)))


class Transformer(nn.Module):
    """Logits of the next token."""

    def __init__(self, layers: int, recompute: bool) -> None:
        super().__init__()
        self.recompute = recompute
        self.embedding, self.head = nn.Embedding(VOCABULARY, WIDTH), nn.Linear(WIDTH, VOCABULARY)
        self.blocks = nn.ModuleList(Block() for _ in range(layers))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.recompute else block(x)
        return self.head(x)


def train(options: argparse.Namespace) -> None:
    """Make a model and train it, all of it recorded."""
    model = Transformer(options.layers, options.recompute)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(options.steps):
        with record_function(f"ProfilerStep#{step}"):
            tokens = torch.randint(VOCABULARY, (options.batch, LENGTH + 1))
            logits = model(tokens[:, :-1])
            functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()).backward()
            optimizer.step()
            optimizer.zero_grad()


def shorten(path: Path) -> None:
    """Leave out Python's calls within PyTorch, except those of modules, arguments of operators, and names."""
    trace = json.loads(gzip.decompress(path.read_bytes())) | {"traceName": path.name}
    trace.pop("host_name", None)
    kept = []
    for event in trace["traceEvents"]:
        own = event.get("name", "").startswith(("nn.Module", Path(__file__).name, "torch/optim"))
        if event.get("cat") != "python_function" or own:
            for name in _ARGUMENTS:
                event.get("args", {}).pop(name, None)
            kept.append(event)
    trace["traceEvents"] = kept
    path.write_bytes(gzip.compress(json.dumps(trace, separators=(",", ":")).encode(), 9, mtime=0))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, required=True, help="folder for the files, made if missing")
    parser.add_argument("--batch", type=int, default=8, help="sequences a step")
    parser.add_argument("--layers", type=int, default=2, help="blocks of the model")
    parser.add_argument("--steps", type=int, default=2, help="steps")
    parser.add_argument("--recompute", action="store_true", help="checkpoint the blocks")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    with profile(
        activities=[ProfilerActivity.CPU], record_shapes=True, with_stack=True, profile_memory=True
    ) as profiler:
        train(options)
    path = options.output / "rank0_trace.json.gz"
    profiler.export_chrome_trace(str(path))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        profiler.export_memory_timeline(str(options.output / "memory_timeline.json.gz"), device="cpu")
    shorten(path)


if __name__ == "__main__":
    main()
