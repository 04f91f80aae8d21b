# SPDX-License-Identifier: Apache-2.0
"""A rank whose columns of events are read once, as far as they fit into a bounded memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from cclbench.record.files import opened_table, whole
from cclbench.record.manifest import RankEntry
from cclbench.record.run import BATCH_ROWS, Rank
from cclbench.schema import EVENTS, OPERATORS

MOST_KEPT: Final = 64 << 20
"""Bytes of a rank's columns that are kept; the others are read each time."""
SMALL_ROWS: Final = 8192
"""Rows of a file up to which all its columns are read at once: opening it again would take longer."""
_CELL: Final = 8
"""Bytes of a value at most: numbers, and codes of words."""

_Windows = list[pa.ChunkedArray]
"""A column in stretches of `BATCH_ROWS` rows, each with the chunks that its dictionaries make."""


class RankOfKeptColumns(Rank):
    """A rank's tables for many readers of the same columns, who get the same batches as from a `Rank`."""

    def __init__(self, path: Path, entry: RankEntry, clock_residual_ns: float) -> None:
        super().__init__(path, entry, clock_residual_ns)
        self._room = MOST_KEPT
        self._kept: dict[Path, dict[str, _Windows]] = {}

    def _batches(self, path: Path, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        kept = self._kept.setdefault(path, {})
        lacking = [name for name in columns if name not in kept]
        if lacking and not self._read(path, lacking):
            yield from super()._batches(path, columns)
            return
        schema = pa.schema([EVENTS.field(name) for name in columns])
        for stretch in zip(*(kept[name] for name in columns), strict=True):
            yield from pa.Table.from_arrays(stretch, schema=schema).to_batches()

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

    def _read(self, path: Path, lacking: Sequence[str]) -> bool:
        """Read and keep those columns, where there is room for them."""
        kept = self._kept[path]
        with opened_table(path, EVENTS) as file:
            rows = file.metadata.num_rows
            if rows <= SMALL_ROWS:
                lacking = [name for name in EVENTS.names if name not in kept]
            size = rows * len(lacking) * _CELL
            if size > self._room:
                return False
            self._room -= size
            stretches = list(_stretches(file, lacking, path))
        for name in lacking:
            kept[name] = [_contiguous(table[name]) for table in stretches]
        return True


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
