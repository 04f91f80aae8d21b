# SPDX-License-Identifier: Apache-2.0
"""Columns of numbers that wait on disk."""

import numpy as np
import pytest

from cclbench import disk_columns
from cclbench.disk_columns import (
    DiskColumn,
    DiskTable,
    cuts,
    filled,
    on_disk,
    parted,
    release,
    stretches,
    taken,
)


@pytest.fixture(autouse=True, params=["in memory", "on disk"])
def where(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Columns of any size in memory, then on disk."""
    if request.param == "on disk":
        monkeypatch.setattr(disk_columns, "SMALL_BYTES", 1)


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


def test_what_is_appended_may_change_afterwards():
    values = np.arange(3)
    column = DiskColumn(np.int64)
    column.append(values)
    values[:] = 0
    assert column.values().tolist() == [0, 1, 2]


def test_columns_of_a_table_have_names():
    table = DiskTable(at=np.int64, kind=np.int8)
    assert len(table) == 0
    table.append(at=np.array([5, 6]), kind=np.array([1, 2]))
    table.append(at=np.array([7]), kind=np.array([3]))
    table.release()
    assert (len(table), table["at"].tolist(), table["kind"].tolist()) == (3, [5, 6, 7], [1, 2, 3])
    assert table["kind"].dtype == np.int8


def test_arrays_wait_on_disk_and_stay_what_they_are():
    values = np.arange(100, dtype=np.int32)
    waiting = on_disk(values)
    release((waiting, [values]), table_of(waiting), None)
    assert waiting.dtype == np.int32
    assert waiting.tolist() == values.tolist()
    assert taken(waiting, np.array([5, 3])).tolist() == [5, 3]
    assert taken(waiting, values >= 98).tolist() == [98, 99]
    assert taken(waiting, np.empty(0, np.int64)).tolist() == []


def table_of(values: np.ndarray) -> DiskTable:
    table = DiskTable(one=np.int32)
    table.append(one=values)
    return table


def test_a_filled_column_is_changed_in_place():
    numbers = filled(5, -1)
    numbers[2] += 8
    release(numbers)
    assert numbers.tolist() == [-1, -1, 7, -1, -1]
    assert filled(0, 3).tolist() == []


def test_stretches_hold_every_row_once():
    assert list(stretches(5, 2)) == [slice(0, 2), slice(2, 4), slice(4, 5)]
    assert list(stretches(0, 2)) == []


def test_a_column_is_parted_by_its_values():
    values = np.random.default_rng(3).integers(-50, 50, 1000).astype(np.int32)
    found = cuts(values, 100)
    assert found == sorted(set(found))
    assert 5 < len(found) < 20
    parts = list(parted(values, found))
    assert sorted(np.concatenate(parts).tolist()) == list(range(1000))
    bounds = [-50, *found, 50]
    for part, since, until in zip(parts, bounds[:-1], bounds[1:], strict=True):
        assert (np.diff(part) > 0).all()
        assert ((values[part] >= since) & (values[part] < until)).all()


def test_the_greatest_and_the_least_number_are_in_a_part():
    every = np.iinfo(np.int64)
    values = np.array([every.max, 0, every.min])
    assert [part.tolist() for part in parted(values, [])] == [[0, 1, 2]]
    assert [part.tolist() for part in parted(values, [0, 1])] == [[2], [1], [0]]
