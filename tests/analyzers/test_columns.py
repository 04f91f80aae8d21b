# SPDX-License-Identifier: Apache-2.0
"""Columns of Arrow tables as numpy arrays."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from cclbench.analyzers.view.columns import has_word, matching_rows, row_spans, word_codes
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


def test_a_span_is_from_its_start_for_its_duration() -> None:
    batch = pa.RecordBatch.from_pydict({"start_ns": [5, 9], "dur_ns": [2, 0]})
    starts, ends = row_spans(batch)
    assert (starts.tolist(), ends.tolist()) == ([5, 9], [7, 9])


def test_words_of_chunks_that_number_them_differently() -> None:
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


def test_a_batch_without_words_has_rows_of_none() -> None:
    batch = pa.RecordBatch.from_arrays([pa.array([None, None], WORDS)], ["category"])
    numbers, words = word_codes(batch, "category")
    assert (numbers.tolist(), words) == ([0, 0], [None])
    assert has_word(batch, "category", "a").tolist() == [False, False]
