# SPDX-License-Identifier: Apache-2.0
"""The shape of a training job, its process groups, and the devices it may run on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

LAYOUTS: Final = ("ddp", "fsdp", "tp", "ep", "pp")
LAWS: Final = ("lognormal", "autoregressive", "heavy_tailed")
DEVICES: Final = {
    "NVIDIA A100-SXM4-80GB": (312e12, 2.0e12),
    "NVIDIA H100 80GB HBM3": (989e12, 3.35e12),
}
"""Dense bf16 FLOP/s and bytes/s of memory."""
PRODUCT_KERNELS: Final = {
    "NVIDIA A100-SXM4-80GB": "ampere_bf16_s16816gemm_bf16",
    "NVIDIA H100 80GB HBM3": "nvjet_tst",
}
GATHER, REDUCE, EXCHANGE = 21, 25, 29
"""Streams of all-gathers, of reductions, and of exchanges within layers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobShape:
    """The shape of a job; its random numbers follow from the seed."""

    layout: str
    seed: int
    inner: int = 1
    """Ranks of a tensor, expert or pipeline group."""
    outer: int = 2
    """Ranks of a data-parallel group."""
    layers: int = 3
    hidden: int = 2048
    tokens: int = 8192
    steps: int = 6
    microbatches: int = 1
    device: str = "NVIDIA A100-SXM4-80GB"
    efficiency: float = 0.84
    bus_bytes_per_s: float = 2.0e11
    latency_ns: int = 12_000
    law: str = "lognormal"
    spread: float = 0.004
    """Spread of a rank's work from step to step."""
    logs_loss: bool = False
    """Whether each step ends with `loss.item()`."""
    clock_ns: int = 0
    """Largest clock offset of a rank, in either direction, ns."""
    sync_events: bool = False

    @property
    def rank_count(self) -> int:
        """Number of ranks."""
        return self.inner * self.outer


def process_groups(job: JobShape) -> tuple[tuple[str, str, tuple[int, ...]], ...]:
    """Name, description and ranks of each: all ranks, then those of the inner and the outer dimension."""
    world = tuple(range(job.rank_count))
    groups = [("0", "default_pg", world)]
    if job.inner > 1:
        groups += [
            (f"inner{first}", f"mesh_{job.layout}", world[first : first + job.inner])
            for first in range(0, job.rank_count, job.inner)
        ]
        if job.outer > 1:
            groups += [(f"outer{i}", "mesh_dp", world[i :: job.inner]) for i in range(job.inner)]
    return tuple(groups)
