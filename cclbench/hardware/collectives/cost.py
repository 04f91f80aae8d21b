# SPDX-License-Identifier: Apache-2.0
"""Cost of a collective, in terms a reader can check: steps × latency + share of the bytes / rate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

ROUNDS: Final = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1}
"""Passes over all data: an all-reduce is a reduce-scatter, then an all-gather."""


@dataclass(frozen=True, slots=True)
class CollectiveSteps:
    """Consecutive steps and the latency of each, s."""

    count: float
    each_s: float
    what: str

    @property
    def total_s(self) -> float:
        """count × each_s."""
        return self.count * self.each_s


@dataclass(frozen=True, slots=True)
class Traffic:
    """The share of S that passes the bottleneck, and the bottleneck's rate, B/s."""

    share: float
    bytes_per_s: float
    what: str

    @property
    def s_per_byte(self) -> float:
        """share / rate."""
        return self.share / self.bytes_per_s


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Chunks pipelined over hops: filling the pipeline costs time beyond the stream itself.

    With the best chunk size that is 2 √(S β · `hops_s`), hops_s the latency of all hops (Sanders, Speck,
    Träff 2009), and at most `largest_s`: all hops with the largest chunks that a library has buffers for.
    """

    hops_s: float
    largest_s: float

    def fill_s(self, moving: Floats) -> Floats:
        """Filling time, given the time that the bytes take at full rate, s."""
        return np.asarray(np.minimum(2 * np.sqrt(moving * self.hops_s), self.largest_s), np.float64)


@dataclass(frozen=True, slots=True)
class CollectiveCost:
    """Time of one algorithm in one protocol: T(S) = Σ steps + S · traffic + filling of the pipeline, s.

    Messages above `eager_bytes` of S also pay `rendezvous`.
    """

    algorithm: str
    protocol: str
    steps: tuple[CollectiveSteps, ...]
    traffic: Traffic
    pipeline: Pipeline | None = None
    rendezvous: CollectiveSteps | None = None
    eager_bytes: float = 0.0

    @property
    def alpha_s(self) -> float:
        """Latency of an empty message, s."""
        return sum(step.total_s for step in self.steps)

    @property
    def beta_s_per_byte(self) -> float:
        """Time a byte of S takes at full rate, s/B."""
        return self.traffic.s_per_byte

    def time_s(self, size: Floats) -> Floats:
        """T by size, s."""
        moving = size * self.beta_s_per_byte
        fill = 0.0 if self.pipeline is None else self.pipeline.fill_s(moving)
        late = 0.0 if self.rendezvous is None else self.rendezvous.total_s * (size > self.eager_bytes)
        return np.asarray(self.alpha_s + late + moving + fill, np.float64)


@dataclass(frozen=True, slots=True)
class Assumed:
    """Assumptions that no specification states: expected, or at either edge (for `ratio`).

    `launch_s`: host work and launch of one call outside CUDA graphs, s; where one process drives all
    accelerators of its host, one call for each.  `latency` and `rate` multiply all step latencies and rates;
    `edge` selects the network's software latency from its range: 0 least, 1 expected, 2 most.
    """

    launch_s: float
    latency: float
    rate: float
    edge: int


# Launch: small single-node calls in public sweeps take 8 to 32 us where NCCL's own table says 10 to 15 us.
# Rates: ring plateaus over three NVLink generations are 0.93 to 0.99 of what NCCL takes for usable, network
# interfaces 0.90 to 0.96 of the line rate; sizes between latency and plateau fall short of both.
EXPECTED: Final = Assumed(launch_s=6e-6, latency=1.0, rate=1.0, edge=1)
BEST: Final = Assumed(launch_s=0.0, latency=0.75, rate=1.07, edge=0)
WORST: Final = Assumed(launch_s=18e-6, latency=1.5, rate=0.75, edge=2)
