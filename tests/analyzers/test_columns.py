# SPDX-License-Identifier: Apache-2.0
"""Columns of Arrow tables as numpy arrays."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from cclbench.analyzers.view.columns import (
    has_values,
    has_word,
    matching_rows,
    row_spans,
    with_values,
    with_words,
    word_codes,
)
from cclbench.ground.intervals import begins

WORDS = pa.dictionary(pa.int32(), pa.string())


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([], []),
        ([0], [True]),
        ([3, 3, 5, 3, 3], [True, False, True, True, False]),
        ([-1, -1, 0], [True, False, True]),
    ],
)
def test_where_values_begin_anew(values: list[int], expected: list[bool]) -> None:
    assert begins(np.array(values, np.int64)).tolist() == expected


def test_words_of_chunks_that_number_them_differently_and_of_plain_columns() -> None:
    """And a word that no row has, which the dictionary names nevertheless."""
    first = pa.DictionaryArray.from_arrays(pa.array([1, None], pa.int32()), ["unused", "b"])
    chunks = pa.chunked_array([first, pa.array(["a", "b"], WORDS)])
    numbers, words = word_codes(pa.table({"category": chunks}), "category")
    assert [words[n] for n in numbers] == ["b", None, "a", "b"]
    assert words[-1] is None
    table = pa.table({"category": chunks})
    assert has_word(table, "category", "b").tolist() == [True, False, False, True]
    assert has_word(table, "category", "c", "a").tolist() == [False, False, True, False]
    assert matching_rows(table, "category", lambda word: word < "b").tolist() == [False, True, True, False]
    # A batch without words has rows of none.
    batch = pa.RecordBatch.from_arrays([pa.array([None, None], WORDS)], ["category"])
    numbers, words = word_codes(batch, "category")
    assert (numbers.tolist(), words) == ([0, 0], [None])
    assert has_word(batch, "category", "a").tolist() == [False, False]
    # Plain columns have words too.
    table = pa.table({"source": pa.chunked_array([["b", None], ["a", "b"]]), "row": [0, 1, 2, 3]})
    assert with_words(table, "source", ("b", ""))["row"].to_pylist() == [0, 1, 3]
    numbers, words = word_codes(table, "row")
    assert [words[n] for n in numbers] == [0, 1, 2, 3]


def test_rows_with_values_in_all_of_the_columns_and_their_spans() -> None:
    batch = pa.RecordBatch.from_pydict({"a": [1, None, 3, 4], "b": ["x", "y", None, "z"]})
    assert has_values(batch, "a").tolist() == [True, False, True, True]
    assert has_values(batch, "a", "b").tolist() == [True, False, False, True]
    assert has_values(batch).tolist() == [True] * 4
    assert with_values(pa.Table.from_batches([batch]), "a", "b")["a"].to_pylist() == [1, 4]
    # A span is from its start for its duration.
    batch = pa.RecordBatch.from_pydict({"start_ns": [5, 9], "dur_ns": [2, 0]})
    starts, ends = row_spans(batch)
    assert (starts.tolist(), ends.tolist()) == ([5, 9], [7, 9])
