# SPDX-License-Identifier: Apache-2.0
"""Metadata of a trace: ranks, device, producer, process groups."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec


class ProcessGroup(msgspec.Struct, frozen=True, omit_defaults=True):
    """A process group as the trace lists it: its name, its purpose, its global ranks."""

    name: str
    description: str | None = None
    ranks: tuple[int, ...] | None = None


HOST_DEVICE: Final = "CPU"
"""Name of a device that is the host's CPU, as XLA's CPU devices are."""


class Communicator(msgspec.Struct, frozen=True):
    """A communicator as a rank's calls state it: its name, the rank in it, its size."""

    name: str
    rank: int
    size: int


class TraceFacts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Metadata of one rank's trace; null where the trace does not state it."""

    rank: int | None = None
    rank_source: str | None = None
    process_id: int | None = None
    world_size: int | None = None
    producer: str | None = None
    producer_version: str | None = None
    backend: str | None = None
    vendor: str | None = None
    device_name: str | None = None
    device_memory_bytes: int | None = None
    device_count: int | None = None
    peak_flops_per_s: float | None = None
    """Peak FLOP rate of one device, as the trace states it."""
    hbm_bytes_per_s: float | None = None
    """Peak memory bandwidth of one device, as the trace states it."""
    local_rank: int | None = None
    """Ordinal among the members of its file: orders ranks if they are not stated."""
    sm_count: int | None = None
    whole_graphs: int | None = None
    """CUDA graph launches that the trace records as one row each, without kernels."""
    library_version: str | None = None
    groups: tuple[ProcessGroup, ...] = ()
    communicators: tuple[Communicator, ...] = ()
    """Used to derive process groups that no rank lists."""
    works_on: str | None = None
    """`device` where there are accelerator rows, `host` for a CPU-only workload, null where the
    accelerator's rows are missing."""


def ran_no_kernel(facts: TraceFacts, rows: Mapping[str, int]) -> bool:
    """Whether a device only copies and sets memory, and runs no kernel and no graph."""
    return facts.works_on == "device" and not (rows.get("kernel") or rows.get("graph"))
