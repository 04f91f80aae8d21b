# SPDX-License-Identifier: Apache-2.0
"""Arithmetic on columns on disk, piece by piece, against numpy's on whole arrays."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cclbench import disk_arithmetic, disk_columns
from cclbench.disk_arithmetic import (
    accumulate,
    centred,
    counts,
    distinct,
    elementwise,
    extremes,
    magnitude,
    median,
    product,
    sums,
)

GROUPS = 4
numbers = st.floats(-1e15, 1e15)
grouped = st.lists(st.tuples(st.integers(0, GROUPS - 1), numbers), max_size=40)


@pytest.fixture(autouse=True, params=["whole", "in pieces"])
def where(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """All rows at once in memory, then three at a time on disk."""
    if request.param == "in pieces":
        monkeypatch.setattr(disk_columns, "SMALL_BYTES", 1)
        monkeypatch.setattr(disk_arithmetic, "_ROWS", 3)


def columns(rows: list[tuple[int, float]]) -> tuple[np.ndarray, np.ndarray]:
    of, values = zip(*rows, strict=True) if rows else ((), ())
    return np.array(of, np.int64), np.array(values, np.float64)


@given(grouped)
def test_sums_and_counts_of_groups_to_the_last_bit(rows):
    of, values = columns(rows)
    assert sums(of, values, GROUPS).tolist() == np.bincount(of, values, GROUPS).tolist()
    assert counts(of, GROUPS).tolist() == np.bincount(of, minlength=GROUPS).tolist()


@given(grouped)
def test_values_less_the_mean_of_their_group(rows):
    of, values = columns(rows)
    mean = np.bincount(of, values) / np.maximum(np.bincount(of), 1) if rows else np.empty(0)
    assert centred(values, of, GROUPS).tolist() == (values - mean[of]).tolist()


@given(st.lists(st.floats(0, 1e300), min_size=1, max_size=40))
def test_the_median_is_numpys(values):
    """Also of values that differ in their last bits only, and of many equal ones."""
    assert median(np.array(values)) == np.median(values)


@pytest.mark.parametrize("values", [[5e-324, 0.0], [1.0, np.nextafter(1, 2), np.nextafter(1, 0)], [3.0] * 9])
def test_the_median_of_neighbours(values):
    assert median(np.array(values)) == np.median(values)


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=20))
def test_extremes_and_distinct_values(values):
    assert extremes(np.array(values)) == (min(values), max(values))
    assert distinct(np.array(values)).tolist() == sorted(set(values))


def test_no_rows():
    none = np.empty(0)
    assert distinct(none).tolist() == magnitude(none).tolist() == product(none, none).tolist() == []


def test_a_function_of_several_columns():
    beside = np.array([10, 20])
    found = elementwise(
        lambda a, b: beside[a] + b,
        np.array([0, 1, 1, 0]),
        np.array([1, 2, 3, 4]),
        dtype=np.int32,
        beside=(beside,),
    )
    assert (found.tolist(), found.dtype) == ([11, 22, 23, 14], np.int32)
    assert magnitude(np.array([-1.5, 0.0, 2.0, -0.0])).tolist() == [1.5, 0.0, 2.0, 0.0]
    assert product(np.array([2.0, 3, 4, 5]), np.array([1.0, 2, 3, 4])).tolist() == [2, 6, 12, 20]


def test_what_a_group_has_accumulates():
    total = np.array([5, 0])
    accumulate(np.maximum, total, np.array([0, 1, 1, 0]), np.array([3, 7, 2, 4]))
    assert total.tolist() == [5, 7]
