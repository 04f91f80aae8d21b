# SPDX-License-Identifier: Apache-2.0
"""Change traces while they are read: the rows of any reader pass through a `TraceChange`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cclbench.formats import DeviceStep, Names, Part, Payload, Reader, Rows, StatedPayloads, Trace
from cclbench.ground.intervals import Int64
from cclbench.normalize.device_rows import DEVICE_WORK
from cclbench.record.facts import TraceFacts

DAY_NS: Final = 86_400 * 10**9
_ROWS_PER_BATCH: Final = 997
"""Rows per batch after splitting: not a divisor of readers' batch sizes."""
_REPEAT_STRIDE: Final = 20
"""One row in this many is repeated: if more were, the file would be taken for two joined traces."""
_UNUSED_TRACK: Final = 1 << 40
"""Stream or thread id that no trace uses."""
_RATE_UNITS: Final = ("B/s", "W")


class TraceChange:
    """A change of a trace as it is read; methods that are not overridden change nothing."""

    def members_read(self, members: list[str]) -> list[str]:
        """The members of a file to read."""
        return members

    def change_rows(self, rows: Rows) -> Iterator[Rows]:
        """The batches to use in place of a batch."""
        yield rows

    def added_rows(self, batches: Mapping[str, Rows], span_ns: tuple[int, int]) -> Iterator[Rows]:
        """Rows to append: `batches` has a batch of each kind, `span_ns` is the span of the device's work."""
        del batches, span_ns
        return iter(())

    def change_samples(self, table: pa.Table) -> pa.Table:
        """Change a batch of `COUNTERS`."""
        return table

    def change_facts(self, facts: TraceFacts) -> TraceFacts:
        """Change the facts that the trace states."""
        return facts

    def change_payload(self, payload: Payload) -> Payload:
        """Change a collective's payload."""
        return payload

    def change_ordinals(self, row: Int64) -> Int64:
        """New ordinals of kernels, from those before the change."""
        return row

    def change_time(self, ns: Int64) -> Int64:
        """Change times, ns, to which the base time is not yet added."""
        return ns

    def change_base(self, ns: int) -> int:
        """Change the base time at the end of the trace, ns."""
        return ns


@dataclass(frozen=True)
class ChangedReader:
    """A reader whose traces each pass through a new change; each member is read as one part."""

    reader: Reader
    change: Callable[[Path], TraceChange]
    """Makes the change for a file."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self.reader, name)

    def parts(self, path: Path) -> list[Part]:
        """The members of a file, one part each."""
        members = dict.fromkeys(part.member for part in self.reader.parts(path))
        return [Part(member) for member in self.change(path).members_read(list(members))]

    def read(self, path: Path, *, part: Part, allow_truncated: bool) -> Trace:
        """The reader's trace, changed."""
        change = self.change(path)
        trace = self.reader.read(path, part=part, allow_truncated=allow_truncated)
        changed = replace(trace)
        changed.batches = _change_batches(trace, changed, change)
        return changed


def _change_batches(trace: Trace, changed: Trace, change: TraceChange) -> Iterator[Rows | pa.Table]:
    """The changed batches; after the last, the other fields of `changed` are set."""
    batch_by_kind: dict[str, Rows] = {}
    begins, ends = list[int](), list[int]()
    for batch in trace.batches:
        if not isinstance(batch, Rows):
            has_times = "start_ns" in batch.column_names  # buffers of programs have none
            yield change.change_samples(batch) if has_times else batch
            continue
        yield from change.change_rows(batch)
        batch_by_kind.setdefault(batch.kind, batch)
        if batch.side == "device" and batch.kind in DEVICE_WORK and len(batch):
            begins.append(int(batch.start_ns.min()))
            ends.append(int((batch.start_ns + batch.dur_ns).max()))
    if begins:
        yield from change.added_rows(batch_by_kind, (min(begins), max(ends)))
    for field in fields(Trace):
        if field.name != "batches":
            setattr(changed, field.name, getattr(trace, field.name))
    changed.facts = change.change_facts(trace.facts)
    changed.stated_payloads = _change_payloads(trace.stated_payloads, change)
    changed.base_ns = None if trace.base_ns is None else change.change_base(trace.base_ns)
    changed.device_steps = [_change_step(step, change) for step in trace.device_steps]


