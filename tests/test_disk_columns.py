# SPDX-License-Identifier: Apache-2.0
"""Columns of numbers that wait on disk."""

import numpy as np
import pytest

from cclbench.disk_columns import DiskColumn


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
