# SPDX-License-Identifier: Apache-2.0
"""Columns of Arrow tables as numpy arrays."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
import pyarrow as pa

from cclbench.disk_columns import DiskColumn, pieces
from cclbench.intervals import Index, Int64, Mask

_ROWS = 1 << 18
"""Rows of a column of words that are numbered at once."""


def spans(batch: pa.RecordBatch | pa.Table) -> tuple[Int64, Int64]:
    """Start and end of each row, int64 ns."""
    starts = batch["start_ns"].to_numpy()
    return starts, starts + batch["dur_ns"].to_numpy()


def codes(batch: pa.RecordBatch | pa.Table, column: str) -> tuple[Int64, list[str | None]]:
    """A dictionary column as word numbers, shape (rows,), and the words; a null's word is None."""
    values = batch[column]
    if isinstance(values, pa.ChunkedArray):
        values = values.unify_dictionaries().combine_chunks()
    words = [*values.dictionary.to_pylist(), None]
    return values.indices.cast(pa.int64()).fill_null(len(words) - 1).to_numpy(), words


def places(batch: pa.RecordBatch | pa.Table, column: str, vocabulary: Sequence[str], otherwise: int) -> Int64:
    """A dictionary column as indices into a vocabulary."""
    numbers, words = codes(batch, column)
    return np.array([vocabulary.index(word) if word else otherwise for word in words], np.int64)[numbers]


def with_words(table: pa.Table, column: str, wanted: Collection[str]) -> pa.Table:
    """The rows whose word in a dictionary column is one of these."""
    numbers, words = codes(table, column)
    return table.filter(np.isin(numbers, [i for i, word in enumerate(words) if word in wanted]))


def is_category(batch: pa.RecordBatch | pa.Table, category: str) -> Mask:
    """Which rows are of that category, shape (rows,)."""
    numbers, words = codes(batch, "category")
    return np.isin(numbers, [i for i, word in enumerate(words) if word == category])


class Words:
    """A column of words of many batches, as numbers that wait on disk; words are numbered as they occur."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._column = DiskColumn(np.int32)
        self._words: list[str | None] | None = None

    @staticmethod
    def of(table: pa.Table, column: str) -> Words:
        """Those of a whole table."""
        found = Words()
        for batch in table.select([column]).to_batches():
            for rows in pieces(len(batch), most=_ROWS):
                found.append(batch.slice(rows.start, rows.stop - rows.start), column)
        return found

    def append(self, batch: pa.RecordBatch, column: str) -> None:
        """Add the rows of a batch."""
        numbers, words = codes(batch, column)
        known, self._words = self._numbers, None
        place = [-1 if word is None else known.setdefault(word, len(known)) for word in words]
        self._column.append(np.array(place, np.int32)[numbers])

    @property
    def words(self) -> list[str | None]:
        """The words; the last one, None, is a null's."""
        if self._words is None:
            self._words = [*self._numbers, None]
        return self._words

    def __getitem__(self, rows: Int64 | Index | slice) -> Index:
        """The number of the word of each of those rows."""
        found = self._column.values()[rows]
        return np.where(found < 0, len(self._numbers), found)

    def texts(self, rows: Index) -> list[str | None]:
        """The word of each of those rows."""
        return [self.words[number] for number in self[rows].tolist()]

    def each(self, of_words: Sequence[bool]) -> Mask:
        """The value of each row's word."""
        values = np.array(of_words, np.bool_)
        parts = [values[self[rows]] for rows in pieces(len(self._column), most=_ROWS)]
        return np.concatenate([np.empty(0, np.bool_), *parts])

    def release(self) -> None:
        """Let go of the rows that were read."""
        self._column.release()