def _change_payloads(stated: StatedPayloads, change: TraceChange) -> StatedPayloads:
    """Changed payloads: entries of kernels at their new ordinals, those of calls at new times."""
    changed = StatedPayloads()
    payloads = [change.change_payload(payload) for payload in stated.payloads]
    row, track, start, end, seq, code = (
        np.asarray(getattr(stated, name), np.int64)
        for name in ("row", "track", "start_ns", "end_ns", "seq", "code")
    )
    is_kernel = row >= 0
    row = np.where(is_kernel, change.change_ordinals(np.maximum(row, 0)), row)
    start, end = (np.where(is_kernel, ns, change.change_time(ns)) for ns in (start, end))
    for i in range(len(code)):
        changed.add_payload(
            payloads[code[i]],
            row=int(row[i]),
            track=int(track[i]),
            start_ns=int(start[i]),
            end_ns=int(end[i]),
            seq=None if seq[i] < 0 else int(seq[i]),
        )
    return changed


def _change_step(step: DeviceStep, change: TraceChange) -> DeviceStep:
    start, end = change.change_time(np.array([step.start_ns, step.end_ns], np.int64)).tolist()
    return msgspec.structs.replace(step, start_ns=start, end_ns=end)


class ShiftedTimes(TraceChange):
    """Shift all times by a little more than a day."""

    by_ns: Final = DAY_NS + 123_456_789

    def change_time(self, ns: Int64) -> Int64:
        """See `TraceChange`."""
        return ns + self.by_ns

    def change_rows(self, rows: Rows) -> Iterator[Rows]:
        """See `TraceChange`."""
        yield replace(rows, start_ns=self.change_time(rows.start_ns))

    def change_samples(self, table: pa.Table) -> pa.Table:
        """See `TraceChange`."""
        return _change_sample_times(table, self.change_time)


class ScaledTimes(TraceChange):
    """Double all times, relative to an origin that all ranks share."""

    factor: Final = 2

    def __init__(self, origin_ns: int) -> None:
        self._origin_ns = origin_ns

    def change_time(self, ns: Int64) -> Int64:
        """See `TraceChange`."""
        return ns * self.factor

    def change_base(self, ns: int) -> int:
        """See `TraceChange`."""
        return ns * self.factor - self._origin_ns * (self.factor - 1)

    def change_rows(self, rows: Rows) -> Iterator[Rows]:
        """See `TraceChange`."""
        yield replace(rows, start_ns=rows.start_ns * self.factor, dur_ns=rows.dur_ns * self.factor)

    def change_samples(self, table: pa.Table) -> pa.Table:
        """See `TraceChange`: counts stay, rates are halved."""
        table = _change_sample_times(table, self.change_time)
        rate = pc.is_in(table["unit"].cast(pa.string()), pa.array(_RATE_UNITS))
        value = pc.if_else(pc.fill_null(rate, False), pc.divide(table["value"], self.factor), table["value"])
        return table.set_column(table.column_names.index("value"), table.schema.field("value"), value)


def _change_sample_times(table: pa.Table, change_time: Callable[[Int64], Int64]) -> pa.Table:
    for name in ("start_ns", "end_ns"):
        column = table[name].combine_chunks()
        times = pa.array(
            change_time(column.fill_null(0).to_numpy(zero_copy_only=False)), mask=column.is_null()
        )
        table = table.set_column(table.column_names.index(name), table.schema.field(name), times)
    return table


class ReversedRows(TraceChange):
    """Reverse the rows of each batch."""

    def __init__(self) -> None:
        self._kernels = 0
        self._first, self._length = [0], [0]

    def change_rows(self, rows: Rows) -> Iterator[Rows]:
        """See `TraceChange`."""
        if rows.kind == "kernel":
            self._first.append(self._kernels)
            self._length.append(len(rows))
            self._kernels += len(rows)
        yield rows.take_rows(np.arange(len(rows), dtype=np.int64)[::-1])

    def change_ordinals(self, row: Int64) -> Int64:
        """See `TraceChange`."""
        first, length = (np.array(column, np.int64) for column in (self._first, self._length))
        batch = np.searchsorted(first, row, side="right") - 1
        return 2 * first[batch] + length[batch] - 1 - row


class SplitBatches(TraceChange):
    """Split batches into smaller ones."""

    def change_rows(self, rows: Rows) -> Iterator[Rows]:
        """See `TraceChange`."""
        for begin in range(0, len(rows), _ROWS_PER_BATCH):
            yield rows.take_rows(np.arange(begin, min(begin + _ROWS_PER_BATCH, len(rows)), dtype=np.int64))


class RepeatedRows(TraceChange):
    """Repeat some device rows, as an exporter does that writes a buffer twice."""

    def __init__(self) -> None:
        self._repeated: list[tuple[int, int]] = [(0, 0)]
        """Kernels read and kernels repeated so far, after each batch."""
        self._kernels = 0

    def change_rows(self, rows: Rows) -> Iterator[Rows]:
        """See `TraceChange`."""
        yield rows
        again = np.arange(_REPEAT_STRIDE - 1, len(rows), _REPEAT_STRIDE, dtype=np.int64)
        if rows.side == "device" and rows.kind in DEVICE_WORK and len(again):
            yield rows.take_rows(again)
            if rows.kind == "kernel":
                self._kernels += len(rows)
                self._repeated.append((self._kernels, self._repeated[-1][1] + len(again)))

    def change_ordinals(self, row: Int64) -> Int64:
        """See `TraceChange`: shifted by the repeated rows before each."""
        kernels, repeated = (np.array(column, np.int64) for column in zip(*self._repeated, strict=True))
        return row + repeated[np.searchsorted(kernels, row, side="right") - 1]


