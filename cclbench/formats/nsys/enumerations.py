# SPDX-License-Identifier: Apache-2.0
"""What CUPTI's and Nsight Systems' numbers mean, and what kind of row a call of CUDA is by its name."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

COPY_KINDS: Final = {
    1: ("HtoD", "h2d"),
    2: ("DtoH", "d2h"),
    3: ("HtoA", "h2d"),
    4: ("AtoH", "d2h"),
    5: ("AtoA", "d2d"),
    6: ("AtoD", "d2d"),
    7: ("DtoA", "d2d"),
    8: ("DtoD", "d2d"),
    9: ("HtoH", None),
    10: ("PtoP", "p2p"),
    11: ("unified HtoD", None),
    12: ("unified DtoH", None),
    13: ("unified DtoD", None),
}
"""CUPTI's kinds of copy; arrays lie on the device, and unified memory moves by faults, not by copies."""
_MEMORIES: Final = (
    *("Pageable", "Pinned", "Device", "Array", "Managed", "Device Static", "Managed Static", "Unknown"),
)
"""Of a copy's `srcKind` and `dstKind`, as Nsight Systems numbers them."""
SYNC_KINDS: Final = {1: "Event Sync", 2: "Stream Wait Event", 3: "Stream Sync", 4: "Context Sync"}


def copy_name(kind: int, source: int, target: int) -> str:
    """`Memcpy HtoD (Pinned -> Device)`, as PyTorch's profiler writes it."""
    known = range(len(_MEMORIES))
    way = f" ({_MEMORIES[source]} -> {_MEMORIES[target]})" if source in known and target in known else ""
    return f"Memcpy {COPY_KINDS.get(kind, ('of unknown kind', None))[0]}{way}"


@lru_cache(maxsize=1 << 12)
def call_kind(name: str) -> str:
    """Kind of row of a CUDA call: those that put work on a device launch it."""
    if "Launch" in name or "Memcpy" in name or "Memset" in name:
        return "launch"
    return "sync" if "Synchronize" in name else "other"
