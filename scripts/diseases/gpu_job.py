# SPDX-License-Identifier: Apache-2.0
"""Train a small Llama on one GPU with one thing wrong, or the same job without it, and capture it.

    python gpu_job.py --out FOLDER [--captures 3] [--disease NAME ...] [--seconds 300]

Captures every disease sick and healed, in turn, into FOLDER/DISEASE/FORM-NUMBER, as bank.py does on CPU
ranks; `bank.py --gpu --out FOLDER` scores them.  Each capture is a process of its own.  With `--seconds` no
capture begins after so long.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import torch
import torch.multiprocessing
from torch import nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.profiler import record_function
from torch.utils.data import DataLoader

import cclbench.torch

sys.path.append(str(Path(__file__).resolve().parents[1] / "workloads"))
from job import Disease, Samples
from tiny_llama import VOCABULARY, TinyLlama

UNPROFILED: Final = 8
STEPS: Final = 8
"""Steps in the trace."""


@dataclass(frozen=True, kw_only=True)
class Switches:
    """What a job does; `_s` are seconds a step, `_mb` sizes of a tensor that is copied in each."""

    batch: int = 16
    sequence: int = 512
    micro_batches: int = 1
    item: bool = False
    load_s: float = 0.0
    workers: int = 0
    python_s: float = 0.0
    collect: bool = False
    copied_mb: int = 0
    pinned: bool = False
    logits_to_host: bool = False
    empty_cache: bool = False
    dtype: torch.dtype = torch.bfloat16
    tf32: bool = True
    vocabulary: int = VOCABULARY
    flash: bool = True
    handwritten_norm: bool = False
    optimizer: str = "fused"
    graph: bool = False
    cold: bool = False


_BUSY: Final = Switches(batch=64)
"""The device takes much longer than the host."""
_NEAR: Final = Switches()
"""The device takes somewhat longer than the host."""
_SMALL: Final = Switches(batch=1, sequence=128)
"""The host takes longer."""
_SINGLE: Final = replace(_BUSY, dtype=torch.float32)
DISEASES: Final = {
    "item_each_micro_batch": Disease(
        ("synchronization",),
        None,
        replace(_NEAR, batch=32, micro_batches=4, item=True),
        replace(_NEAR, batch=32, micro_batches=4),
    ),
    "pageable_copies": Disease(
        ("exposed_copies", "synchronization"),
        None,
        replace(_NEAR, copied_mb=256),
        replace(_NEAR, copied_mb=256, pinned=True),
    ),
    "logits_to_host": Disease(
        ("exposed_copies", "synchronization"), None, replace(_NEAR, logits_to_host=True), _NEAR
    ),
    "slow_loader": Disease(("data_loading",), None, replace(_NEAR, load_s=0.03), _NEAR),
    "no_workers": Disease(
        ("data_loading",), None, replace(_NEAR, load_s=0.03), replace(_NEAR, load_s=0.03, workers=6)
    ),
    "python": Disease(("host_bound",), None, replace(_NEAR, python_s=0.02), _NEAR),
    "gc_pauses": Disease(("host_pauses", "host_bound"), None, replace(_NEAR, collect=True), _NEAR),
    "empty_cache": Disease(("device_allocation",), None, replace(_NEAR, empty_cache=True), _NEAR),
    "no_tf32": Disease(("tensor_cores",), None, replace(_SINGLE, tf32=False), _SINGLE),
    "no_flash": Disease(("unfused_attention",), None, replace(_BUSY, flash=False), _BUSY),
    "handwritten_norm": Disease(("unfused_norm",), None, replace(_BUSY, handwritten_norm=True), _BUSY),
    "odd_vocabulary": Disease(
        ("misaligned_products", "low_gemm_efficiency"),
        None,
        replace(_NEAR, vocabulary=32_001),
        replace(_NEAR, vocabulary=32_064),
    ),
    "loop_optimizer": Disease(
        ("unfused_optimizer", "short_kernels", "memory_bound"), None, replace(_NEAR, optimizer="loop"), _NEAR
    ),
    "small_batch": Disease(("short_kernels", "host_bound"), None, _SMALL, replace(_SMALL, graph=True)),
    "cold_start": Disease(("cold_start", "warm_up"), None, replace(_NEAR, cold=True), _NEAR),
}


class HandwrittenNorm(nn.Module):
    """RMS normalisation, an operator at a time."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = x.float()
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
        return self.weight * wide.to(x.dtype)


def build(switches: Switches) -> TinyLlama:
    """The model, on the GPU."""
    torch.manual_seed(0)
    llama = TinyLlama(layers=4, heads=16, head_dim=64)
    hidden = llama.output.in_features
    llama.embedding = nn.Embedding(switches.vocabulary, hidden)
    llama.output = nn.Linear(hidden, switches.vocabulary, bias=False)
    if switches.handwritten_norm:
        llama.norm = HandwrittenNorm(hidden)
        for layer in llama.layers:
            layer.attention_norm, layer.feed_forward_norm = HandwrittenNorm(hidden), HandwrittenNorm(hidden)
    return llama.to("cuda", switches.dtype)


