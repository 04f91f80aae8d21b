# SPDX-License-Identifier: Apache-2.0
"""Columns of Arrow tables as numpy arrays."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from cclbench.intervals import Int64, Mask


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


def is_category(batch: pa.RecordBatch | pa.Table, category: str) -> Mask:
    """Which rows are of that category, shape (rows,)."""
    numbers, words = codes(batch, "category")
    return np.isin(numbers, [i for i, word in enumerate(words) if word == category])
