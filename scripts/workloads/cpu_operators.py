# SPDX-License-Identifier: Apache-2.0
"""Trace operators of PyTorch on the CPU one by one, about a millisecond a call.

    python scripts/workloads/cpu_operators.py FOLDER [NAME...] [--calls N] [--pairs N]

Needs PyTorch alone.  Writes FOLDER/NAME.json.gz for each of the operators, by default all.  With --pairs,
each is traced and reproduced in turn by FOLDER/NAME.py, which `cclbench reproduce` wrote: NAME-K.json.gz is
the K-th trace, NAME-K.json the result beside it.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from importlib.util import module_from_spec, spec_from_file_location
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
    "mm": lambda: _on(torch.mm, _random(320, 320), _random(320, 320)),
    "addmm": lambda: _on(functional.linear, _random(320, 320), _random(320, 320), _random(320)),
    "bmm": lambda: _on(torch.bmm, _random(8, 128, 128), _random(8, 128, 128)),
    "conv2d": lambda: _on(functional.conv2d, _random(2, 32, 56, 56), _random(32, 32, 3, 3), padding=1),
    "layer_norm": lambda: _on(functional.layer_norm, _random(1024, 512), (512,), _random(512), _random(512)),
    "softmax": lambda: _on(torch.softmax, _random(1024, 512), -1),
    "log_softmax": lambda: _on(torch.log_softmax, _random(1024, 512), -1),
    "gelu": lambda: _on(functional.gelu, _random(512, 1024)),
    "mul": lambda: _on(torch.mul, _random(1024, 512), _random(1024, 512)),
    "add": lambda: _on(torch.add, _random(1024, 512), _random(512)),
    "sqrt": lambda: _on(torch.sqrt, torch.rand(1024, 512) + 1),
    "sum": lambda: _on(torch.sum, _random(1024, 1024), 0),
    "embedding": lambda: _on(functional.embedding, _indices(4000, 2, 1024), _random(4000, 512)),
    "index_select": lambda: _on(torch.index_select, _random(4000, 512), 0, _indices(4000, 2048)),
    "gather": lambda: _on(torch.gather, _random(512, 1024), 1, _indices(1024, 512, 2048)),
    "scaled_dot_product_attention": lambda: _on(
        functional.scaled_dot_product_attention, *(_random(2, 4, 256, 64) for _ in range(3)), is_causal=True
    ),
    "cat": lambda: _on(torch.cat, [_random(512, 1024), _random(512, 1024)], 1),
    "copy_": lambda: _on(_random(1024, 512).copy_, _random(512, 1024).t()),
    "to": lambda: _on(_random(1024, 512).to, torch.bfloat16),
    "where": lambda: _on(torch.where, _random(1024, 512) > 0, _random(1024, 512), _random(1024, 512)),
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


def reproduce_in_turn(name: str, folder: Path, calls: int, pairs: int) -> None:
    """Write traces of an operator and results of its micro-benchmark, one after the other."""
    spec = spec_from_file_location(name, folder / f"{name}.py")
    program: Any = module_from_spec(spec)
    spec.loader.exec_module(program)
    for pair in range(pairs):
        trace_operator(name, folder / f"{name}-{pair}.json.gz", calls)
        result = program.measured_result("cpu", max(3, calls // 5), calls)
        (folder / f"{name}-{pair}.json").write_text(json.dumps(result))


def main() -> None:
    """Trace the operators."""
    parser = argparse.ArgumentParser(description="Trace operators of PyTorch on the CPU one by one.")
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(OPERATORS))
    parser.add_argument("--calls", type=int, default=50)
    parser.add_argument("--pairs", type=int, default=0)
    options = parser.parse_args()
    for name in options.names or OPERATORS:
        if options.pairs:
            reproduce_in_turn(name, options.folder, options.calls, options.pairs)
        else:
            trace_operator(name, options.folder / f"{name}.json.gz", options.calls)


if __name__ == "__main__":
    main()