class IdleStream(TraceChange):
    """Add a stream that only waits, during the whole capture."""

    def added_rows(self, batches: Mapping[str, Rows], span_ns: tuple[int, int]) -> Iterator[Rows]:
        """See `TraceChange`."""
        yield _one_row("sync", "device", "Stream Wait Event", batches, *span_ns)


class IdleThread(TraceChange):
    """Add a thread that runs one operator during the whole capture and launches nothing."""

    def added_rows(self, batches: Mapping[str, Rows], span_ns: tuple[int, int]) -> Iterator[Rows]:
        """See `TraceChange`."""
        yield _one_row("op", "host", "another_library::wait", batches, *span_ns)


def _one_row(kind: str, side: str, name: str, batches: Mapping[str, Rows], begin: int, end: int) -> Rows:
    names = batches[kind].names if kind in batches else Names()
    return Rows(
        kind=kind,
        side=side,
        names=names,
        codes=np.array([names[name]], np.int32),
        start_ns=np.array([begin], np.int64),
        dur_ns=np.array([end - begin], np.int64),
        track=np.array([_UNUSED_TRACK], np.int64),
    )


class DoubledGroups(TraceChange):
    """List process groups again under other names."""

    def change_facts(self, facts: TraceFacts) -> TraceFacts:
        """See `TraceChange`."""
        copies = (msgspec.structs.replace(group, name=f"{group.name} again") for group in facts.groups)
        return msgspec.structs.replace(facts, groups=(*facts.groups, *copies))


class MirroredRanks(TraceChange):
    """Number the `world` ranks in reverse; `resolve_rank` gives a trace's rank from its facts."""

    def __init__(self, resolve_rank: Callable[[TraceFacts], int], world: int) -> None:
        self._resolve_rank, self._last = resolve_rank, world - 1

    def change_facts(self, facts: TraceFacts) -> TraceFacts:
        """See `TraceChange`."""
        groups = tuple(
            msgspec.structs.replace(group, ranks=self._mirror_ranks(group.ranks)) for group in facts.groups
        )
        return with_rank(
            msgspec.structs.replace(facts, groups=groups), self._last - self._resolve_rank(facts)
        )

    def change_payload(self, payload: Payload) -> Payload:
        """See `TraceChange`."""
        source, target = (
            None if rank is None else self._last - rank for rank in (payload.src_rank, payload.dst_rank)
        )
        return msgspec.structs.replace(
            payload, ranks=self._mirror_ranks(payload.ranks), src_rank=source, dst_rank=target
        )

    def _mirror_ranks(self, ranks: Sequence[int] | None) -> tuple[int, ...] | None:
        return None if ranks is None else tuple(sorted(self._last - rank for rank in ranks))


class StatedRank(TraceChange):
    """State the rank of a trace in its facts."""

    def __init__(self, resolve_rank: Callable[[TraceFacts], int]) -> None:
        self._resolve_rank = resolve_rank

    def change_facts(self, facts: TraceFacts) -> TraceFacts:
        """See `TraceChange`."""
        return with_rank(facts, self._resolve_rank(facts))


class SingleMemset(TraceChange):
    """Replace all rows by one memset."""

    def __init__(self, rank: int) -> None:
        self._rank = rank

    def members_read(self, members: list[str]) -> list[str]:
        """See `TraceChange`: only the first."""
        return members[:1]

    def change_rows(self, rows: Rows) -> Iterator[Rows]:
        """See `TraceChange`."""
        del rows
        return iter(())

    def added_rows(self, batches: Mapping[str, Rows], span_ns: tuple[int, int]) -> Iterator[Rows]:
        """See `TraceChange`."""
        yield _one_row("memset", "device", "Memset (Device)", batches, span_ns[0], span_ns[0] + 1000)

    def change_facts(self, facts: TraceFacts) -> TraceFacts:
        """See `TraceChange`."""
        return with_rank(msgspec.structs.replace(facts, communicators=(), whole_graphs=None), self._rank)


def with_rank(facts: TraceFacts, rank: int) -> TraceFacts:
    """The facts with `rank` stated."""
    return msgspec.structs.replace(facts, rank=rank, rank_source="selfcheck")
