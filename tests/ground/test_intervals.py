# SPDX-License-Identifier: Apache-2.0
"""Interval algebra against sets of instants."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cclbench.ground import intervals
from cclbench.ground.intervals import EMPTY, Intervals

spans = st.lists(st.tuples(st.integers(-20, 20), st.integers(0, 9)), max_size=12)
Rows = list[tuple[int, int]]


def pieces(rows: Rows) -> tuple[np.ndarray, np.ndarray]:
    starts = np.array([start for start, _ in rows], np.int64)
    return starts, starts + np.array([length for _, length in rows], np.int64)


def instants(rows: Rows) -> set[int]:
    return {t for start, length in rows for t in range(start, start + length)}


def holds(s: Intervals) -> set[int]:
    assert all(start < end for start, end in zip(s.starts, s.ends, strict=True))
    assert all(end < start for end, start in zip(s.ends[:-1], s.starts[1:], strict=True))
    return {t for start, end in zip(s.starts, s.ends, strict=True) for t in range(start, end)}


def a_set(rows: Rows) -> Intervals:
    return intervals.union(*pieces(rows))


def test_a_nanosecond_at_epoch_scale_survives() -> None:
    epoch = 1_712_195_495_519_689_047
    s = intervals.union(np.array([epoch, epoch + 2]), np.array([epoch + 1, epoch + 3]))
    assert s.length == 2
    assert len(s) == 2


@given(spans)
def test_union_is_the_set_of_instants(rows: Rows) -> None:
    s = a_set(rows)
    assert holds(s) == instants(rows)
    assert s.length == len(instants(rows))


@given(spans, spans, spans)
def test_algebra_is_that_of_sets(a: Rows, b: Rows, c: Rows) -> None:
    one, other = a_set(a), a_set(b)
    assert holds(intervals.join(one, other, a_set(c))) == instants(a) | instants(b) | instants(c)
    assert holds(intervals.intersect(one, other)) == instants(a) & instants(b)
    assert holds(intervals.subtract(one, other)) == instants(a) - instants(b)


@given(spans, spans)
def test_within_measures_each_window_of_any_order(rows: Rows, windows: Rows) -> None:
    starts, ends = pieces(windows)
    covered = intervals.within(a_set(rows), starts, ends)
    assert covered.tolist() == [len(instants(rows) & instants([window])) for window in windows]
    assert covered.dtype == np.int64


@given(spans, st.integers(-20, 30), st.integers(0, 20))
def test_a_set_is_clipped_to_a_window(rows: Rows, start: int, length: int) -> None:
    clipped = intervals.clipped(a_set(rows), start, start + length)
    assert holds(clipped) == instants(rows) & set(range(start, start + length))


@given(spans, spans, spans)
def test_lengths_of_a_mask_in_windows(a: Rows, b: Rows, windows: Rows) -> None:
    starts, ends = pieces(windows)
    edges, (in_a, in_b) = intervals.atoms([a_set(a), a_set(b)], np.concatenate([starts, ends]))
    if not len(edges):
        return
    found = intervals.lengths(edges, in_a & ~in_b, starts, ends)
    assert found.tolist() == [len((instants(a) - instants(b)) & instants([window])) for window in windows]


def test_lengths_of_each_owner_count_overlaps_once() -> None:
    """Owner 0: [0, 10), [5, 12), [20, 30); 1: none; 2: [0, 4), [4, 6); 3: [7, 30) around [8, 9), [10, 12)."""
    rows = [(3, 10, 12), (0, 20, 30), (2, 4, 6), (0, 0, 10), (3, 7, 30), (2, 0, 4), (3, 8, 9), (0, 5, 12)]
    owner, starts, ends = np.array(rows, np.int64).T
    found = intervals.union_lengths(owner, starts, ends, 5)
    assert found.tolist() == [22, 0, 6, 23, 0]
    assert found.dtype == np.int64
    # one owner may begin before another ends
    owner, starts, ends = np.array([(0, 0, 10), (1, 5, 8), (0, 50, 60), (1, 55, 57)], np.int64).T
    assert intervals.union_lengths(owner, starts, ends, 2).tolist() == [20, 5]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(-9, 9), st.integers(0, 9)), max_size=12))
def test_lengths_of_owners_are_those_of_their_unions(rows: list[tuple[int, int, int]]) -> None:
    owner = np.array([row[0] for row in rows], np.int64)
    starts, ends = pieces([row[1:] for row in rows])
    expected = [len(instants([row[1:] for row in rows if row[0] == one])) for one in range(4)]
    assert intervals.union_lengths(owner, starts, ends, 4).tolist() == expected


# [0, 100) holds [5, 10) and [20, 90), which holds [20, 40); [40, 90) ends with the one around it.
NESTED = np.array([0, 5, 20, 20, 40, 200]), np.array([100, 10, 90, 40, 90, 210])


def test_what_encloses_a_range_began_before_and_ends_after_it() -> None:
    assert intervals.enclosing(NESTED[1]).tolist() == [-1, 0, 0, 2, 0, -1]
    assert intervals.enclosing(np.array([10, 10, 11])).tolist() == [-1, -1, -1]
    assert intervals.enclosing(np.empty(0, np.int64)).tolist() == []


@pytest.mark.parametrize(
    ("at", "expected"),
    [
        *((-1, -1), (0, 0), (5, 1), (9, 1), (10, 0), (20, 3), (40, 4), (89, 4), (90, 0), (99, 0), (100, -1)),
        *((199, -1), (200, 5), (209, 5), (210, -1)),
    ],
)
def test_innermost_is_the_last_that_began_of_those_that_run(at: int, expected: int) -> None:
    assert intervals.innermost(*NESTED, np.array([at])).tolist() == [expected]
    assert intervals.innermost(*[np.empty(0, np.int64)] * 2, np.array([at])).tolist() == [-1]


def test_atoms_are_cut_at_every_edge_and_cut_once() -> None:
    edges, (first, second) = intervals.atoms([a_set([(0, 10)]), a_set([(5, 10)])], np.array([5, 7, 20]))
    assert edges.tolist() == [0, 5, 7, 10, 15, 20]
    assert first.tolist() == [True, True, True, False, False]
    assert second.tolist() == [False, True, True, True, False]
    edges, (none,) = intervals.atoms([EMPTY], np.array([3, 1, 3]))
    assert (edges.tolist(), none.tolist()) == ([1, 3], [False])
    edges, (none,) = intervals.atoms([EMPTY])
    assert (edges.tolist(), none.tolist()) == ([], [])
