# SPDX-License-Identifier: Apache-2.0
"""Columns of numbers that wait on disk."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cclbench import disk_columns
from cclbench.disk_columns import DiskColumn, in_order, pieces


@pytest.fixture(autouse=True, params=[disk_columns._IN_MEMORY, 0], ids=["in memory", "on disk"])
def where_columns_wait(request, monkeypatch):
    monkeypatch.setattr(disk_columns, "_IN_MEMORY", request.param)


def test_what_is_appended_is_read_in_order():
    column = DiskColumn(np.int64)
    for part in ([1, -(2**63)], [], [2**63 - 1]):
        column.append(np.array(part, np.int64))
    assert len(column) == 3
    assert column.values().tolist() == [1, -(2**63), 2**63 - 1]
    assert column.values().dtype == np.int64
    column.append(np.array([7]))
    assert column.values()[3] == 7


def test_an_empty_column_has_no_values():
    assert DiskColumn(np.bool_).values().tolist() == []


def test_values_of_another_type_become_the_columns():
    column = DiskColumn(np.int32)
    column.append(np.array([3, -1], np.int64))
    column.append(np.arange(10, dtype=np.int32)[::3])
    assert column.values().tolist() == [3, -1, 0, 3, 6, 9]


def test_values_outlive_release_and_the_column():
    column = DiskColumn(np.int16)
    column.append(np.arange(1000, dtype=np.int16))
    values = column.values()
    assert values.sum() == 499500
    column.release()
    assert values[999] == 999
    del column
    assert values.sum() == 499500


def test_values_cannot_be_changed():
    column = DiskColumn(np.int64)
    column.append(np.zeros(2, np.int64))
    with pytest.raises(ValueError, match="read-only"):
        column.values()[0] = 1


def test_a_column_that_outgrows_memory_is_whole():
    column, appended = DiskColumn(np.int64), np.arange(1 << 15)
    for part in np.split(appended, 8):
        column.append(part)
        assert column.values()[-1] == part[-1]
    assert np.array_equal(column.values(), appended)


def test_pieces_are_all_rows_in_order_and_let_go_of_what_was_read(monkeypatch):
    monkeypatch.setattr(disk_columns, "PIECE", 4)
    released = Counter()

    class Pages:
        def release(self):
            released["times"] += 1

    assert [list(range(10))[here] for here in pieces(10, Pages())] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert released["times"] == 3
    assert list(pieces(0)) == []


class TestInOrder:
    """Sorted stretch by stretch: all values with their places, equal ones together."""

    @given(values=st.lists(st.integers(-9, 9) | st.integers(-(2**63), 2**63 - 1)), piece=st.integers(1, 9))
    def test_is_a_stable_sort(self, values, piece):
        column = DiskColumn(np.int64)
        column.append(np.array(values, np.int64))
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(disk_columns, "PIECE", piece)
            found = list(in_order(column))
        assert [v for own, _ in found for v in own.tolist()] == sorted(values)
        expected = np.argsort(np.array(values, np.int64), kind="stable").tolist()
        assert [place for _, own in found for place in own.tolist()] == expected
        stretches = [set(own.tolist()) for own, _ in found]
        assert sum(map(len, stretches)) == len(set(values))

    def test_stretches_are_about_as_long_as_pieces(self, monkeypatch):
        monkeypatch.setattr(disk_columns, "PIECE", 1000)
        column = DiskColumn(np.uint64)
        column.append(np.random.default_rng(3).integers(0, 2**64, 20_000, np.uint64))
        lengths = [len(own) for own, _ in in_order(column)]
        assert sum(lengths) == 20_000
        assert max(lengths) < 1500
