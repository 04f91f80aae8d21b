# SPDX-License-Identifier: Apache-2.0
"""Stream one file, or one part of it, to Parquet; columns that need the whole rank are left pending."""

from __future__ import annotations

import re
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
from cclbench.ground.evidence_schema import EVIDENCE
from cclbench.ground.registry import plugin_code
from cclbench.ground.schema import KINDS, SIDES
from cclbench.ingestion.part_file import SUFFIX, PartRead, write_part
from cclbench.ingestion.source import SourceFile
from cclbench.normalize import steps
from cclbench.normalize.device_rows import DEVICE_WORK
from cclbench.normalize.rows import Categories, events_table
from cclbench.record.facts import TraceFacts
from cclbench.record.files import EventFile, TableFile, closed_at_end
from cclbench.record.manifest import Options

ROW_GROUP: Final = 1 << 16
_STARTS: Final = re.compile("P?MPI_I(?!.*send)")
"""Names of MPI's calls that start a receive or a collective, and return before it."""
PENDING: Final = ".pending"
"""Mark of files whose step and collective columns are still to be filled."""


@dataclass(frozen=True, slots=True)
class PartTask:
    """Read `part` of a file, number `index` of its member, into `folder`."""

    file: SourceFile
    part: Part
    index: int
    folder: Path
    options: Options

    def inflated_parts(self) -> Iterator[PartTask]:
        """Tasks of a stream's parts, each as soon as its inflated bytes are on disk."""
        self.folder.mkdir(parents=True, exist_ok=True)
        parts = trace_reader(self.file.reader).inflate_parts(self.file.path, self.folder)
        return (replace(self, part=part, index=index) for index, part in enumerate(parts))


class PartDone(msgspec.Struct, frozen=True):
    """Summary of a part that a run needs before the parts of its rank are joined."""

    file: Path
    """The part file, which holds the rest."""
    facts: TraceFacts
    holds_rows: bool
    worked: bool
    """Whether it shows work of a device: device rows or graphs without rows."""
    cut: Cut | None
    base_ns: int | None = None
    """Base time to add to all times of its member's parts, if it states one."""


def read_summary(file: Path, part: PartRead, base_ns: int | None = None) -> PartDone:
    """Summary of a part that is on disk."""
    worked = any(part.rows[kind] for kind in DEVICE_WORK) or bool(part.facts.whole_graphs)
    return PartDone(file, part.facts, part.rows.total() > 0, worked, part.cut, base_ns)


@dataclass(slots=True)
class _Kind:
    """Rows of one kind and side, buffered up to a row group."""

    categories: Categories
    file: EventFile
    batches: list[Rows] = field(default_factory=list)
    gathered: int = 0


