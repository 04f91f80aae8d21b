# SPDX-License-Identifier: Apache-2.0
"""Interval algebra against sets of instants."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cclbench import intervals
from cclbench.intervals import EMPTY, Intervals

spans = st.lists(st.tuples(st.integers(-20, 20), st.integers(0, 9)), max_size=12)


def pieces(rows: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    starts = np.array([start for start, _ in rows], np.int64)
    return starts, starts + np.array([length for _, length in rows], np.int64)


def instants(rows: list[tuple[int, int]]) -> set[int]:
    return {t for start, length in rows for t in range(start, start + length)}


def holds(s: Intervals) -> set[int]:
    assert all(start < end for start, end in zip(s.starts, s.ends, strict=True))
    assert all(end < start for end, start in zip(s.ends[:-1], s.starts[1:], strict=True))
    return {t for start, end in zip(s.starts, s.ends, strict=True) for t in range(start, end)}


def a_set(rows: list[tuple[int, int]]) -> Intervals:
    return intervals.union(*pieces(rows))


def test_touching_and_nested_intervals_become_one_piece() -> None:
    s = intervals.union(np.array([5, 0, 1]), np.array([9, 5, 3]))
    assert (s.starts.tolist(), s.ends.tolist()) == ([0], [9])


def test_a_nanosecond_at_epoch_scale_survives() -> None:
    epoch = 1_712_195_495_519_689_047
    s = intervals.union(np.array([epoch, epoch + 2]), np.array([epoch + 1, epoch + 3]))
    assert s.length == 2
    assert len(s) == 2


@given(spans)
def test_union_is_the_set_of_instants(rows: list[tuple[int, int]]) -> None:
    s = a_set(rows)
    assert holds(s) == instants(rows)
    assert s.length == len(instants(rows))


@given(spans, spans, spans)
def test_algebra_is_that_of_sets(
    a: list[tuple[int, int]], b: list[tuple[int, int]], c: list[tuple[int, int]]
) -> None:
    one, other = a_set(a), a_set(b)
    assert holds(intervals.join(one, other, a_set(c))) == instants(a) | instants(b) | instants(c)
    assert holds(intervals.intersect(one, other)) == instants(a) & instants(b)
    assert holds(intervals.subtract(one, other)) == instants(a) - instants(b)


@given(spans, spans)
def test_within_measures_each_window_of_any_order_and_overlap(
    rows: list[tuple[int, int]], windows: list[tuple[int, int]]
) -> None:
    starts, ends = pieces(windows)
    covered = intervals.within(a_set(rows), starts, ends)
    assert covered.tolist() == [len(instants(rows) & instants([window])) for window in windows]
    assert covered.dtype == np.int64


@given(spans, st.integers(-20, 30), st.integers(0, 20))
def test_a_set_is_clipped_to_a_window(rows: list[tuple[int, int]], start: int, length: int) -> None:
    clipped = intervals.clipped(a_set(rows), start, start + length)
    assert holds(clipped) == instants(rows) & set(range(start, start + length))


@given(spans, spans, spans)
def test_lengths_of_a_mask_in_windows(
    a: list[tuple[int, int]], b: list[tuple[int, int]], windows: list[tuple[int, int]]
) -> None:
    starts, ends = pieces(windows)
    edges, (in_a, in_b) = intervals.atoms([a_set(a), a_set(b)], np.concatenate([starts, ends]))
    if not len(edges):
        return
    found = intervals.lengths(edges, in_a & ~in_b, starts, ends)
    assert found.tolist() == [len((instants(a) - instants(b)) & instants([window])) for window in windows]


@pytest.mark.parametrize("operation", [intervals.intersect, intervals.subtract, intervals.join])
def test_empty_sets_are_no_special_case(operation: object) -> None:
    assert callable(operation)
    assert len(operation(EMPTY, EMPTY)) == 0
