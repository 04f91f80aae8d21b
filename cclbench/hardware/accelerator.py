# SPDX-License-Identifier: Apache-2.0
"""Accelerators in the catalog: dense peaks, memory and links."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from cclbench.hardware.figure import UNVERIFIED, Disagreement, FigureSource

# Drivers report binary gigabytes less a reserve, vendors print decimal ones: up to 7.4 % apart.
_MEMORY_TOLERANCE: Final = 0.1
PRACTICAL: Final = 0.8
"""Share of the data sheet's peak that large kernels reach in practice, used where no measurement is known."""
USUAL_ATTENTION: Final = 0.5
"""Share of the fastest product's rate that fused attention reaches: FlashAttention-2 runs at 50 to 73 % of an
A100's peak (Dao, arXiv:2307.08691) and at 35 to 40 % of an H100's (Shah et al., arXiv:2407.08608)."""


class Accelerator(msgspec.Struct, frozen=True):
    """One accelerator as software sees it (one die of a two-die module).

    `peak_flops_per_s` is dense (no sparsity), by dtype, FLOP/s (integer types: op/s), None where the device
    lacks the type or no dense figure is published; `attainable_flops_per_s` is the fastest matrix product
    measured over many shapes.  `names` are regular expressions that match the full device name, ignoring
    case.  `cache_bytes` is the last cache before the device's memory, shared by all cores (NVIDIA's L2, AMD's
    Infinity Cache).  `sm_count` counts streaming multiprocessors or compute units.  `scale_up_bytes_per_s` is
    the line rate of all scale-up links together, per direction, B/s.  `announced`: not yet delivered, its
    figures may change.  `cited` maps each figure's dotted field
    to its source (a key of `sources`, or `unverified`).
    """

    id: str
    kind: Literal["accelerator"]
    vendor: Literal["nvidia", "amd", "google", "aws", "intel", "generic"]
    names: tuple[str, ...]
    peak_flops_per_s: Mapping[str, float | None]
    hbm_bytes: int | None
    hbm_bytes_per_s: float | None
    sm_count: int | None
    scale_up_bytes_per_s: float | None
    attainable_flops_per_s: Mapping[str, float | None] = {}
    cache_bytes: int | None = None
    announced: bool = False
    sources: Mapping[str, FigureSource] = {}
    cited: Mapping[str, str] = {}
    disagreements: tuple[Disagreement, ...] = ()
    notes: str | None = None

    def fastest_flops_per_s(self, precision: str) -> float | None:
        """Upper bound of a matrix product, FLOP/s: the fastest one measured, else the data sheet's peak."""
        return self.attainable_flops_per_s.get(precision) or self.peak_flops_per_s.get(precision)

    def usable_flops_per_s(self, precision: str) -> float | None:
        """What products of that precision reach in practice, FLOP/s: measured, or a share of the peak."""
        peak = self.peak_flops_per_s.get(precision)
        return self.attainable_flops_per_s.get(precision) or (None if peak is None else PRACTICAL * peak)

    @property
    def unverified_fields(self) -> tuple[str, ...]:
        """Dotted fields without a source."""
        return tuple(field for field, source in self.cited.items() if source == UNVERIFIED)

    def has_name(self, name: str) -> bool:
        """Whether profilers print this name for the accelerator."""
        return any(re.fullmatch(pattern, name, re.IGNORECASE) for pattern in self.names)

    def has_memory(self, reported_bytes: int) -> bool:
        """Whether the memory size a driver reports is consistent with the catalog's."""
        if self.hbm_bytes is None:
            return True
        return abs(reported_bytes / self.hbm_bytes - 1) <= _MEMORY_TOLERANCE
