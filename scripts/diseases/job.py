# SPDX-License-Identifier: Apache-2.0
"""Capture the training of a small Llama on CPU ranks, with and without one cause of slowness.

    python job.py --disease slow_rank --sick --out FOLDER [--ranks 2] [--steps 12]
    python job.py --disease slow_rank --healed --out FOLDER

Each rank is a process with a core of its own, and gloo connects them over the loopback interface.
FOLDER/traces contains the traces of `--steps` steps, FOLDER/seconds.json the durations of rank 0's steps by
its own clock, with and without the profiler.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import random
import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from itertools import count
from multiprocessing import Process
from pathlib import Path
from typing import Any, Final

import torch
import torch.distributed as dist
import torch.multiprocessing
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import record_function
from torch.utils.data import DataLoader, Dataset

import cclbench.torch

sys.path.append(str(Path(__file__).resolve().parents[1] / "workloads"))
from tiny_llama import VOCABULARY, TinyLlama

LATE: Final = 1
"""The rank that is ill where one is."""
UNPROFILED: Final = 5
PIECE: Final = 1 << 14
"""Elements of a tiny message: 64 KiB."""


@dataclass(frozen=True, kw_only=True)
class Switches:
    """Causes to switch on; `_s`: seconds in each step, `one_`: only on the rank `LATE`."""

    batch: int = 2
    sequence: int = 128
    varied: bool = False
    one_sequence: int = 0
    load_s: float = 0.0
    one_load_s: float = 0.0
    workers: int = 0
    python_s: float = 0.0
    collect: bool = False
    one_products: int = 0
    reduce: str = "ddp"
    micro_batches: int = 1
    no_sync: bool = True
    dtype: torch.dtype = torch.float32
    optimizer: dict[str, bool] = field(default_factory=lambda: {"fused": True})
    cold: bool = False
    cores: int = 2
    neighbour: bool = False
    checkpoint: bool = False


@dataclass(frozen=True)
class Disease:
    """Names of the correct findings, the rank that they have to name, and the two jobs.

    There are no names if no finding describes the disease.
    """

    right: tuple[str, ...]
    rank: int | None
    sick: Switches
    healed: Switches = Switches()


_SMALL: Final = Switches(batch=1)
DISEASES: Final = {
    "slow_loader": Disease(("data_loading",), None, Switches(load_s=0.04)),
    "no_workers": Disease(("data_loading",), None, Switches(load_s=0.04), Switches(load_s=0.04, workers=1)),
    "one_slow_loader": Disease(("late_rank", "data_loading"), LATE, Switches(one_load_s=0.05)),
    "python": Disease(("host_bound",), None, Switches(python_s=0.04)),
    "gc_pauses": Disease(("host_bound", "uneven_ranks"), None, Switches(collect=True)),
    "slow_rank": Disease(("late_rank", "slow_device"), LATE, Switches(one_products=8)),
    "busy_neighbour": Disease(("late_rank", "slow_device"), LATE, Switches(neighbour=True)),
    "long_sequences": Disease(("late_rank",), LATE, Switches(one_sequence=192)),
    "varied_lengths": Disease(("uneven_ranks",), None, Switches(varied=True)),
    "tiny_messages": Disease(("small_messages",), None, Switches(reduce="pieces")),
    "no_overlap": Disease(("exposed_communication",), None, Switches(reduce="one_bucket")),
    "sync_each_micro_batch": Disease(
        ("exposed_communication",),
        None,
        Switches(batch=4, micro_batches=4, no_sync=False),
        Switches(batch=4, micro_batches=4),
    ),
    "fp64": Disease(
        ("double_precision", "low_gemm_efficiency", "tensor_cores"), None, Switches(dtype=torch.float64)
    ),
    "loop_optimizer": Disease(
        ("unfused_optimizer", "short_kernels", "memory_bound"),
        None,
        replace(_SMALL, optimizer={"foreach": False}),
        _SMALL,
    ),
    "cold_start": Disease(("cold_start", "warm_up"), None, Switches(cold=True)),
    "oversubscribed": Disease((), None, Switches(cores=1)),
    "checkpoint": Disease(("data_loading", "late_rank"), 0, Switches(checkpoint=True)),
}


class Samples(Dataset[torch.Tensor]):
    """Random tokens; each batch takes some time to load, as from a slow disk."""

    def __init__(self, batches: int, shape: tuple[int, int], seconds: float) -> None:
        self.batches, self.shape, self.seconds = batches, shape, seconds

    def __len__(self) -> int:
        return self.batches

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(self.seconds)
        generator = torch.Generator().manual_seed(index)
        batch, sequence = self.shape
        return torch.randint(VOCABULARY, (batch, sequence + 1), generator=generator)


def reduce_gradients(model: nn.Module, how: str) -> None:
    """Average the gradients after the backward pass: in one bucket, or in tiny pieces."""
    gradients = [p.grad.view(-1) for p in model.parameters() if p.grad is not None]
    flat = torch.cat(gradients)
    for piece in flat.split(PIECE) if how == "pieces" else [flat]:
        dist.all_reduce(piece)
    flat /= dist.get_world_size()
    for gradient, mean in zip(gradients, flat.split([g.numel() for g in gradients]), strict=True):
        gradient.copy_(mean)


def save(model: nn.Module, optimizer: torch.optim.Optimizer, path: Path) -> None:
    """Write a checkpoint and flush it to the disk."""
    with record_function("save_checkpoint"), path.open("wb") as file:
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
        os.fsync(file.fileno())


def backward(model: nn.Module, tokens: torch.Tensor, switches: Switches) -> None:
    """Forward and backward pass of a batch, micro-batch by micro-batch."""
    parts = tokens.chunk(switches.micro_batches)
    for number, part in enumerate(parts):
        local = switches.no_sync and number < len(parts) - 1 and isinstance(model, DistributedDataParallel)
        with model.no_sync() if local else nullcontext():
            with record_function("forward"):
                logits = model(part[:, :-1])
                loss = functional.cross_entropy(logits.flatten(0, 1), part[:, 1:].flatten()) / len(parts)
            with record_function("backward"):
                loss.backward()


def train(switches: Switches, steps: int, out: Path) -> Iterator[float]:
    """Train under the profiler; returns the seconds of the steps after the first, and of the warm-up."""
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    llama = TinyLlama(layers=2, heads=4, head_dim=64).to(switches.dtype)
    model = DistributedDataParallel(llama, bucket_cap_mb=4) if switches.reduce == "ddp" else llama
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, **switches.optimizer)
    wait, warmup = (0, 0) if switches.cold else (UNPROFILED + 1, 2)
    late = rank == LATE
    sequence = switches.one_sequence if late and switches.one_sequence else switches.sequence
    longest = sequence * 3 // 2 if switches.varied else sequence
    samples = Samples(
        wait + warmup + steps, (switches.batch, longest), switches.load_s + late * switches.one_load_s
    )
    loader: DataLoader[Any] = DataLoader(samples, batch_size=None, num_workers=switches.workers)
    extra = torch.randn(768, 768)
    profile = cclbench.torch.profile(
        out / "traces", wait=wait, warmup=warmup, active=steps, model=model, sequence_length=switches.sequence
    )
    with profile as profiler:
        began = time.perf_counter()
        for step, tokens in enumerate(loader):
            while time.perf_counter() - began < switches.python_s:
                str(step).encode().hex()
            if switches.collect and step % (2 * world) == 2 * rank:
                gc.collect()
            if switches.varied:  # every other rank has long ones, and which ones are drawn
                is_long = (random.Random(step).getrandbits(1) + rank) % 2  # noqa: S311
                sequence = switches.sequence // 2 * (3 if is_long else 1)
            llama.rotation = None
            for _ in range(late * switches.one_products):
                extra @ extra
            backward(model, tokens[:, : sequence + 1], switches)
            if switches.reduce != "ddp":
                reduce_gradients(llama, switches.reduce)
            with record_function("optimizer"):
                optimizer.step()
                optimizer.zero_grad()
            if switches.checkpoint and rank == 0 and step % 3 == 0:
                save(llama, optimizer, out / "checkpoint.pt")
            ended = time.perf_counter()
            if step >= wait + warmup or 0 < step < wait:
                yield ended - began
            profiler.step()
            began = time.perf_counter()


def work(rank: int, world: int, switches: Switches, steps: int, out: Path) -> None:
    """Run one rank on its own core."""
    os.sched_setaffinity(0, {rank % min(switches.cores, os.cpu_count() or 1)})
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    heap = [[number] for number in range(500_000)] if switches.collect else []
    gc.disable()
    neighbour = Process(target=deque, args=(count(), 0), daemon=True)  # counts for ever
    if switches.neighbour and rank == LATE:
        neighbour.start()
    dist.init_process_group("gloo", init_method=f"file://{out}/rendezvous", rank=rank, world_size=world)
    seconds = list(train(switches, steps, out))
    if rank == 0:
        document = {"unprofiled": seconds[:-steps], "profiled": seconds[-steps:]}
        (out / "seconds.json").write_text(json.dumps(document))
    dist.destroy_process_group()
    if neighbour.is_alive():
        neighbour.terminate()
    del heap


def capture(switches: Switches, ranks: int, steps: int, out: Path) -> None:
    """Run the job in new processes."""
    out = out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    # Forked ranks share the import of torch.
    torch.multiprocessing.start_processes(work, (ranks, switches, steps, out), ranks, start_method="fork")
    (out / "rendezvous").unlink(missing_ok=True)
    (out / "checkpoint.pt").unlink(missing_ok=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--disease", choices=DISEASES, required=True)
    form = parser.add_mutually_exclusive_group(required=True)
    form.add_argument("--sick", action="store_true")
    form.add_argument("--healed", action="store_true")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--steps", type=int, default=12, help="steps in the trace")
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    disease = DISEASES[asked.disease]
    capture(disease.sick if asked.sick else disease.healed, asked.ranks, asked.steps, asked.out)


if __name__ == "__main__":
    main()
