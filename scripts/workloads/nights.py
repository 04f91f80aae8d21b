# SPDX-License-Identifier: Apache-2.0
"""Train the same small Llama on one GPU again and again, as a nightly job would, with one change of its code.

    python nights.py --output nights [--nights 12] [--changed 9]

Each night is a process of its own and writes OUTPUT/night-NN.log, with lines as Megatron-LM prints them.
From night `--changed` on, normalisation is a formula of separate operators in place of the library's:
slower, with the same losses.  The last night before the change and the first after it also write a trace,
OUTPUT/night-NN/.
"""

from __future__ import annotations

import argparse
import time
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from one_gpu import build
from tiny_llama import VOCABULARY, cut, train_step
from torch import nn

import cclbench.torch

STEPS, WAIT, WARMUP, TRACED = 60, 10, 2, 3
BATCH, SEQUENCE = 32, 512


class FormulaNorm(nn.Module):
    """RMS normalisation of separate operators."""

    def __init__(self, weight: nn.Parameter) -> None:
        super().__init__()
        self.weight = weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = x.float()
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
        return (wide * self.weight).to(x.dtype)


def profiler(traces: Path | None, model: nn.Module) -> AbstractContextManager[Any]:
    """The profiler of a night with a trace, else nothing."""
    if traces is None:
        return nullcontext()
    return cclbench.torch.profile(
        traces,
        wait=WAIT,
        warmup=WARMUP,
        active=TRACED,
        model=model,
        global_batch=BATCH,
        sequence_length=SEQUENCE,
    )


def night(log: Path, traces: Path | None, *, changed: bool) -> None:
    """Train and write the log; the clock of each step stops after the device."""
    llama = build()
    if changed:
        for parent in [*llama.modules()]:
            for name, child in parent.named_children():
                if isinstance(child, nn.RMSNorm):
                    setattr(parent, name, FormulaNorm(child.weight))
    optimizer = torch.optim.AdamW(llama.parameters(), lr=1e-3, fused=True)
    steps = WAIT + WARMUP + TRACED if traces else STEPS
    with profiler(traces, llama) as profile, log.open("a" if traces else "w") as lines:
        began = time.perf_counter()
        for step in range(steps):
            torch.manual_seed(step)
            tokens = (
                torch.randint(VOCABULARY, (BATCH, SEQUENCE + 1)).pin_memory().to("cuda", non_blocking=True)
            )
            loss = train_step(llama, optimizer, tokens, nullcontext())
            if profile is not None:
                profile.step()
                continue
            torch.cuda.synchronize()
            ended = time.perf_counter()
            lines.write(
                f" [{datetime.now(UTC):%Y-%m-%d %H:%M:%S}] iteration {step + 1:8}/{STEPS:8} |"
                f" consumed samples: {(step + 1) * BATCH:12} |"
                f" elapsed time per iteration (ms): {(ended - began) * 1e3:.1f} |"
                f" global batch size: {BATCH:5} | lm loss: {loss.item():.6E} |\n"
            )
            began = time.perf_counter()
    if traces:
        cut(traces / "rank0_trace.json.gz")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--output", type=Path, required=True, help="folder for logs and traces, made if missing"
    )
    parser.add_argument("--nights", type=int, default=12)
    parser.add_argument("--changed", type=int, default=9, help="the first night with the changed code")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    for number in range(1, options.nights + 1):
        name = options.output / f"night-{number:02}"
        is_traced = number in (options.changed - 1, options.changed)
        for traces in (None, name) if is_traced else (None,):
            arguments = (name.with_suffix(".log"), traces)
            process = get_context("fork").Process(
                target=night, args=arguments, kwargs={"changed": number >= options.changed}
            )
            process.start()
            process.join()


if __name__ == "__main__":
    main()
