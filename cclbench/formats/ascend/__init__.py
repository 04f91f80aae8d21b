# SPDX-License-Identifier: Apache-2.0
"""Ascend's profilers: `kernel_details.csv`, a row for each task of an NPU, of one rank."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from cclbench.formats import READERS, DeviceStep, Names, Part, Reader, Rows, Trace
from cclbench.formats.trace import LATEST_NS, impossible_value
from cclbench.ground.intervals import Int64
from cclbench.record.facts import TraceFacts

_STEP: Final = "Step Id"
_REQUIRED: Final = ("Type", "Stream ID", "Start Time(us)", "Duration(us)")
_MARKS: Final = (b"Task ID", b"Accelerator Core", b"Start Time(us)")
_AGAIN: Final = "write it again: torch_npu.profiler.analyse(FOLDER)"


class Ascend(Reader):
    """Reader of kernel details.

    A row is named by its type (`MatMul`), not by its task (`MatMul46`), so that like tasks are one kernel;
    those of HCCL are collectives.
    """

    name = "ascend"
    precedence = 15
    description = "Ascend NPU kernel details (torch_npu, msprof): tasks with steps, HCCL collectives"
    extensions: tuple[str, ...] = (".csv",)
    capture = "`torch_npu.profiler`, then `kernel_details.csv` of each rank's ASCEND_PROFILER_OUTPUT"
    versions = "CANN 7 to 8"
    figures = re.compile(r"Step Id|Stream ID|(?:Start Time|Duration)\(us\)")
    tested = "real: the kernel details of a training step on an Atlas 800T"

    def sniff(self, head: bytes) -> float:
        """Sure of the table's heading."""
        heading = head.split(b"\n", 1)[0]
        return 0.95 if all(mark in heading for mark in _MARKS) else 0.0

    def read(self, path: Path, *, part: Part, allow_truncated: bool = False) -> Trace:
        """Read all tasks."""
        del part, allow_truncated
        trace = Trace(batches=iter(()), device_rows_in_order=False)
        trace.facts = TraceFacts(producer="torch_npu", vendor="huawei")
        trace.batches = _task_rows(path, trace)
        return trace


def _task_rows(path: Path, trace: Trace) -> Iterator[Rows]:
    # Not needed to recognise a file.
    import pyarrow.compute as pc

    from cclbench.formats.csv_tables import read_csv

    names, steps = Names(), dict[int, tuple[int, int]]()

    def tasks(batch: pa.RecordBatch, rows_before: int) -> Iterator[Rows]:
        begin, length = (batch[name] for name in ("Start Time(us)", "Duration(us)"))
        timed = batch.filter(pc.and_(begin.is_valid(), length.is_valid()))
        trace.dropped["row without a time or duration"] += len(batch) - len(timed)
        yield _read_tasks(timed, names, steps, f"{path}: after row {rows_before:,}")

    yield from read_csv(path, (_STEP, *_REQUIRED), _REQUIRED, tasks, hint=_AGAIN)
    trace.dropped = +trace.dropped
    trace.device_steps = _device_steps(steps)


def _read_tasks(batch: pa.RecordBatch, names: Names, steps: dict[int, tuple[int, int]], where: str) -> Rows:
    """The tasks of a batch; `steps` are extended by them."""
    from cclbench.formats.csv_tables import whole_numbers
    from cclbench.formats.timeline.tables import exact_nanoseconds

    start, duration = (
        exact_nanoseconds(batch[name], "us", where) for name in ("Start Time(us)", "Duration(us)")
    )
    wrong = (start <= 0) | (duration < 0) | (start + duration > LATEST_NS)
    if wrong.any():
        i = int(np.argmax(wrong))
        raise impossible_value(f"time: from {start[i]} ns, {duration[i]} ns long", where, _AGAIN)
    if _STEP in batch.schema.names:
        _add_steps(steps, whole_numbers(batch[_STEP]), start, start + duration)
    words = batch["Type"].fill_null("(no type)").dictionary_encode()
    codes = np.array([names[word] for word in words.dictionary.to_pylist()], np.int32)
    return Rows(
        kind="kernel",
        side="device",
        names=names,
        codes=codes[np.asarray(words.indices)],
        start_ns=start,
        dur_ns=duration,
        track=whole_numbers(batch["Stream ID"]),
    )


def _add_steps(steps: dict[int, tuple[int, int]], number: Int64, start: Int64, end: Int64) -> None:
    """Extend the span of each numbered step by its tasks."""
    for step in np.unique(number[number >= 0]).tolist():
        chosen = number == step
        begin, last = steps.get(step, (LATEST_NS, 0))
        steps[step] = min(begin, int(start[chosen].min())), max(last, int(end[chosen].max()))


def _device_steps(steps: Mapping[int, tuple[int, int]]) -> list[DeviceStep]:
    """A step from its first task to the next step's; the last one, without a successor, is open."""
    spans = sorted(steps.items(), key=lambda item: item[1])
    return [
        DeviceStep(
            name=f"step {number}",
            number=number,
            start_ns=begin,
            end_ns=spans[place + 1][1][0] if place + 1 < len(spans) else end,
            closed=place + 1 < len(spans),
        )
        for place, (number, (begin, end)) in enumerate(spans)
    ]


READERS.add(Ascend.name, Ascend(), origin=__name__)