def train_step(
    llama: TinyLlama, optimizer: torch.optim.Optimizer, switches: Switches
) -> Callable[[torch.Tensor], None]:
    """What takes a batch on the GPU and trains a step with it."""

    def step(tokens: torch.Tensor) -> None:
        for part in tokens.chunk(switches.micro_batches):
            with (
                record_function("forward"),
                nullcontext() if switches.flash else sdpa_kernel(SDPBackend.MATH),
            ):
                logits = llama(part[:, :-1])
                loss = functional.cross_entropy(logits.flatten(0, 1), part[:, 1:].flatten())
            with record_function("backward"):
                (loss / switches.micro_batches).backward()
            if switches.item:
                loss.item()
            if switches.logits_to_host:
                logits.detach().cpu()
        with record_function("optimizer"):
            optimizer.step()
            optimizer.zero_grad(set_to_none=not switches.graph)

    return step


def as_graph(step: Callable[[torch.Tensor], None], tokens: torch.Tensor) -> Callable[[torch.Tensor], None]:
    """A step captured once, and replayed."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step(tokens)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step(tokens)

    def replay(batch: torch.Tensor) -> None:
        tokens.copy_(batch)
        graph.replay()

    return replay


def train(switches: Switches, out: Path) -> Iterator[float]:
    """Train under the profiler; the seconds of each step but the first, and the warm-up's."""
    torch.backends.cuda.matmul.allow_tf32 = switches.tf32
    llama = build(switches)
    how = {"fused": True} if switches.optimizer == "fused" else {"foreach": False}
    optimizer = torch.optim.AdamW(llama.parameters(), lr=1e-4, capturable=switches.graph, **how)
    step = train_step(llama, optimizer, switches)
    if switches.graph:
        shape = (switches.batch, switches.sequence + 1)
        step = as_graph(step, torch.randint(switches.vocabulary, shape, device="cuda"))
    wait, warmup = (0, 0) if switches.cold else (UNPROFILED + 1, 2)
    total = wait + warmup + STEPS
    samples = Samples(total, (switches.batch, switches.sequence), switches.load_s)
    loader: DataLoader[Any] = DataLoader(samples, batch_size=None, num_workers=switches.workers)
    copied = torch.ones(switches.copied_mb << 18, pin_memory=switches.pinned)
    profile = cclbench.torch.profile(
        out / "traces", wait=wait, warmup=warmup, active=STEPS, model=llama, sequence_length=switches.sequence
    )
    with profile as profiler:
        began = time.perf_counter()
        for number, batch in enumerate(loader):
            while time.perf_counter() - began < switches.python_s:
                str(number).encode().hex()
            if switches.collect and number % 3 == 2:
                gc.collect()
            if switches.copied_mb:
                copied.to("cuda", non_blocking=switches.pinned)
            step(batch.pin_memory().to("cuda", non_blocking=True))
            if switches.empty_cache:
                torch.cuda.empty_cache()
            if number + 1 in (wait, wait + warmup, total) or number == 0:
                torch.cuda.synchronize()  # what is timed begins and ends with an idle device
            ended = time.perf_counter()
            if number >= wait + warmup or 0 < number < wait:
                yield ended - began
            profiler.step()
            began = time.perf_counter()


def work(_rank: int, switches: Switches, out: Path) -> None:
    """The process of one capture."""
    heap = [[number] for number in range(1_000_000)] if switches.collect else []
    gc.disable()
    seconds = list(train(switches, out))
    document = {"unprofiled": seconds[:-STEPS], "profiled": seconds[-STEPS:]}
    (out / "seconds.json").write_text(json.dumps(document))
    del heap


def capture(switches: Switches, out: Path) -> None:
    """Run the job in a process of its own, which shares the import of torch."""
    out.mkdir(parents=True, exist_ok=True)
    torch.multiprocessing.start_processes(work, (switches, out), 1, start_method="fork")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="folder of the captures, made if missing")
    parser.add_argument("--captures", type=int, default=3, help="captures of each form")
    parser.add_argument("--disease", choices=DISEASES, action="append", help="only this one; repeatable")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="no capture begins after them")
    asked = parser.parse_args()
    until = time.monotonic() + asked.seconds
    for number in range(asked.captures):
        for name in asked.disease or DISEASES:
            for form in ("sick", "healed"):
                folder = asked.out / name / f"{form}-{number}"
                if time.monotonic() > until or (folder / "seconds.json").exists():
                    continue
                began = time.monotonic()
                try:
                    capture(getattr(DISEASES[name], form), folder)
                except Exception as error:  # noqa: BLE001 -- the next disease is captured all the same
                    print(f"{folder}: {str(error).splitlines()[-1]}", file=sys.stderr)
                print(f"{folder}: {time.monotonic() - began:.1f} s", flush=True)


if __name__ == "__main__":
    main()
