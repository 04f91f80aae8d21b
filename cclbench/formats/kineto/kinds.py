# SPDX-License-Identifier: Apache-2.0
"""Kind of each Kineto event by its category and name; its stream and device."""

from __future__ import annotations

import re
import zlib
from functools import lru_cache
from typing import Any, Final

_DEVICE: Final = {
    "kernel": "kernel",
    "Kernel": "kernel",
    "gpu_memcpy": "copy",
    "Memcpy": "copy",
    "gpu_memset": "memset",
    "Memset": "memset",
    "cuda_sync": "sync",
    "gpu_user_annotation": "annotation",
}
_MTIA: Final = {"event_wait": "sync", "event_record": "sync", "dma_request": "copy"}
"""Kinds of rows of `mtia_ccp_events` other than kernels, by name, from two real traces."""
WORK: Final = {
    "mtia_ccp_events",
    *(category for category, kind in _DEVICE.items() if kind in ("kernel", "copy", "memset")),
}
_HOST: Final = {"cpu_op": "op", "python_function": "python"}
_ANNOTATION_2021: Final = re.compile(r"ProfilerStep#|enumerate\(DataLoader\)|Optimizer\.")
_DIRECTIONS: Final = (
    ("h2d", ("HtoD", "HostToDevice", "HOST_TO_DEVICE")),
    ("d2h", ("DtoH", "DeviceToHost", "DEVICE_TO_HOST")),
    ("p2p", ("PtoP", "PeerToPeer")),
    ("d2d", ("DtoD", "DeviceToDevice")),
    # Of Intel's PTI: M is pageable memory, H pinned; S may be on either side.
    ("h2d", (" M2D ", " H2D ")),
    ("d2h", (" D2M ", " D2H ")),
    ("d2d", (" D2D ",)),
)
# MTIA's calls are `runFunction - ...`, `enqueueCommand memcpyHtoDAsync`, `synchronizeStream`; those of XPU
# are Unified Runtime's and Level Zero's.
_LAUNCHES: Final = (
    *("Launch", "Memcpy", "Memset", "runFunction", "enqueueCommand"),
    *("urEnqueueMem", "urEnqueueUSM", "zeCommandListAppendMemory"),
)
_WAITS: Final = ("ynchronize", "urQueueFinish", "urEventWait")
_NONE: Final = (1 << 32) - 1
_SYNC_ROW: Final = 1_000_000
"""Added to the stream in the tid of `Stream Sync`, on rows of its own since April 2026 (kineto #1356)."""

Groups = dict[tuple[str, str], list[Any]]
"""Events by kind and side."""


def sort_into_kinds(category: str, group: list[Any], groups: Groups) -> None:
    """Sort one category's events into kinds."""
    if kind := _DEVICE.get(category):
        groups[kind, "device"] += group
    elif category == "mtia_ccp_events":
        for event in group:
            groups[_MTIA.get(event.name, "kernel"), "device"].append(event)
    elif kind := _HOST.get(category):
        groups[kind, "host"] += group
    elif category == "user_annotation":
        for event in group:
            groups["op" if event.name.startswith("gloo:") else "annotation", "host"].append(event)
    elif category.endswith(("runtime", "driver", "Runtime")) or category == "xpu_sync":
        for event in group:
            groups[runtime_kind(event.name), "host"].append(event)
    elif category == "Operator":  # torch 1.8 has no category for annotations
        for event in group:
            groups["annotation" if _ANNOTATION_2021.match(event.name) else "op", "host"].append(event)
    else:
        groups["other", "host"] += group


def stream_of_event(event: Any) -> int | str | None:
    """The stream of a device row, from its tid."""
    tid: int | str | None = event.tid
    if event.name == "Stream Sync" and isinstance(tid, int) and tid >= _SYNC_ROW:
        return tid - _SYNC_ROW
    return tid


@lru_cache(maxsize=1 << 12)
def runtime_kind(name: str) -> str:
    """Kind of a runtime call's row: launch if it puts work on a device."""
    if any(mark in name for mark in _LAUNCHES):
        return "launch"
    return "sync" if any(mark in name for mark in _WAITS) else "other"


@lru_cache(maxsize=1 << 12)
def track_number(text: str | None) -> int:
    """The number in `"stream 7"` and `"4093687616"`; for a track with only a name, the name's CRC-32."""
    number = re.fullmatch(r"(?:stream )?(-?\d{1,18})", str(text))
    return int(number[1]) if number else zlib.crc32(str(text).encode(errors="surrogatepass"))


def valid_link(number: object) -> int | None:
    """A stream or correlation id; None for −1, signed or unsigned."""
    return number if isinstance(number, int) and 0 <= number != _NONE else None


@lru_cache(maxsize=1 << 10)
def device_index(device: str | int | None) -> int | None:
    """A device's index, which may be text; None for process ids and names."""
    number = re.fullmatch(r"\d{1,4}", str(device))
    return int(number[0]) if number else None


@lru_cache(maxsize=1 << 12)
def copy_direction(text: str) -> str | None:
    """Direction of a copy, by its name and args."""
    return next((d for d, marks in _DIRECTIONS if any(mark in text for mark in marks)), None)
