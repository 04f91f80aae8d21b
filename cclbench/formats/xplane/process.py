# SPDX-License-Identifier: Apache-2.0
"""Host rows of a process that drives accelerators: launches, step annotations, all others.

A launch belongs to the device with the same correlation id, a step annotation to every device; all other rows
belong to the process and are read once, with the first device that was active.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Set
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from cclbench.formats import Rows, Trace
from cclbench.formats.trace import ALLOCATOR_EVENT
from cclbench.formats.xplane import proto
from cclbench.formats.xplane.host_events import step_name
from cclbench.formats.xplane.rows import LineEvents, kind_rows

_LAUNCH: Final = re.compile(r"Launch|Memcpy|Memset|memcpy|memset")
_SYNCHRONIZE: Final = re.compile(r"(?:cu|hip)\w*Synchronize")
_MARKS: Final = ("ThreadpoolListener::", "end: ")
_PROGRAM: Final = ("python", "main")
"""Prefixes of the names of threads that run the program rather than the runtime."""
_ALLOCATOR: Final = ("MemoryAllocation", "MemoryDeallocation")
_HEAP: Final = ("bytes_allocated", "bytes_reserved", "index_on_host", "allocator_name")
_ALLOCATOR_NAME: Final = re.compile(r"(?:GPU|TPU)_(\d{1,4})_")
"""`GPU_0_bfc`; allocators of host memory have other names."""
_KINDS: Final = ("launch", "sync", "annotation", "python", "other")


class PlaneRow(NamedTuple):
    """What a host row is; `held_bytes` of a device's allocator event, after it."""

    kind: str
    name: str
    link: int | None = None
    held_bytes: int | None = None


def process_batches(
    trace: Trace,
    message: Any,
    path: Path,
    epoch_ns: int,
    *,
    device: int,
    own_ids: Set[int],
    elsewhere: Set[int] | None,
) -> Iterator[Rows]:
    """The host rows of a device, by its index on the host; `own_ids` are its executions' correlation ids.

    `elsewhere` are those of all other devices if this one also gets the process's rows, else None.
    """
    titles = {key: metadata.name for key, metadata in proto.event_metadata(message).items()}
    stat_names = proto.stat_names(message)
    keys = {key for key, name in stat_names.items() if name in ("correlation_id", "step_num", *_HEAP)}
    codes: dict[PlaneRow, int] = {}
    lines: list[LineEvents] = []
    marks = 0
    for line in message.lines:
        events: list[Any] = []
        code: list[int] = []
        of_program = line.name.startswith(_PROGRAM)
        for event in line.events:
            title = titles.get(event.metadata_id, "")
            stats = [stat for stat in event.stats if stat.metadata_id in keys] if event.stats else []
            decoded = proto.decode_stats(stat_names, stats)
            link = decoded.get("correlation_id")
            link = link if isinstance(link, int) and 0 < link < 1 << 63 else None
            is_process_row = elsewhere is not None and link not in elsewhere
            if title in _ALLOCATOR and (index := _device_index(decoded)) is not None:
                if index != device:
                    continue
                row = PlaneRow("other", ALLOCATOR_EVENT, held_bytes=_held_bytes(decoded))
            elif "step_num" in decoded:
                row = PlaneRow("annotation", step_name(title, decoded["step_num"]))
            elif not (is_process_row or link in own_ids):
                continue
            elif title.startswith(_MARKS):
                marks += 1
                continue
            else:
                row = PlaneRow(_row_kind(title, of_program, link is not None), title, link)
            events.append(event)
            code.append(codes.setdefault(row, len(codes)))
        start, dur = proto.event_times(line, events, path, epoch_ns)
        lines.append(LineEvents(line.name, line.id, np.array(code, np.int64), start, dur))
    if marks:
        trace.dropped["mark of the thread pool"] = marks
    kinds = np.array([row.kind for row in codes], np.str_)
    names = [row.name for row in codes]
    links = {"correlation": pa.array([row.link for row in codes], pa.int64())}
    held = pa.array([row.held_bytes for row in codes], pa.int64())
    devices = pa.array([device if row.held_bytes is not None else None for row in codes], pa.int16())
    columns = {"launch": links, "other": links | {"bytes": held, "device": devices}}
    for kind in _KINDS:
        chosen = [line.take_events(kinds[line.code] == kind) for line in lines if len(line)]
        if result := kind_rows(kind, "host", chosen, names, columns=columns.get(kind)):
            yield result[0]


def _held_bytes(stats: proto.Stats) -> int | None:
    """Bytes of the device's heap and of its programs' stacks after an allocator event."""
    heap, stack = (stats.get(name) for name in ("bytes_allocated", "bytes_reserved"))
    if isinstance(heap, int) and isinstance(stack, int) and 0 <= heap < 1 << 61 and 0 <= stack < 1 << 61:
        return heap + stack
    return None


def _device_index(stats: proto.Stats) -> int | None:
    """The index on its host of the device whose allocator it is; None if it is no device's or not stated."""
    if isinstance(index := stats.get("index_on_host"), int):
        return index
    match = _ALLOCATOR_NAME.match(str(stats.get("allocator_name", "")))
    return int(match[1]) if match else None


@lru_cache(maxsize=1 << 12)
def _row_kind(title: str, of_program: bool, linked: bool) -> str:
    if linked and _LAUNCH.search(title):
        return "launch"
    if _SYNCHRONIZE.match(title):
        return "sync"
    if title.startswith("$"):
        return "python"
    return "annotation" if of_program else "other"
