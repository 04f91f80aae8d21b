# SPDX-License-Identifier: Apache-2.0
"""What a process frees, handed back to the system."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Final

import pyarrow as pa

_BLOCK_BYTES: Final = 4 << 20
"""Blocks from this size on go back as they are freed."""
_TOP_BYTES: Final = 16 << 20
"""What stays free at the heap's end, for the next block."""
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
"""Of glibc's mallopt."""


@cache
def hand_back_blocks() -> None:
    """Let this process hand large blocks back as they are freed.

    The GNU C library keeps ever larger ones, up to 32 MiB, once such a block was freed, and some for each
    thread: a large rank's arrays would leave more behind than is in use.  Other C libraries stay as they are.
    """
    mallopt = _of_c("mallopt")
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, _BLOCK_BYTES)
        mallopt(_TRIM_THRESHOLD, _TOP_BYTES)
        mallopt(_ARENA_MAX, 1)


def hand_back_free() -> None:
    """Hand back what is free by now: what Arrow holds, and whole pages of the GNU C library's heap."""
    pa.default_memory_pool().release_unused()
    malloc_trim = _of_c("malloc_trim")
    if malloc_trim is not None:
        malloc_trim(0)


def _of_c(name: str) -> Callable[..., int] | None:
    """A function of the C library, None where it has none of that name."""
    found: Callable[..., int] | None = getattr(ctypes.CDLL(None), name, None)
    return found
