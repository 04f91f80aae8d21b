# SPDX-License-Identifier: Apache-2.0
"""What the top-level keys of a Kineto trace say: rank, groups, device, versions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cclbench.errors import InputError
from cclbench.schema import ProcessGroup, TraceFacts

_RANKS = range(1 << 31)


def facts(outer: dict[str, Any], ranks_of_ops: set[int], processes: set[int], path: Path) -> TraceFacts:
    """Facts from all keys beside `traceEvents`, from the ranks host ops stated and the processes they ran in.

    `InputError` where the rank is none.
    """
    distributed = _mapping(outer.get("distributedInfo"))
    devices = outer.get("deviceProperties")
    devices = [d for d in devices if isinstance(d, dict)] if isinstance(devices, list) else []
    device = devices[0] if devices else {}
    rank, source = _integer(distributed.get("rank")), "distributedInfo"
    if rank is None:
        rank, source = _integer(outer.get("rank", _mapping(outer.get("metadata")).get("rank"))), "metadata"
    if rank is None and len(ranks_of_ops) == 1:
        rank, source = next(iter(ranks_of_ops)), "record_param_comms"
    if rank is not None and rank not in _RANKS:
        raise InputError(f"{source} says rank {rank}", where=str(path), hint="is the file damaged?")
    return TraceFacts(
        rank=rank,
        rank_source=None if rank is None else source,
        process_id=next(iter(processes)) if len(processes) == 1 else None,
        world_size=_integer(distributed.get("world_size")),
        producer="PyTorch Profiler",
        producer_version=_text(outer.get("pytorch_version")),
        backend=_text(distributed.get("backend")),
        vendor=_vendor(outer, device),
        device_name=_text(device.get("name")),
        device_memory_bytes=_count(device.get("totalGlobalMem")),
        device_count=len(devices) if "deviceProperties" in outer else None,
        sm_count=_count(device.get("numSms")),
        library_version=_text(distributed.get("nccl_version")),
        groups=_groups(distributed.get("pg_config")),
    )


def _groups(listed: object) -> tuple[ProcessGroup, ...]:
    return tuple(
        ProcessGroup(
            name=str(entry.get("pg_name")),
            description=_text(entry.get("pg_desc")),
            ranks=_ranks(entry.get("ranks")),
        )
        for entry in (listed if isinstance(listed, list) else [])
        if isinstance(entry, dict)
    )


def _ranks(listed: object) -> tuple[int, ...] | None:
    """Global ranks where each is one, None otherwise: a list may be abbreviated or damaged."""
    ranks = listed if isinstance(listed, list) else []
    whole = all(_integer(rank) is not None and rank in _RANKS for rank in ranks)
    return tuple(ranks) if ranks and whole else None


def _vendor(outer: dict[str, Any], device: dict[str, Any]) -> str | None:
    if device.get("warpSize") == 64 or any(key.startswith(("hip_", "roctracer")) for key in outer):
        return "amd"
    return "nvidia" if device.get("warpSize") == 32 or "cupti_version" in outer else None


def _mapping(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _integer(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _count(value: object) -> int | None:
    """A number of things a device can have; an absurd one says nothing."""
    number = _integer(value)
    return number if number is not None and 0 < number < 1 << 48 else None


def _text(value: object) -> str | None:
    return str(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else None
