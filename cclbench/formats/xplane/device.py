# SPDX-License-Identifier: Apache-2.0
"""Rows of a device's plane and of the host's, from either kind of file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa

from cclbench.formats import Rows, Trace
from cclbench.formats.xplane import gpu, process, tpu
from cclbench.formats.xplane.buffers import program_buffers
from cclbench.formats.xplane.collectives import DeviceMember
from cclbench.formats.xplane.hlo_proto import HloProgram
from cclbench.formats.xplane.proto import HOST

NO_EPOCH = "the profile does not state when it began: times are relative to its beginning"
P = TypeVar("P")


def remember_last(read: Callable[[Path], P]) -> Callable[[Path], P]:
    """Cache the last result of reading a file, for the file's next device."""

    @lru_cache(maxsize=1)
    def as_of(path: Path, _size: int, _changed_ns: int) -> P:
        return read(path)

    return lambda path: as_of(path, (state := path.stat()).st_size, state.st_mtime_ns)


def device_batches(
    trace: Trace,
    name: str,
    message: Any,
    plane: Callable[[str], Any],
    path: Path,
    epoch_ns: int,
    member: DeviceMember,
    programs: Mapping[int, HloProgram],
    others: Sequence[str] | None,
) -> Iterator[Rows | pa.Table]:
    """All rows of a device and of the process that drives it; `plane` returns a plane's message by name.

    `others` are the file's other devices if this one also gets the process's rows, else None.
    """
    _, kind, number = name.split(":")
    launched: set[int] = set()
    if kind == "TPU":
        yield from tpu.tpu_batches(trace, message, path, int(number), epoch_ns, member)
    else:
        yield from gpu.gpu_batches(trace, message, path, int(number), epoch_ns, member, programs)
        launched = gpu.stream_correlations(message)
    del message
    elsewhere: set[int] | None = None
    if others is not None:
        yield program_buffers(programs.values())
        elsewhere = set().union(*(gpu.stream_correlations(plane(other)) for other in others if kind == "GPU"))
    if (host := plane(HOST)) is not None:
        yield from process.process_batches(
            trace, host, path, epoch_ns, device=int(number), own_ids=launched, elsewhere=elsewhere
        )
