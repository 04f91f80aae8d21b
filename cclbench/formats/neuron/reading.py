# SPDX-License-Identifier: Apache-2.0
"""Rows of a device profile of Neuron Explorer, by the SDK's profile schema reference.

Instructions of an engine are kernels on that engine's stream, but for those that wait: semaphores and drains
are synchronisation.  DMA transfers are copies, a stream a queue; collective operations (`CcOp`) are kernels
on their own stream.  Times are in ns of the device's clock.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cclbench.formats import Names, Payload, Rows, Trace
from cclbench.formats.table_damage import name_damage
from cclbench.formats.trace import LATEST_NS, impossible_value
from cclbench.ground.errors import InputError
from cclbench.ground.intervals import Int64
from cclbench.record.facts import TraceFacts
from cclbench.record.files import parquet_file

_AGAIN: Final = "process the profile again: neuron-explorer view"
_ROWS: Final = 1 << 16
_TIMES: Final = ("start_ts", "end_ts")
_WAITS: Final = re.compile(r"SEMAPHORE|^DRAIN$", re.IGNORECASE)
_CHIPS: Final = {"trn1": "Trainium1", "trn1n": "Trainium1", "trn2": "Trainium2", "trn2u": "Trainium2"}
"""Accelerators by the instance type's family."""
_LARGEST: Final = 1 << 60
_TEXTS: Final = ("operation", "algorithm", "engine", "opcode", "queue_name", "dtype", "replica_group")
_NUMBERS: Final = ("pcore_idx", "raw_flops", "hbm_read_bytes", "hbm_write_bytes", "input_size", "output_size")


def read_profile(path: Path) -> Trace:
    """A rank, which is one NeuronCore."""
    trace = Trace(batches=iter(()), device_rows_in_order=False)
    metadata = _metadata(path.with_name("Metadata.parquet"))
    family = str(metadata.get("instance_type") or "").partition(".")[0].lower()
    core = metadata.get("neuroncore_idx")
    trace.facts = TraceFacts(
        producer="neuron-explorer",
        producer_version=_word(metadata.get("explorer_version")),
        vendor="aws",
        device_name=_CHIPS.get(family),
        library_version=_word(metadata.get("collectives_version")),
    )
    if metadata.get("is_simulation") is True:
        trace.notes.append("the profile is a simulation of the compiler, not a measurement")
    trace.batches = _Profile(path, trace, core if isinstance(core, int) and 0 <= core < 1 << 15 else 0).rows()
    return trace


class _Profile:
    def __init__(self, path: Path, trace: Trace, core: int) -> None:
        self.path, self.trace, self.core = path, trace, core
        self.names = {kind: Names() for kind in ("kernel", "sync", "copy")}
        self.tracks: dict[str, int] = {}
        self.kernels = 0

    def rows(self) -> Iterator[Rows]:
        """Collectives first: their payloads refer to the kernels' numbers."""
        dropped = Counter[str]()
        for table, columns, read in (
            ("CcOp", ("operation", "algorithm", "stream_id"), self._collectives),
            ("Instruction", ("engine", "opcode"), self._instructions),
            ("DmaPacketAggregated", ("queue_name", "transfer_bytes"), self._transfers),
        ):
            for file in _files(self.path.parent, table):
                for batch, where in _batches(file, (*_TIMES, *columns)):
                    timed = batch.filter(pc.and_(batch["start_ts"].is_valid(), batch["end_ts"].is_valid()))
                    dropped["row without a time"] += len(batch) - len(timed)
                    yield from read(timed, where)
        self.trace.dropped = +dropped

    def _instructions(self, batch: pa.RecordBatch, where: str) -> Iterator[Rows]:
        opcodes = _texts(batch, "opcode").dictionary_encode()
        waits = np.array([bool(_WAITS.search(word)) for word in opcodes.dictionary.to_pylist()], np.bool_)
        waiting = waits[np.asarray(opcodes.indices)] if len(batch) else np.zeros(0, np.bool_)
        for kind, chosen in (("kernel", ~waiting), ("sync", waiting)):
            part = batch.filter(pa.array(chosen))
            if not len(part):
                continue
            engine = _texts(part, "engine")
            if "pcore_idx" in part.schema.names:
                core = part["pcore_idx"].fill_null(0).cast(pa.string())
                engine = pc.binary_join_element_wise(core, engine, " ")
            more: dict[str, Any] = {}
            if kind == "kernel":
                more["flops"] = _amounts(part, "raw_flops", np.float64)
                more["hbm_bytes"] = _sums(part, ("hbm_read_bytes", "hbm_write_bytes"))
                self.kernels += len(part)
            yield self._timed_rows(kind, part, _texts(part, "opcode"), engine, where, **more)

    def _transfers(self, batch: pa.RecordBatch, where: str) -> Iterator[Rows]:
        queue = _texts(batch, "queue_name")
        size = _amounts(batch, "transfer_bytes", np.int64)
        yield self._timed_rows("copy", batch, queue, queue, where, bytes=size)

    def _collectives(self, batch: pa.RecordBatch, where: str) -> Iterator[Rows]:
        stream = pc.binary_join_element_wise("collectives", batch["stream_id"].cast(pa.string()), " ")
        rows = self._timed_rows("kernel", batch, _texts(batch, "operation"), stream, where)
        for row in batch.to_pylist():
            self.trace.stated_payloads.add_payload(_payload(row), row=self.kernels)
            self.kernels += 1
        yield rows

    def _timed_rows(
        self, kind: str, batch: pa.RecordBatch, name: Any, stream: Any, where: str, **more: Any
    ) -> Rows:
        start, end = (_integers(batch, column, where) for column in _TIMES)
        wrong = (start < 0) | (end < start) | (end > LATEST_NS)
        if wrong.any():
            i = int(np.argmax(wrong))
            raise impossible_value(f"time: from {start[i]} to {end[i]} ns", where, _AGAIN)
        words, streams = (column.dictionary_encode() for column in (name, stream))
        names = self.names[kind]
        codes = np.array([names[word] for word in words.dictionary.to_pylist()], np.int32)
        numbers = [self.tracks.setdefault(s, len(self.tracks)) for s in streams.dictionary.to_pylist()]
        return Rows(
            kind=kind,
            side="device",
            names=names,
            codes=codes[np.asarray(words.indices)],
            start_ns=start,
            dur_ns=end - start,
            track=np.array(numbers, np.int64)[np.asarray(streams.indices)],
            device=pa.array(np.full(len(batch), self.core, np.int16)),
            **more,
        )


