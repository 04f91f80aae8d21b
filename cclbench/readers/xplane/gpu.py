# SPDX-License-Identifier: Apache-2.0
"""GPU planes: kernels and copies of the streams; all other lines show the same once more."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from cclbench.errors import InputError
from cclbench.readers import Rows, Trace
from cclbench.readers.xplane import proto
from cclbench.readers.xplane.rows import DERIVED, Line, rows, steps

_VENDORS: Final = {"nvidia": "nvidia", "amd": "amd"}
_TOLD: Final = ("correlation_id", "kernel_details", "memcpy_details", "memset_details")
_DIRECTIONS: Final = (
    ("h2d", re.compile(r"HtoD|H2D|HostToDevice")),
    ("d2h", re.compile(r"DtoH|D2H|DeviceToHost")),
    ("p2p", re.compile(r"PtoP|P2P|PeerToPeer")),
    ("d2d", re.compile(r"DtoD|D2D|DeviceToDevice")),
)


def facts(stats: proto.Stats) -> dict[str, Any]:
    """What the plane says of the device, as fields of `TraceFacts`.

    `memory_bandwidth`, in B/s, is 2 · memory clock · bus width: true of NVIDIA's memories; the MI300X's
    moves twice that, as kernels of its traces show, so AMD's figure is not taken.
    """
    vendor = _VENDORS.get(str(stats.get("device_vendor")).lower())
    bandwidth = _count(stats.get("memory_bandwidth"))
    return {
        "vendor": vendor,
        "sm_count": _count(stats.get("core_count")),
        "device_memory_bytes": _count(stats.get("memory_size")),
        "hbm_bytes_per_s": float(bandwidth) if bandwidth and vendor == "nvidia" else None,
    }


def correlations(message: Any) -> set[int]:
    """Correlation ids of all that ran on the plane's streams."""
    wanted = {key for key, name in proto.stat_names(message).items() if name == "correlation_id"}
    found = (
        stat.uint64_value or stat.int64_value
        for line in message.lines
        if line.name.startswith("Stream")
        for event in line.events
        for stat in event.stats
        if stat.metadata_id in wanted
    )
    return {i for i in found if 0 < i < 1 << 63}


def batches(trace: Trace, message: Any, path: Path, device: int, epoch_ns: int) -> Iterator[Rows]:
    """All rows of a GPU's plane."""
    names = {key: metadata.name for key, metadata in proto.event_metadata(message).items()}
    stat_names = proto.stat_names(message)
    placed: dict[str, list[Line]] = {"kernel": [], "copy": [], "memset": []}
    ops: list[tuple[str, int | None, str, str, str]] = []
    codes: dict[tuple[Any, ...], int] = {}
    for line in message.lines:
        name = line.name or line.display_name
        if not name.startswith("Stream"):
            _mark(trace, line, names, path, epoch_ns)
            continue
        start, dur = proto.times(line, line.events, path, epoch_ns)
        code = np.empty(len(start), np.int64)
        for i, event in enumerate(line.events):
            told = proto.stats(stat_names, (s for s in event.stats if stat_names.get(s.metadata_id) in _TOLD))
            correlation = told.get("correlation_id")
            which = (
                names.get(event.metadata_id, f"unnamed {event.metadata_id}"),
                correlation if isinstance(correlation, int) and 0 < correlation < 1 << 63 else None,
                *(str(told.get(detail, "")) for detail in _TOLD[1:]),
            )
            code[i] = codes.setdefault(which, len(codes))
        found = Line(name, line.id, code, start, dur)
        ops = list(codes)
        kinds = np.array([_kind(op) for op in ops])[found.code]
        for kind, lines in placed.items():
            lines.append(found.where(kinds == kind))
    where = str(path)
    for kind, lines in placed.items():
        columns = {"correlation": pa.array([op[1] for op in ops], pa.int64())}
        if kind == "kernel":
            columns["blocks"] = pa.array([_blocks(op[2], where) for op in ops], pa.int64())
        else:
            columns["bytes"] = pa.array([_size(op[3] or op[4], where) for op in ops], pa.int64())
        if kind == "copy":
            columns["copy_direction"] = pa.array([_direction(f"{op[0]} {op[3]}") for op in ops], pa.string())
        made = rows(kind, "device", lines, [op[0] for op in ops], device=device, columns=columns)
        if made is not None:
            yield made[0]


def _mark(trace: Trace, line: Any, names: dict[int, str], path: Path, epoch_ns: int) -> None:
    """A line that is no stream: it may mark steps or runs of modules, and is no work."""
    name = line.name or line.display_name
    if name in ("Steps", "XLA Modules"):
        start, dur = proto.times(line, line.events, path, epoch_ns)
        known = sorted({event.metadata_id for event in line.events})
        code = np.searchsorted(known, np.array([event.metadata_id for event in line.events], np.int64))
        titles = [names.get(key, "") for key in known]
        trace.device_steps += steps(Line(name, line.id, code, start, dur), titles, numbered=name == "Steps")
        reason = "mark of a step or of a module's run"
    else:
        reason = "row derived from others" if name in DERIVED else "row of a line of unknown meaning"
    if line.events:
        trace.dropped[reason] = trace.dropped.get(reason, 0) + len(line.events)


def _kind(op: tuple[str, int | None, str, str, str]) -> str:
    name, _, _, copy, fill = op
    if copy or re.match(r"(?i)memcpy", name):
        return "copy"
    return "memset" if fill or re.match(r"(?i)memset", name) else "kernel"


@lru_cache(maxsize=1 << 12)
def _blocks(details: str, where: str) -> int | None:
    """Thread blocks from `grid:160,1,1`."""
    grid = re.search(r"grid:(\d{1,19}),(\d{1,19}),(\d{1,19})", details)
    blocks = math.prod(map(int, grid.groups())) if grid else None
    if blocks is not None and blocks >= 1 << 63:
        raise InputError(f"impossible grid of {blocks} blocks", where=where, hint="is the file damaged?")
    return blocks or None


@lru_cache(maxsize=1 << 12)
def _size(details: str, where: str) -> int | None:
    """Bytes from `kind:... size:4 dest:1`; a size of 0 is what the profiler writes where it knows none."""
    size = re.search(r"\b(?:size|num_bytes):(\d{1,40})\b", details)
    if size and int(size[1]) >= 1 << 62:
        raise InputError(f"impossible copy of {size[1]} bytes", where=where, hint="is the file damaged?")
    return int(size[1]) or None if size else None


def _direction(text: str) -> str | None:
    return next((direction for direction, pattern in _DIRECTIONS if pattern.search(text)), None)


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and 0 < value < 1 << 48 else None
