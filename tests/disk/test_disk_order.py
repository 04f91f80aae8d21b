# SPDX-License-Identifier: Apache-2.0
"""Columns on disk by their values."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cclbench import disk_columns, disk_order
from cclbench.disk_columns import DiskColumn
from cclbench.disk_order import cuts, in_order, parted


@pytest.fixture(autouse=True, params=["in memory", "on disk"])
def where(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Columns of any size in memory, then on disk."""
    if request.param == "on disk":
        monkeypatch.setattr(disk_columns, "SMALL_BYTES", 1)


class TestInOrder:
    """Sorted stretch by stretch: all values with their places, equal ones together."""

    @given(values=st.lists(st.integers(-9, 9) | st.integers(-(2**63), 2**63 - 1)), piece=st.integers(1, 9))
    def test_is_a_stable_sort(self, values, piece):
        column = DiskColumn(np.int64)
        column.append(np.array(values, np.int64))
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(disk_order, "_ROWS", piece)
            found = list(in_order(column))
        assert [v for own, _ in found for v in own.tolist()] == sorted(values)
        expected = np.argsort(np.array(values, np.int64), kind="stable").tolist()
        assert [place for _, own in found for place in own.tolist()] == expected
        stretches = [set(own.tolist()) for own, _ in found]
        assert sum(map(len, stretches)) == len(set(values))

    def test_stretches_are_about_as_long_as_pieces(self, monkeypatch):
        monkeypatch.setattr(disk_order, "_ROWS", 1000)
        column = DiskColumn(np.uint64)
        column.append(np.random.default_rng(3).integers(0, 2**64, 20_000, np.uint64))
        lengths = [len(own) for own, _ in in_order(column)]
        assert sum(lengths) == 20_000
        assert max(lengths) < 1500


def test_a_column_is_parted_by_its_values():
    values = np.random.default_rng(3).integers(-50, 50, 1000).astype(np.int32)
    found = cuts(100, values)
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