def _payload(row: dict[str, Any]) -> Payload:
    from cclbench.classify import kind_of

    groups = _replica_groups(row.get("replica_group"))
    sizes = {len(group) for group in groups}
    return Payload(
        source="kernel",
        collective=kind_of(str(row["operation"])),
        library="custom",
        in_bytes=_size(row.get("input_size")),
        out_bytes=_size(row.get("output_size")),
        dtype=_word(row.get("dtype")),
        group_size=sizes.pop() if len(sizes) == 1 else None,
        ranks=tuple(groups[0]) if len(groups) == 1 else None,
    )


def _replica_groups(text: object) -> list[list[int]]:
    """The groups of `[[0, 1], [2, 3]]`; none if it is no such list."""
    try:
        groups = json.loads(str(text)[: 1 << 20])
    except (ValueError, RecursionError):
        return []
    valid = isinstance(groups, list) and all(
        isinstance(group, list) and group and all(type(r) is int and 0 <= r < 1 << 31 for r in group)
        for group in groups
    )
    return groups if valid else []


def _size(value: object) -> int | None:
    return value if type(value) is int and 0 <= value <= _LARGEST else None


def _word(value: object) -> str | None:
    return value[:60] if isinstance(value, str) and value else None


def _texts(batch: pa.RecordBatch, column: str) -> pa.Array:
    return batch[column].cast(pa.string()).fill_null(f"(no {column})")


def _integers(batch: pa.RecordBatch, column: str, where: str) -> Int64:
    if not pa.types.is_integer(batch[column].type):
        raise InputError(f"column {column} is not of integers", where=where, hint=_AGAIN)
    numbers: Int64 = batch[column].cast(pa.int64()).to_numpy(zero_copy_only=False)
    return numbers


def _amounts(batch: pa.RecordBatch, column: str, kind: type) -> pa.Array | None:
    """Amounts of 0 or more; null for others. None without such a column."""
    if column not in batch.schema.names:
        return None
    numbers = batch[column].cast(pa.float64())
    fine = pc.and_(pc.greater_equal(numbers, 0.0), pc.less_equal(numbers, float(_LARGEST)))
    return pc.if_else(fine.fill_null(False), numbers, None).cast(pa.from_numpy_dtype(kind))


def _is_text(kind: pa.DataType) -> bool:
    value = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(pa.types.is_string(value) or pa.types.is_large_string(value) or pa.types.is_null(value))


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_null(kind))


def _sums(batch: pa.RecordBatch, columns: tuple[str, ...]) -> pa.Array | None:
    """The sum of amounts, null where one is unknown."""
    amounts = [_amounts(batch, column, np.int64) for column in columns]
    return None if any(amount is None for amount in amounts) else pc.add(*amounts)


def _files(folder: Path, table: str) -> Iterator[Path]:
    """The file of a table, or its numbered parts in order."""
    if (path := folder / f"{table}.parquet").is_file():
        yield path
    for number in count():
        if not (part := folder / f"{table}_{number}.parquet").is_file():
            return
        yield part


def _batches(path: Path, required: tuple[str, ...]) -> Iterator[tuple[pa.RecordBatch, str]]:
    """Batches with where they are; `InputError` if the file is damaged or lacks a column."""
    with name_damage(path, _AGAIN), parquet_file(path) as file:
        missing = [name for name in required if name not in file.schema_arrow.names]
        if missing:
            raise InputError(f"has no column {missing[0]}", where=str(path), hint=_AGAIN)
        used_columns = {*required, *_TEXTS, *_NUMBERS}
        columns = [name for name in file.schema_arrow.names if name in used_columns]
        for name in columns:
            kind, expected = file.schema_arrow.field(name).type, "texts" if name in _TEXTS else "numbers"
            if not (_is_text(kind) if name in _TEXTS else _is_number(kind)):
                raise InputError(f"column {name} is not of {expected}", where=str(path), hint=_AGAIN)
        rows = 0
        for batch in file.iter_batches(_ROWS, columns=columns, use_threads=False):
            batch.validate(full=True)
            yield batch, f"{path}: after row {rows:,}"
            rows += len(batch)


def _metadata(path: Path) -> dict[str, Any]:
    with name_damage(path, _AGAIN), parquet_file(path) as file:
        first = next(file.iter_batches(1), None)
        if first is None or not len(first):
            return {}
        first.validate(full=True)
        row: dict[str, Any] = first.to_pylist()[0]
        return row
