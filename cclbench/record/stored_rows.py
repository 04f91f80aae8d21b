# SPDX-License-Identifier: Apache-2.0
"""Result rows that lie in a Parquet file: few of them are in memory at a time."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from itertools import accumulate
from pathlib import Path
from typing import Final
from weakref import finalize

import pyarrow as pa
import pyarrow.parquet as pq

from cclbench.ground.scratch import temporary
from cclbench.record.files import check_table, parquet_writer, reading, whole
from cclbench.record.rows import COMPACT, WORDS

IN_MEMORY: Final = 1 << 18
"""Rows up to which a table of results is held in memory, some 22 MB."""
ROW_GROUP: Final = 1 << 16
"""Rows of a larger one that are in memory at a time."""
NO_ROWS: Final = COMPACT.empty_table()
_FILE: Final = "rows.parquet"


class StoredRows:
    """Rows of a file of `rows.COMPACT`, read a row group at a time: what of a `pa.Table` `Results` asks.

    `unneeded` is called once nobody has them any more.
    """

    def __init__(self, path: Path, unneeded: Callable[[], object] | None = None) -> None:
        check_table(path, COMPACT, WORDS)
        self._path = path
        # Open as long as there is one: a file that takes its place has other rows.
        self._file = pq.ParquetFile(
            pa.OSFile(os.fsencode(path)), read_dictionary=list(WORDS), page_checksum_verification=True
        )
        of = self._file.metadata
        groups = (of.row_group(group).num_rows for group in range(of.num_row_groups))
        self._ends: list[int] = list(accumulate(groups, initial=0))
        self._held: tuple[int, pa.Table] = -1, NO_ROWS
        if unneeded is not None:
            finalize(self, unneeded)

    def __len__(self) -> int:
        return self._ends[-1]

    def __getitem__(self, column: str) -> pa.ChunkedArray:
        with reading(self._path):
            return whole(self._file.read([column]), COMPACT, self._path)[column]

    def slice(self, first: int, rows: int) -> pa.Table:
        """So many rows from the `first` on, or those that there are."""
        end = min(first + rows, len(self))
        parts = [NO_ROWS]
        while first < end:
            group = bisect_right(self._ends, first) - 1
            begin = self._ends[group]
            parts.append(self._group(group).slice(first - begin, end - first))
            first += len(parts[-1])
        return pa.concat_tables(parts)

    def _group(self, group: int) -> pa.Table:
        if self._held[0] != group:
            self._held = -1, NO_ROWS  # before the next one is read
            with reading(self._path):
                self._held = group, whole(self._file.read_row_group(group), COMPACT, self._path)
        return self._held[1]


def rows_at(path: Path) -> pa.Table | StoredRows:
    """The rows of a file: in memory up to `IN_MEMORY` of them."""
    rows = StoredRows(path)
    return rows if len(rows) > IN_MEMORY else rows.slice(0, IN_MEMORY)


def joined(parts: Iterable[pa.Table]) -> pa.Table | StoredRows:
    """The rows of those tables of `rows.COMPACT`, one after another: more than `IN_MEMORY` lie in a file."""
    waiting = [NO_ROWS]
    with ExitStack() as kept:
        file = None
        for part in parts:
            waiting.append(part)
            if sum(map(len, waiting)) > IN_MEMORY:
                if file is None:
                    folder = kept.enter_context(temporary())
                    file = kept.enter_context(parquet_writer(folder / _FILE, COMPACT))
                file.write_table(_one(waiting), ROW_GROUP)
                waiting = [NO_ROWS]
        if file is None:
            return _one(waiting)
        file.write_table(_one(waiting), ROW_GROUP)
        file.close()
        return StoredRows(folder / _FILE, kept.pop_all().close)


def _one(tables: Iterable[pa.Table]) -> pa.Table:
    """The tables as one, each word once."""
    return pa.concat_tables(tables).unify_dictionaries()
