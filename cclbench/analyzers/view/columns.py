# SPDX-License-Identifier: Apache-2.0
"""Columns of Arrow tables as NumPy arrays."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from cclbench.ground.intervals import Index, Int64, Mask
from cclbench.ground.schema import EVENTS

if TYPE_CHECKING:
    from cclbench.record.rank import Rank


def event_table(tables: Rank, kinds: Sequence[str], columns: Sequence[str]) -> pa.Table:
    """Those columns of all events of those kinds, in the order of `Rank.events`."""
    schema = pa.schema([EVENTS.field(name) for name in columns])
    return pa.Table.from_batches(tables.events(kinds, columns), schema)


def row_spans(batch: pa.RecordBatch | pa.Table) -> tuple[Int64, Int64]:
    """Start and end of each row, int64 ns, shape (rows,)."""
    starts = batch["start_ns"].to_numpy()
    return starts, starts + batch["dur_ns"].to_numpy()


def word_codes(batch: pa.RecordBatch | pa.Table, column: str) -> tuple[Int64, list[str | None]]:
    """A column as word codes, shape (rows,), and the words; the last word, None, is null."""
    values = batch[column]
    if isinstance(values, pa.ChunkedArray):
        values = values.chunk(0) if values.num_chunks == 1 else values.unify_dictionaries().combine_chunks()
    values = values.dictionary_encode()
    words = [*values.dictionary.to_pylist(), None]
    codes = values.indices if not values.null_count else values.indices.fill_null(len(words) - 1)
    return codes.to_numpy().astype(np.int64), words


def short_codes(table: pa.Table, column: str) -> tuple[Index, list[str | None]]:
    """`word_codes` as int32, to be kept."""
    numbers, words = word_codes(table, column)
    return numbers.astype(np.int32), words


def vocabulary_places(
    batch: pa.RecordBatch | pa.Table, column: str, vocabulary: Sequence[str], otherwise: int
) -> Int64:
    """A dictionary column as indices into a vocabulary; `otherwise` for null."""
    numbers, words = word_codes(batch, column)
    return np.array([vocabulary.index(word) if word else otherwise for word in words], np.int64)[numbers]


def with_words(table: pa.Table, column: str, words: Collection[str]) -> pa.Table:
    """The rows whose word in a column is one of `words`."""
    return table.filter(pa.array(has_word(table, column, *words)))


def has_values(batch: pa.RecordBatch | pa.Table, *columns: str) -> Mask:
    """Mask of the rows without null in these columns, shape (rows,)."""
    mask = np.ones(len(batch), np.bool_)
    for name in columns:
        mask &= batch[name].is_valid().to_numpy(zero_copy_only=False)
    return mask


def with_values(table: pa.Table, *columns: str) -> pa.Table:
    """The rows without null in these columns."""
    return table.filter(pa.array(has_values(table, *columns)))


def has_word(batch: pa.RecordBatch | pa.Table, column: str, *words: str) -> Mask:
    """Mask of the rows whose word in a column is one of `words`, shape (rows,)."""
    return matching_rows(batch, column, words.__contains__)


def matching_rows(batch: pa.RecordBatch | pa.Table, column: str, matches: Callable[[str], object]) -> Mask:
    """Mask of the rows whose word in a column matches, shape (rows,); null is the empty word."""
    codes, words = word_codes(batch, column)
    return np.array([bool(matches(word or "")) for word in words], np.bool_)[codes]
