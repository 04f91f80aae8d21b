# SPDX-License-Identifier: Apache-2.0
"""Facts from the top-level keys of a Kineto trace: rank, groups, device, versions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cclbench.formats.kineto.payloads import ranks_of_text
from cclbench.formats.trace import plausible_amount
from cclbench.ground.errors import InputError
from cclbench.record.facts import ProcessGroup, TraceFacts

_RANKS = range(1 << 31)

Ranks = tuple[int, ...]


def trace_facts(
    outer: dict[str, Any],
    ranks_of_ops: set[int],
    processes: set[int | str],
    ranks_of_groups: Mapping[str, Ranks],
    path: Path,
) -> tuple[TraceFacts, list[str]]:
    """Facts from the top-level keys and from rows; notes on contradictions.

    Rows state the rank (host ops of the default group), the process, and the ranks of process groups by
    name, which the header abbreviates.  `InputError` if the rank is invalid.
    """
    distributed = _as_mapping(outer.get("distributedInfo"))
    devices = outer.get("deviceProperties")
    devices = [d for d in devices if isinstance(d, dict)] if isinstance(devices, list) else []
    device = devices[0] if devices else {}
    rank, source = _as_integer(distributed.get("rank")), "distributedInfo"
    if rank is None:
        rank, source = (
            _as_integer(outer.get("rank", _as_mapping(outer.get("metadata")).get("rank"))),
            "metadata",
        )
    if rank is None and len(ranks_of_ops) == 1:
        rank, source = next(iter(ranks_of_ops)), "record_param_comms"
    if rank is not None and rank not in _RANKS:
        raise InputError(f"{source} says rank {rank}", where=str(path), hint="is the file damaged?")
    listed = _listed_groups(distributed.get("pg_config"), ranks_of_groups)
    world, notes = _world_size(_as_integer(distributed.get("world_size")), listed)
    facts = TraceFacts(
        rank=rank,
        rank_source=None if rank is None else source,
        process_id=next((pid for pid in processes if isinstance(pid, int)), None),
        world_size=world,
        producer="PyTorch Profiler",
        producer_version=_as_text(outer.get("pytorch_version")),
        backend=_as_text(distributed.get("backend")),
        vendor=_device_vendor(outer, device),
        device_name=_as_text(device.get("name")),
        device_memory_bytes=plausible_amount(device.get("totalGlobalMem")),
        device_count=len(devices) if "deviceProperties" in outer else None,
        sm_count=plausible_amount(device.get("numSms")),
        library_version=_as_text(distributed.get("nccl_version")),
        groups=tuple(group for group, _ in listed),
    )
    return facts, notes


def _listed_groups(
    listed: object, ranks_by_name: Mapping[str, Ranks]
) -> list[tuple[ProcessGroup, int | None]]:
    """The groups listed in the header, each with its size, None if unknown."""
    groups = []
    for entry in listed if isinstance(listed, list) else []:
        if isinstance(entry, dict):
            name, size = str(entry.get("pg_name")), plausible_amount(entry.get("pg_size"))
            ranks = _global_ranks(entry.get("ranks"), size) or ranks_by_name.get(name)
            group = ProcessGroup(name=name, description=_as_text(entry.get("pg_desc")), ranks=ranks)
            groups.append((group, len(ranks) if ranks else size))
    return groups


def _global_ranks(listed: object, size: int | None) -> Ranks | None:
    """Global ranks; None if the list is abbreviated or damaged.

    In on-demand captures the list is text (kineto's addOnDemandDistMetadata).
    """
    if isinstance(listed, str):
        return ranks_of_text(listed, size)
    ranks = listed if isinstance(listed, list) else []
    complete = all(_as_integer(rank) is not None and rank in _RANKS for rank in ranks)
    return tuple(ranks) if ranks and complete else None


def _world_size(
    stated: int | None, groups: Sequence[tuple[ProcessGroup, int | None]]
) -> tuple[int | None, list[str]]:
    """The world size, and a note if the header's contradicts the process groups it lists.

    The default group has all ranks of the world, and no group has a rank beyond the world.
    """
    if stated is None or not groups:
        return stated, []
    sizes = {size for group, size in groups if group.description == "default_pg" and size} or {stated}
    last = max((rank for group, _ in groups for rank in group.ranks or ()), default=0)
    if sizes == {stated} and last < stated:
        return stated, []
    contradiction = f"the header states a world of {stated} ranks, its process groups contradict that:"
    if len(sizes) == 1 and last < (size := sizes.pop()):
        return size, [
            f"{contradiction} {size} is used, the size of the default group, which all ranks are in"
        ]
    return None, [f"{contradiction} the world's size is taken as unknown"]


def _device_vendor(outer: dict[str, Any], device: dict[str, Any]) -> str | None:
    if device.get("warpSize") == 64 or any(key.startswith(("hip_", "roctracer")) for key in outer):
        return "amd"
    if "intel" in str(device.get("vendor")).lower():
        return "intel"
    return "nvidia" if device.get("warpSize") == 32 or "cupti_version" in outer else None


def _as_mapping(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _as_integer(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _as_text(value: object) -> str | None:
    return str(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else None