class _PartWriter:
    def __init__(self, task: PartTask) -> None:
        self.task = task
        self.read = PartRead()
        self.kinds: dict[tuple[str, str], _Kind] = {}
        self.patterns = steps.step_patterns(task.options.step_annotation)
        self.evidence: dict[str, TableFile] = {}

    def add(self, rows: Rows | pa.Table) -> None:
        if not isinstance(rows, Rows):
            self._put_evidence(rows)
            return
        self._require_valid(rows)
        self.read.rows[rows.kind] += len(rows)
        if rows.side == "device" and rows.kind in DEVICE_WORK:
            self._put_rows(rows, pending=True)
            return
        if rows.kind == "op":
            self._widen_span(rows)
            is_transfer = np.array([_communicates_itself(name) for name in rows.names], np.bool_)[rows.codes]
            if is_transfer.any():
                self._put_rows(rows.take_rows(np.flatnonzero(is_transfer)), pending=True)
                rows = rows.take_rows(np.flatnonzero(~is_transfer))
        elif rows.kind == "annotation" and rows.side == "host":
            self._collect_annotations(rows)
        self._put_rows(rows, pending=False)

    def _require_valid(self, rows: Rows) -> None:
        """An error that names the reader for an unknown kind or side, and for times that are not whole."""
        gave = f"the reader {self.task.file.reader} gave"
        for word, value, vocabulary in (("kind", rows.kind, KINDS), ("side", rows.side, SIDES)):
            if value not in vocabulary:
                raise CclbenchError(f"{gave} rows of {word} {value!r}", hint=near(value, vocabulary))
        for column in ("start_ns", "dur_ns"):
            if (kept := getattr(rows, column).dtype).kind not in "iu":
                hint = "times are whole nanoseconds: round those of the file"
                raise CclbenchError(f"{gave} {column} of {kept}", hint=hint)

    def _put_evidence(self, table: pa.Table) -> None:
        name = table.schema.metadata[b"cclbench.table"].decode()
        if name not in self.evidence:
            path = self.task.folder / f"{name}-{self.task.index:03d}{PENDING}.parquet"
            self.evidence[name] = TableFile(path, EVIDENCE[name])
            self.read.evidence.append(path)
        self.evidence[name].write(table)

    def _put_rows(self, rows: Rows, *, pending: bool) -> None:
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
            self._flush_rows(kind)

    def _flush_rows(self, kind: _Kind) -> None:
        if not kind.batches:
            return
        written = events_table(kind.batches, kind.categories)
        if kind.batches[0].kind == "kernel":
            self._weigh_unclassified(kind)
        kind.file.write(written)
        kind.batches, kind.gathered = [], 0

    def _weigh_unclassified(self, kind: _Kind) -> None:
        """Add up the time of unclassified kernels by name, and of all kernels."""
        names = list(kind.batches[0].names)
        total = np.zeros(len(names), np.int64)
        for rows in kind.batches:
            np.add.at(total, rows.codes, rows.dur_ns)
        self.read.kernel_ns[""] += int(total.sum())
        for code in np.flatnonzero(np.array(kind.categories.unclassified)).tolist():
            self.read.kernel_ns[names[code]] += int(total[code])

    def _collect_annotations(self, rows: Rows) -> None:
        names = list(rows.names)
        possible = [any(p.fullmatch(name) for p in self.patterns) for name in names]
        for i in np.flatnonzero(np.array(possible, np.bool_)[rows.codes]).tolist():
            start = int(rows.start_ns[i])
            end = start + int(rows.dur_ns[i])
            self.read.annotations.append(steps.Annotation(names[rows.codes[i]], start, end))

    def _widen_span(self, rows: Rows) -> None:
        begin, end = int(rows.start_ns.min()), int((rows.start_ns + rows.dur_ns).max())
        if self.read.op_span is not None:
            begin, end = min(begin, self.read.op_span[0]), max(end, self.read.op_span[1])
        self.read.op_span = begin, end

    def abandon(self) -> None:
        """Abandon all files after a failure."""
        for kind in self.kinds.values():
            kind.file.abandon()
        for file in self.evidence.values():
            file.abandon()

    def close(self) -> None:
        """Write the buffered rows and close all files."""
        for kind in self.kinds.values():
            self._flush_rows(kind)
            kind.file.close()
        for file in self.evidence.values():
            file.close()


def parts_of(file: SourceFile) -> list[Part]:
    """The parts of a trace file, at least one; `InputError` if it holds none."""
    reader = trace_reader(file.reader)
    with plugin_code(type(reader).__module__):
        parts = reader.parts(file.path)
    if not parts:
        raise InputError("holds no rows of any rank", where=str(file.path))
    return parts


def read_parts(task: PartTask) -> list[PartDone]:
    """Stream one part of a file to Parquet; for a stream, all its parts in turn."""
    if not task.part.stream:
        return [read_part(task)]
    done = []
    for part_task in task.inflated_parts():
        done.append(read_part(part_task))
        part_task.part.remove_inflated()
    return done


def read_part(task: PartTask) -> PartDone:
    """Stream one part of a file to Parquet, and its summary to a part file in the same folder."""
    reader = trace_reader(task.file.reader)
    with plugin_code(type(reader).__module__):
        trace = reader.read(task.file.path, part=task.part, allow_truncated=task.options.allow_truncated)
        with closed_at_end(_PartWriter(task)) as writer:
            for rows in trace.batches:
                writer.add(rows)
    read = writer.read
    stated = ("facts", "stated_payloads", "dropped", "cut")
    for name in (*stated, "device_rows_in_order", "device_steps", "notes"):
        setattr(read, name, getattr(trace, name))
    file = task.folder / f"{task.index:03d}{SUFFIX}"
    write_part(file, read)
    return read_summary(file, read, trace.base_ns)


def _communicates_itself(name: str) -> bool:
    """Whether a host row is the transfer itself, not a call that starts one."""
    if _STARTS.match(name):
        return False
    collective = classify.collective_name(name)
    return name.startswith("gloo:") or (collective is not None and collective.library in ("xla", "mpi"))
