# SPDX-License-Identifier: Apache-2.0
"""Trace operators of PyTorch on the CPU one by one, some milliseconds a call.

    python scripts/workloads/cpu_operators.py FOLDER [NAME...] [--calls N]

Needs PyTorch alone.  Writes FOLDER/NAME.json.gz for each of the operators, by default all.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional
from torch.profiler import ProfilerActivity, profile


def _random(*shape: int) -> torch.Tensor:
    return torch.randn(*shape)


def _indices(end: int, *shape: int) -> torch.Tensor:
    return torch.randint(0, end, shape)


def _on(function: Callable[..., Any], *operands: Any, **options: Any) -> Callable[[], Any]:
    """The call of a function with operands that are made once."""
    return lambda: function(*operands, **options)


OPERATORS: dict[str, Callable[[], Callable[[], Any]]] = {
    "mm": lambda: _on(torch.mm, _random(768, 768), _random(768, 768)),
    "addmm": lambda: _on(functional.linear, _random(768, 768), _random(768, 768), _random(768)),
    "bmm": lambda: _on(torch.bmm, _random(16, 256, 256), _random(16, 256, 256)),
    "conv2d": lambda: _on(functional.conv2d, _random(8, 32, 56, 56), _random(64, 32, 3, 3), padding=1),
    "layer_norm": lambda: _on(
        functional.layer_norm, _random(8192, 1024), (1024,), _random(1024), _random(1024)
    ),
    "softmax": lambda: _on(torch.softmax, _random(8192, 1024), -1),
    "log_softmax": lambda: _on(torch.log_softmax, _random(8192, 1024), -1),
    "gelu": lambda: _on(functional.gelu, _random(2048, 2048)),
    "mul": lambda: _on(torch.mul, _random(2048, 4096), _random(2048, 4096)),
    "add": lambda: _on(torch.add, _random(2048, 4096), _random(4096)),
    "sqrt": lambda: _on(torch.sqrt, torch.rand(2048, 4096) + 1),
    "sum": lambda: _on(torch.sum, _random(4096, 4096), 0),
    "embedding": lambda: _on(functional.embedding, _indices(20000, 16, 1024), _random(20000, 512)),
    "index_select": lambda: _on(torch.index_select, _random(20000, 512), 0, _indices(20000, 16384)),
    "gather": lambda: _on(torch.gather, _random(4096, 2048), 1, _indices(2048, 4096, 2048)),
    "scaled_dot_product_attention": lambda: _on(
        functional.scaled_dot_product_attention, *(_random(4, 8, 512, 64) for _ in range(3)), is_causal=True
    ),
    "cat": lambda: _on(torch.cat, [_random(2048, 2048), _random(2048, 2048)], 1),
    "copy_": lambda: _on(_random(2048, 4096).copy_, _random(4096, 2048).t()),
    "to": lambda: _on(_random(2048, 4096).to, torch.bfloat16),
    "where": lambda: _on(torch.where, _random(2048, 4096) > 0, _random(2048, 4096), _random(2048, 4096)),
}
"""A function that makes the operands of each, and returns the call."""


def trace_operator(name: str, output: Path, calls: int) -> None:
    """Write the trace of some calls of an operator, after a fifth as many for warm-up."""
    torch.manual_seed(0)
    with torch.no_grad():
        call = OPERATORS[name]()
        for _ in range(max(3, calls // 5)):
            call()
        with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler:
            for _ in range(calls):
                call()
    profiler.export_chrome_trace(str(output))


def main() -> None:
    """Trace the operators."""
    parser = argparse.ArgumentParser(description="Trace operators of PyTorch on the CPU one by one.")
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(OPERATORS))
    parser.add_argument("--calls", type=int, default=50)
    options = parser.parse_args()
    for name in options.names or OPERATORS:
        trace_operator(name, options.folder / f"{name}.json.gz", options.calls)


if __name__ == "__main__":
    main()
