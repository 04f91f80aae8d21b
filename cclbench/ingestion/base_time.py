# SPDX-License-Identifier: Apache-2.0
"""Add the base time of files that state it at their end to all times read before it."""

from __future__ import annotations

import shutil
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import numpy as np
import pyarrow.compute as pc

from cclbench.engine import Engine
from cclbench.formats import StatedPayloads
from cclbench.formats.trace import LATEST_NS, impossible_value
from cclbench.ground.evidence_schema import EVIDENCE
from cclbench.ground.schema import EVENTS
from cclbench.ingestion.part import PartDone, PartTask
from cclbench.ingestion.part_file import SUFFIX, read_part_file, write_part
from cclbench.record.files import TableFile, closed_at_end, parquet_file, with_columns


@dataclass(frozen=True, slots=True)
class ShiftTask:
    """Write part `index` of `folder` to `target`, with `base_ns` added to all times."""

    source: Path
    """The trace."""
    folder: Path
    target: Path
    index: int
    base_ns: int


def add_base_times(
    read: Iterable[tuple[PartTask, Sequence[PartDone]]], engine: Engine, size_bytes: int
) -> None:
    """Add each member's base time to its parts; `read` has one task and all parts of each member.

    `size_bytes` is the size of their files' text.
    """
    tasks = []
    for task, parts in read:
        base_ns = next((part.base_ns for part in parts if part.base_ns), 0)
        target = task.folder.with_name(f"{task.folder.name}-whole")
        if base_ns:
            tasks += [ShiftTask(task.file.path, task.folder, target, i, base_ns) for i in range(len(parts))]
    engine.map(shift_times, tasks, size_bytes=size_bytes)
    for folder, target in {task.folder: task.target for task in tasks}.items():
        shutil.rmtree(folder)
        target.rename(folder)


def shift_times(task: ShiftTask) -> None:
    """Shift the times of one part; `InputError` if a time becomes impossible."""
    name, base_ns = f"{task.index:03d}", task.base_ns
    for path in sorted(task.folder.glob(f"*-{name}*.parquet")):
        _shift_file(path, task.target / path.name, base_ns, task.source)
    part = read_part_file(task.folder / f"{name}{SUFFIX}")
    _shift_payloads(part.stated_payloads, base_ns)
    part.device_steps = [
        msgspec.structs.replace(step, start_ns=step.start_ns + base_ns, end_ns=step.end_ns + base_ns)
        for step in part.device_steps
    ]
    part.annotations = [
        replace(annotation, start_ns=annotation.start_ns + base_ns, end_ns=annotation.end_ns + base_ns)
        for annotation in part.annotations
    ]
    if part.op_span is not None:
        part.op_span = part.op_span[0] + base_ns, part.op_span[1] + base_ns
    write_part(task.target / f"{name}{SUFFIX}", part)


def _shift_file(path: Path, target: Path, base_ns: int, source: Path) -> None:
    """Write a table of events or evidence with shifted times; evidence may have none."""
    schema = EVIDENCE.get(path.name.partition("-")[0], EVENTS)
    with closed_at_end(TableFile(target, schema)) as final, parquet_file(path) as file:
        for group in range(file.num_row_groups):
            rows = file.read_row_group(group, use_threads=False)  # each thread of Arrow keeps memory
            shifted = {
                name: pc.add(rows[name], base_ns) for name in ("start_ns", "end_ns") if name in schema.names
            }
            for times in shifted.values():
                latest = pc.max_element_wise(pc.max(times), pc.negate(pc.min(times))).as_py()
                if latest is not None and latest > LATEST_NS:
                    raise impossible_value(f"time: {latest} ns with baseTimeNanoseconds", source)
            final.write(with_columns(rows, schema, shifted))


def _shift_payloads(stated_payloads: StatedPayloads, base_ns: int) -> None:
    """Shift entries located by time; those located by a kernel's ordinal have none."""
    by_time = np.asarray(stated_payloads.row) < 0
    for name in ("start_ns", "end_ns"):
        times = np.asarray(getattr(stated_payloads, name)) + np.where(by_time, base_ns, 0)
        setattr(stated_payloads, name, array("q", times.astype(np.int64).tobytes()))
