# SPDX-License-Identifier: Apache-2.0
"""A rank whose columns of events are decoded once: a bounded part of them in memory, others on disk."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Final, NamedTuple
from weakref import finalize

import pyarrow as pa
import pyarrow.parquet as pq

from cclbench.disk_columns import making_room
from cclbench.record.files import opened_table, whole
from cclbench.record.manifest import RankEntry, StoredFile
from cclbench.record.rank import BATCH_ROWS, Rank
from cclbench.schema import EVENTS, OPERATORS

MOST_KEPT: Final = 16 << 20
"""Bytes of a rank's columns that are kept in memory; those that are read more than once wait on disk."""
SMALL_ROWS: Final = 8192
"""Rows of a file up to which all its columns are read at once: opening it again would take longer."""
_CELL: Final = 8
"""Bytes of a value at most: numbers, and codes of words."""


class _OnDisk(NamedTuple):
    """Where in the file of decoded columns one lies."""

    offset: int
    size: int


_Windows = list[pa.ChunkedArray | _OnDisk]
"""A column in stretches of `BATCH_ROWS` rows, each with the chunks that its dictionaries make."""


class RankOfKeptColumns(Rank):
    """A rank's tables for many readers of the same columns, who get the same batches as from a `Rank`."""

    def __init__(self, path: Path, entry: RankEntry, clock_residual_ns: float) -> None:
        super().__init__(path, entry, clock_residual_ns)
        self._room = MOST_KEPT
        self._kept: dict[str, dict[str, _Windows]] = {}
        self._read_before: set[tuple[str, str]] = set()

    def _batches(self, file: StoredFile, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        kept = self._kept.setdefault(file.path, {})
        lacking = [name for name in columns if name not in kept]
        if lacking and not self._read(file, lacking):
            yield from super()._batches(file, columns)
            return
        schema = pa.schema([EVENTS.field(name) for name in columns])
        for stretch in zip(*(kept[name] for name in columns), strict=True):
            yield from pa.Table.from_arrays(
                [self._column(own) for own in stretch], schema=schema
            ).to_batches()

    def operators(self, columns: Sequence[str] | None = None) -> pa.Table:
        """See `Rank`; read once, with all columns, where there is room for them."""
        if self._operators is None:
            return super().operators(columns)
        return self._operators if columns is None else self._operators.select(list(columns))

    @cached_property
    def _operators(self) -> pa.Table | None:
        size = self.entry.operators * len(OPERATORS) * _CELL
        if size > self._room:
            return None
        self._room -= size
        return super().operators()

    def _read(self, of: StoredFile, lacking: Sequence[str]) -> bool:
        """Read and keep those columns: where memory has no room, on disk, if they were read before."""
        kept, path = self._kept[of.path], self.path / of.path
        with opened_table(path, EVENTS, listed=of) as file:
            rows = file.metadata.num_rows
            if rows <= SMALL_ROWS:
                lacking = [name for name in EVENTS.names if name not in kept]
            size = rows * len(lacking) * _CELL
            in_memory = size <= self._room
            if in_memory:
                self._room -= size
            elif not self._read_before.issuperset(wanted := {(of.path, name) for name in lacking}):
                self._read_before |= wanted
                return False
            found: dict[str, _Windows] = {name: [] for name in lacking}
            for table in _stretches(file, lacking, path):
                for name, windows in found.items():
                    column = _contiguous(table[name])
                    windows.append(column if in_memory else self._written(column))
        kept |= found
        return True

    def _column(self, kept: pa.ChunkedArray | _OnDisk) -> pa.ChunkedArray:
        if not isinstance(kept, _OnDisk):
            return kept
        self._file.seek(kept.offset)
        return pa.ipc.open_stream(self._file.read(kept.size)).read_all()[0]

    def _written(self, column: pa.ChunkedArray) -> _OnDisk:
        sink = pa.BufferOutputStream()
        table = pa.table([column], ["column"])
        with pa.ipc.new_stream(sink, table.schema) as stream:
            stream.write_table(table)
        data = sink.getvalue()
        with making_room():
            offset = self._file.seek(0, os.SEEK_END)
            self._file.write(data)
            self._file.flush()
        return _OnDisk(offset, data.size)

    @cached_property
    def _file(self) -> IO[bytes]:
        file = TemporaryFile()  # noqa: SIM115 - it is closed with this object
        finalize(self, file.close)
        return file


def _stretches(file: pq.ParquetFile, columns: Sequence[str], path: Path) -> Iterator[pa.Table]:
    """The rows in tables of `BATCH_ROWS` each, of which a reader gives the parts between dictionaries."""
    parts: list[pa.RecordBatch] = []
    for batch in file.iter_batches(BATCH_ROWS, columns=list(columns)):
        parts.append(whole(batch, EVENTS, path))
        if sum(map(len, parts)) == BATCH_ROWS:
            yield pa.Table.from_batches(parts)
            parts = []
    if parts:
        yield pa.Table.from_batches(parts)


def _contiguous(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The column in one chunk, as it is read alone; one of words keeps a chunk a dictionary."""
    if column.num_chunks == 1 or pa.types.is_dictionary(column.type):
        return column
    return pa.chunked_array([column.combine_chunks()])
