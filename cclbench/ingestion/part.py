# SPDX-License-Identifier: Apache-2.0
"""One file, or one part of it, streamed to Parquet; what needs the whole rank is left pending."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cclbench import classify
from cclbench.formats import Cut, DeviceStep, Part, Rows, StatedPayloads, trace_reader
from cclbench.intervals import Int64
from cclbench.normalize import steps
from cclbench.normalize.rows import Categories, table
from cclbench.record.facts import TraceFacts
from cclbench.record.files import EventFile, TableFile
from cclbench.schema import COUNTERS

ROW_GROUP: Final = 1 << 16
DEVICE_WORK: Final = ("kernel", "copy", "memset")
PENDING: Final = ".pending"
"""Mark of files whose step and collective columns are still to be filled."""


@dataclass(frozen=True, slots=True)
class PartTask:
    """Read `part` (the `index`-th of its member's) of a file into `folder`."""

    path: Path
    reader: str
    part: Part
    index: int
    folder: Path
    allow_truncated: bool
    step_annotation: str | None


@dataclass(frozen=True, slots=True, eq=False)
class Launches:
    """Launch calls, arrays of shape (launches,)."""

    correlation: Int64
    start_ns: Int64
    track: Int64
    of_kernel: npt.NDArray[np.bool_]


@dataclass(slots=True, eq=False)
class PartRead:
    """What is known of a part once it is on disk."""

    facts: TraceFacts
    told: StatedPayloads
    dropped: Counter[str]
    cut: Cut | None
    in_order: bool
    rows: dict[str, int]
    launches: Launches
    annotations: list[steps.Annotation]
    """Those that may be steps."""
    kernel_ns: dict[str, int]
    """Time of unclassified kernels by name, and of all kernels under the empty name."""
    op_span: tuple[int, int] | None
    pending: list[Path]
    counters: Path | None
    device_steps: list[DeviceStep]
    notes: list[str]


@dataclass(slots=True)
class _Kind:
    """Rows of one kind and side, gathered up to a row group."""

    categories: Categories
    file: EventFile
    batches: list[Rows] = field(default_factory=list)
    gathered: int = 0


class _PartWriter:
    def __init__(self, task: PartTask) -> None:
        self.task = task
        self.kinds: dict[tuple[str, str], _Kind] = {}
        self.rows: Counter[str] = Counter()
        self.kernel_ns: Counter[str] = Counter()
        self.launches: list[tuple[Int64, Int64, Int64, npt.NDArray[np.bool_]]] = []
        self.annotations: list[steps.Annotation] = []
        self.patterns = steps.families(task.step_annotation)
        self.op_span: tuple[int, int] | None = None
        self.counters: TableFile | None = None

    def add(self, rows: Rows | pa.Table) -> None:
        if not isinstance(rows, Rows):
            self._count(rows)
            return
        self.rows[rows.kind] += len(rows)
        if rows.side == "device" and rows.kind in DEVICE_WORK:
            self._put(rows, pending=True)
        elif rows.kind == "op":
            self._span(rows)
            own = np.array([_communicates_itself(name) for name in rows.names], np.bool_)[rows.codes]
            if own.any():
                self._put(_subset(rows, own), pending=True)
                rows = _subset(rows, ~own)
            self._put(rows, pending=False)
        else:
            if rows.kind == "launch":
                self._launch(rows)
            elif rows.kind == "annotation" and rows.side == "host":
                self._annotate(rows)
            self._put(rows, pending=False)

    def _count(self, samples: pa.Table) -> None:
        if self.counters is None:
            path = self.task.folder / f"counters-{self.task.index:03d}{PENDING}.parquet"
            self.counters = TableFile(path, COUNTERS)
        self.counters.write(samples)

    def _put(self, rows: Rows, *, pending: bool) -> None:
        if not len(rows):
            return
        note = PENDING if pending else "-device" if rows.side == "device" else ""
        kind = self.kinds.get((rows.kind, note))
        if kind is None:
            file = EventFile(self.task.folder, rows.kind, self.task.index, note)
            kind = self.kinds[rows.kind, note] = _Kind(Categories(rows.kind), file)
        kind.batches.append(rows)
        kind.gathered += len(rows)
        if kind.gathered >= ROW_GROUP:
            self._flush(kind)

    def _flush(self, kind: _Kind) -> None:
        if not kind.batches:
            return
        written = table(kind.batches, kind.categories)
        if kind.batches[0].kind == "kernel":
            self._weigh(kind)
        kind.file.write(written)
        kind.batches, kind.gathered = [], 0

    def _weigh(self, kind: _Kind) -> None:
        """Kernel time that the taxonomy does not know, by name."""
        names = list(kind.batches[0].names)
        total = np.zeros(len(names), np.int64)
        for rows in kind.batches:
            np.add.at(total, rows.codes, rows.dur_ns)
        self.kernel_ns[""] += int(total.sum())
        for code in np.flatnonzero(np.array(kind.categories.unclassified)).tolist():
            self.kernel_ns[names[code]] += int(total[code])

    def _launch(self, rows: Rows) -> None:
        if rows.correlation is None:
            return
        told = pa.array(rows.correlation, pa.int64())
        known = told.is_valid().to_numpy(zero_copy_only=False)
        correlation = told.drop_null().to_numpy()
        of_kernel = np.array(["Launch" in name for name in rows.names], np.bool_)[rows.codes]
        self.launches.append((correlation, rows.start_ns[known], rows.track[known], of_kernel[known]))

    def _annotate(self, rows: Rows) -> None:
        names = list(rows.names)
        possible = [any(p.fullmatch(name) for p in self.patterns) for name in names]
        for i in np.flatnonzero(np.array(possible, np.bool_)[rows.codes]).tolist():
            start = int(rows.start_ns[i])
            self.annotations.append(
                steps.Annotation(names[rows.codes[i]], start, start + int(rows.dur_ns[i]))
            )

    def _span(self, rows: Rows) -> None:
        begin, end = int(rows.start_ns.min()), int((rows.start_ns + rows.dur_ns).max())
        if self.op_span is not None:
            begin, end = min(begin, self.op_span[0]), max(end, self.op_span[1])
        self.op_span = begin, end

    def abandon(self) -> None:
        """Let go of all files after a failure."""
        for kind in self.kinds.values():
            kind.file.abandon()
        if self.counters is not None:
            self.counters.abandon()

    def close(self) -> list[Path]:
        """Write what is left; returns the files still to be filled in."""
        for kind in self.kinds.values():
            self._flush(kind)
            kind.file.close()
        if self.counters is not None:
            self.counters.close()
        return [kind.file.path for (_, note), kind in self.kinds.items() if note == PENDING]


def read_part(task: PartTask) -> PartRead:
    """Stream one part of a file to Parquet."""
    trace = trace_reader(task.reader).read(task.path, part=task.part, allow_truncated=task.allow_truncated)
    writer = _PartWriter(task)
    try:
        for rows in trace.batches:
            writer.add(rows)
        pending = writer.close()
    except BaseException:
        writer.abandon()
        raise
    columns = [np.concatenate(column) for column in zip(*writer.launches, strict=True)] or [
        np.empty(0, np.int64),
        np.empty(0, np.int64),
        np.empty(0, np.int64),
        np.empty(0, np.bool_),
    ]
    return PartRead(
        facts=trace.facts,
        told=trace.told,
        dropped=trace.dropped,
        cut=trace.cut,
        in_order=trace.device_rows_in_order,
        rows=dict(writer.rows),
        launches=Launches(*columns),
        annotations=writer.annotations,
        kernel_ns=dict(writer.kernel_ns),
        op_span=writer.op_span,
        pending=pending,
        counters=writer.counters.path if writer.counters else None,
        device_steps=trace.device_steps,
        notes=trace.notes,
    )


def _communicates_itself(name: str) -> bool:
    """Whether a host row is a transfer, not the call that asks for one."""
    told = classify.collective(name)
    return name.startswith("gloo:") or (told is not None and told.library in ("xla", "mpi"))


def _subset(rows: Rows, mask: npt.NDArray[np.bool_]) -> Rows:
    kept, chosen = np.flatnonzero(mask).tolist(), pa.array(mask)
    changes: dict[str, Any] = {
        name: getattr(rows, name)[mask] for name in ("codes", "start_ns", "dur_ns", "track")
    }
    for column in fields(rows):
        value = getattr(rows, column.name)
        if isinstance(value, list):
            changes[column.name] = [value[i] for i in kept]
        elif isinstance(value, pa.Array):
            changes[column.name] = value.filter(chosen)
    return replace(rows, **changes)
