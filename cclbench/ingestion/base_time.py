# SPDX-License-Identifier: Apache-2.0
"""The base time of a file that tells it at its end: added to all that was read before."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from cclbench.formats.trace import LATEST_NS, StatedPayloads, impossible
from cclbench.ingestion.part import PartRead, PartTask, finished
from cclbench.record.files import TableFile, with_columns
from cclbench.schema import EVENTS


@dataclass(frozen=True, slots=True, eq=False)
class ShiftTask:
    """Add `base_ns` to all times of a part of `file`, the `index`-th of its member's, in `folder`."""

    file: Path
    folder: Path
    index: int
    read: PartRead
    base_ns: int


def shifts(task: PartTask, read: Sequence[PartRead]) -> list[ShiftTask]:
    """What is to do for all parts of the task's member: nothing where their times are whole."""
    base_ns = next((part.trace.base_ns for part in read if part.trace.base_ns), None)
    if base_ns is None:
        return []
    return [ShiftTask(task.file.path, task.folder, i, part, base_ns) for i, part in enumerate(read)]


def shift(task: ShiftTask) -> PartRead:
    """The part with its times shifted, on disk as well; `InputError` where they become impossible."""
    read, base_ns = task.read, task.base_ns
    for path in sorted(task.folder.glob(f"*-{task.index:03d}*.parquet")):
        _shift_file(path, base_ns, task.file)
    _shift_told(read.trace.told, base_ns)
    read.trace.device_steps = [
        msgspec.structs.replace(step, start_ns=step.start_ns + base_ns, end_ns=step.end_ns + base_ns)
        for step in read.trace.device_steps
    ]
    return replace(
        read,
        launches=read.launches._replace(start_ns=read.launches.start_ns + base_ns),
        annotations=[
            replace(one, start_ns=one.start_ns + base_ns, end_ns=one.end_ns + base_ns)
            for one in read.annotations
        ],
        op_span=read.op_span and (read.op_span[0] + base_ns, read.op_span[1] + base_ns),
    )


def _shift_file(path: Path, base_ns: int, source: Path) -> None:
    shifted = path.with_suffix(".shifted")
    with finished(TableFile(shifted, EVENTS)) as final, pq.ParquetFile(path) as file:
        for group in range(file.num_row_groups):
            rows = file.read_row_group(group)
            start = rows["start_ns"].to_numpy() + base_ns
            if len(start) and max(-int(start.min()), int(start.max())) > LATEST_NS:
                raise impossible(f"time: {start[np.argmax(abs(start))]} ns with baseTimeNanoseconds", source)
            final.write(with_columns(rows, EVENTS, {"start_ns": pa.array(start)}))
    shifted.replace(path)


def _shift_told(told: StatedPayloads, base_ns: int) -> None:
    """Entries that are about a kernel by its ordinal tell no times."""
    by_time = np.asarray(told.row) < 0
    for name in ("start_ns", "end_ns"):
        times = np.asarray(getattr(told, name))
        setattr(told, name, array("q", (times + np.where(by_time, base_ns, 0)).tobytes()))
