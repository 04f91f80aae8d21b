# SPDX-License-Identifier: Apache-2.0
"""Codes of values, against sorting them."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cclbench.ground.codes import combination_codes, value_codes

_LIMITS = np.iinfo(np.int64)
NARROW = st.integers(-40, 40)
WIDE = st.integers(int(_LIMITS.min), int(_LIMITS.max))


@given(st.lists(NARROW) | st.lists(WIDE) | st.lists(st.one_of(NARROW, WIDE)))
def test_a_code_is_the_place_of_a_value_among_the_distinct_ones(values: list[int]) -> None:
    column = np.array(values, np.int64)
    assert value_codes(column).tolist() == [sorted({*values}).index(value) for value in values]
    small = column.astype(np.int8)
    assert value_codes(small).tolist() == np.unique(small, return_inverse=True)[1].tolist()


@given(st.lists(st.tuples(NARROW, WIDE, NARROW), min_size=1))
def test_combinations_have_codes_in_their_order(rows: list[tuple[int, int, int]]) -> None:
    columns = [np.array(column, np.int64) for column in zip(*rows, strict=True)]
    assert combination_codes(*columns).tolist() == [sorted({*rows}).index(row) for row in rows]
