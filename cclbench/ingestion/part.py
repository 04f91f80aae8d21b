# SPDX-License-Identifier: Apache-2.0
"""One file, or one part of it, streamed to Parquet; what needs the whole rank is left pending."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa

from cclbench import classify
from cclbench.formats import Cut, Part, Rows, trace_reader
from cclbench.ground.errors import CclbenchError, InputError, near
from cclbench.ground.registry import plugin_code
from cclbench.ground.schema import COUNTERS, SIDES
from cclbench.ingestion.part_file import SUFFIX, PartRead, write_part
from cclbench.ingestion.source import SourceFile
from cclbench.normalize import steps
from cclbench.normalize.device_rows import DEVICE_WORK
from cclbench.normalize.rows import Categories, table
from cclbench.record.facts import TraceFacts
from cclbench.record.files import EventFile, TableFile, closed_at_end
from cclbench.record.manifest import Options

ROW_GROUP: Final = 1 << 16
PENDING: Final = ".pending"
"""Mark of files whose step and collective columns are still to be filled."""


@dataclass(frozen=True, slots=True)
class PartTask:
    """Read `part` (the `index`-th of its member's) of a file into `folder`."""

    file: SourceFile
    part: Part
    index: int
    folder: Path
    options: Options

    def inflated(self) -> Iterator[PartTask]:
        """The tasks of a stream's parts, each once the file with its bytes is whole."""
        self.folder.mkdir(parents=True, exist_ok=True)
        parts = trace_reader(self.file.reader).inflated(self.file.path, self.folder)
        return (replace(self, part=part, index=index) for index, part in enumerate(parts))


class PartDone(msgspec.Struct, frozen=True):
    """What a run needs of a part before it is put together with its rank's others."""

    file: Path
    """With all the rest, see `part_file`."""
    facts: TraceFacts
    holds_rows: bool
    worked: bool
    """Whether a device did anything in it, as far as its rows or graphs without rows tell."""
    cut: Cut | None
    base_ns: int | None = None
    """What is still to be added to all times of its member's parts, where it tells that."""


def summary(file: Path, part: PartRead, base_ns: int | None = None) -> PartDone:
    """Of a part that is on disk."""
    worked = any(part.rows[kind] for kind in DEVICE_WORK) or bool(part.facts.whole_graphs)
    return PartDone(file, part.facts, part.rows.total() > 0, worked, part.cut, base_ns)


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
        self.read = PartRead()
        self.kinds: dict[tuple[str, str], _Kind] = {}
        self.patterns = steps.families(task.options.step_annotation)
        self.counters: TableFile | None = None

    def add(self, rows: Rows | pa.Table) -> None:
        if not isinstance(rows, Rows):
            self._count(rows)
            return
        if rows.side not in SIDES:
            what = f"the reader {self.task.file.reader} gave rows of side {rows.side!r}"
            raise CclbenchError(what, hint=near(rows.side, SIDES))
        self.read.rows[rows.kind] += len(rows)
        if rows.side == "device" and rows.kind in DEVICE_WORK:
            self._put(rows, pending=True)
            return
        if rows.kind == "op":
            self._span(rows)
            own = np.array([_communicates_itself(name) for name in rows.names], np.bool_)[rows.codes]
            if own.any():
                self._put(rows.take_rows(np.flatnonzero(own)), pending=True)
                rows = rows.take_rows(np.flatnonzero(~own))
        elif rows.kind == "annotation" and rows.side == "host":
            self._annotate(rows)
        self._put(rows, pending=False)

    def _count(self, samples: pa.Table) -> None:
        if self.counters is None:
            path = self.task.folder / f"counters-{self.task.index:03d}{PENDING}.parquet"
            self.read.counters, self.counters = path, TableFile(path, COUNTERS)
        self.counters.write(samples)

    def _put(self, rows: Rows, *, pending: bool) -> None:
        if not len(rows):
            return
        note = PENDING if pending else "-device" if rows.side == "device" else ""
        kind = self.kinds.get((rows.kind, note))
        if kind is None:
            file = EventFile(self.task.folder, rows.kind, self.task.index, note)
            kind = self.kinds[rows.kind, note] = _Kind(Categories(rows.kind), file)
            if pending:
                self.read.pending.append(file.path)
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
        self.read.kernel_ns[""] += int(total.sum())
        for code in np.flatnonzero(np.array(kind.categories.unclassified)).tolist():
            self.read.kernel_ns[names[code]] += int(total[code])

    def _annotate(self, rows: Rows) -> None:
        names = list(rows.names)
        possible = [any(p.fullmatch(name) for p in self.patterns) for name in names]
        for i in np.flatnonzero(np.array(possible, np.bool_)[rows.codes]).tolist():
            start = int(rows.start_ns[i])
            end = start + int(rows.dur_ns[i])
            self.read.annotations.append(steps.Annotation(names[rows.codes[i]], start, end))

    def _span(self, rows: Rows) -> None:
        begin, end = int(rows.start_ns.min()), int((rows.start_ns + rows.dur_ns).max())
        if self.read.op_span is not None:
            begin, end = min(begin, self.read.op_span[0]), max(end, self.read.op_span[1])
        self.read.op_span = begin, end

    def abandon(self) -> None:
        """Let go of all files after a failure."""
        for kind in self.kinds.values():
            kind.file.abandon()
        if self.counters is not None:
            self.counters.abandon()

    def close(self) -> None:
        """Write what is left."""
        for kind in self.kinds.values():
            self._flush(kind)
            kind.file.close()
        if self.counters is not None:
            self.counters.close()


def parts_of(file: SourceFile) -> list[Part]:
    """The parts of a trace file, at least one; `InputError` where it holds none."""
    reader = trace_reader(file.reader)
    with plugin_code(type(reader).__module__):
        parts = reader.parts(file.path)
    if not parts:
        raise InputError("holds no rows of any rank", where=str(file.path))
    return parts


def read_parts(task: PartTask) -> list[PartDone]:
    """Stream one part of a file to Parquet; of a stream, all its parts, one after another."""
    if not task.part.stream:
        return [read_part(task)]
    done = []
    for one in task.inflated():
        done.append(read_part(one))
        one.part.remove_inflated()
    return done


def read_part(task: PartTask) -> PartDone:
    """Stream one part of a file to Parquet, and what is known of it to a file beside that."""
    reader = trace_reader(task.file.reader)
    with plugin_code(type(reader).__module__):
        trace = reader.read(task.file.path, part=task.part, allow_truncated=task.options.allow_truncated)
        with closed_at_end(_PartWriter(task)) as writer:
            for rows in trace.batches:
                writer.add(rows)
    read = writer.read
    for name in ("facts", "told", "dropped", "cut", "device_rows_in_order", "device_steps", "notes"):
        setattr(read, name, getattr(trace, name))
    file = task.folder / f"{task.index:03d}{SUFFIX}"
    write_part(file, read)
    return summary(file, read, trace.base_ns)


def _communicates_itself(name: str) -> bool:
    """Whether a host row is a transfer, not the call that asks for one."""
    told = classify.collective_name(name)
    return name.startswith("gloo:") or (told is not None and told.library in ("xla", "mpi"))
