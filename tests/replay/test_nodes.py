# SPDX-License-Identifier: Apache-2.0
"""Nodes and edges that a graph is put together from; codes of values, against sorting them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cclbench.ground.codes import combination_codes, value_codes
from cclbench.ground.intervals import begins
from cclbench.replay import nodes as n


@pytest.mark.parametrize(
    ("columns", "found"),
    [
        (([],), []),
        (([-1],), [True]),
        (([-1, -1, 0, 0, -1],), [True, False, True, False, True]),
        (([2, 2, 2, 3], [5, 6, 6, 6]), [True, True, False, True]),
        (([2, 2, 2], [5, 6, 6], [7, 7, 9]), [True, True, True]),
    ],
)
def test_a_stretch_begins_where_a_column_changes(columns: tuple[list[int], ...], found: list[bool]) -> None:
    assert begins(*(np.array(column, np.int64) for column in columns)).tolist() == found


def test_nodes_without_columns_are_unknown_and_take_no_time() -> None:
    blank = n.blank_nodes(2, rank=[3, 4], dur=7)
    assert blank.rank.tolist() == [3, 4]
    assert blank.dur.tolist() == [7, 7]
    for name in ("lane", "kind", "feeder", "call", "step", "category", "name", "direction"):
        assert getattr(blank, name).tolist() == [-1, -1], name
    for name in ("start", "end", "gap", "slack", "busy", "doubt", "feed_lag"):
        assert getattr(blank, name).tolist() == [0, 0], name
    assert (blank.rank.dtype, blank.kind.dtype, blank.direction.dtype) == (np.int32, np.int8, np.int8)
    assert blank.held.tolist() == [[0] * len(n.HOST_CAUSES)] * 2
    whole = n.join_nodes([blank, n.blank_nodes(1, lane=9)])
    assert (whole.lane.tolist(), whole.first_of_lane.tolist()) == ([-1, -1, 9], [True, False, True])


def test_edges_are_numbered_on() -> None:
    edges = n.Edges()
    assert [column.tolist() for column in edges.as_arrays(5)] == [[], [], []]
    edges.add_edges(np.array([1, 2]), np.array([3, 4]), 9)
    edges.add_edges(0, 1, -2)
    assert [column.tolist() for column in edges.as_arrays()] == [[1, 2, 0], [3, 4, 1], [9, 9, -2]]
    assert [column.tolist() for column in edges.as_arrays(5)] == [[6, 7, 5], [8, 9, 6], [9, 9, -2]]


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
