# SPDX-License-Identifier: Apache-2.0
"""Columns of numbers that wait on disk."""

import errno
import os
from collections import Counter
from tempfile import gettempdir

import numpy as np
import pytest

from cclbench import disk_columns
from cclbench.disk_columns import DiskColumn, DiskTable, disk_array, on_disk, pieces, release, taken
from cclbench.errors import InputError


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
    assert list(pieces(5, most=2)) == [slice(0, 2), slice(2, 4), slice(4, 5)]


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


def test_an_array_is_changed_in_place():
    numbers = disk_array(5, np.int64, -1)
    numbers[2] += 8
    release(numbers)
    assert numbers.tolist() == [-1, -1, 7, -1, -1]
    assert disk_array(0, np.int32, 3).tolist() == []


@pytest.mark.parametrize("lacks", ["the system", "the file system"])
def test_an_array_is_on_disk_without_fallocate(lacks, monkeypatch):
    def unsupported(*_):
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))

    monkeypatch.setattr(disk_columns, "SMALL_BYTES", 1 << 16)
    if lacks == "the system":
        monkeypatch.delattr(os, "posix_fallocate", raising=False)
    else:
        monkeypatch.setattr(os, "posix_fallocate", unsupported, raising=False)
    numbers = disk_array(1 << 18, np.int64, 2)
    assert (len(numbers), int(numbers.sum())) == (1 << 18, 1 << 19)


def test_without_room_the_folder_of_temporary_files_is_named(monkeypatch):
    """Each file is made as one that has no room from the beginning."""

    def full(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(disk_columns, "SMALL_BYTES", 1)
    monkeypatch.setattr(disk_columns, "TemporaryFile", full)
    said = f"{gettempdir()}: temporary files cannot be written: No space left on device; make room there"
    with pytest.raises(InputError) as raised:
        DiskColumn(np.int64).append(np.arange(3))
    assert str(raised.value).startswith(said)
    with pytest.raises(InputError):
        disk_array(3, np.int64)
