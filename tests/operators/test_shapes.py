# SPDX-License-Identifier: Apache-2.0
"""Positions of a window that are no padding, against a count one by one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cclbench.operators.call import NoModel
from cclbench.operators.shapes import valid_positions

small = st.integers(1, 9)


@given(
    read=small,
    written=small,
    size=small,
    stride=small,
    before=st.integers(-5, 9),
    dilation=small,
    spread=small,
)
def test_valid_positions_are_those_counted_one_by_one(
    read: int, written: int, size: int, stride: int, before: int, dilation: int, spread: int
) -> None:
    met = [o * stride + k * dilation - before for o in range(written) for k in range(size)]
    counted = sum(0 <= place <= (read - 1) * spread and place % spread == 0 for place in met)
    window = {"stride": stride, "before": before, "dilation": dilation, "spread": spread}
    assert valid_positions(read, written, size, **window) == counted


def test_large_windows_are_counted_and_absurd_ones_are_not() -> None:
    assert valid_positions(1 << 40, 1 << 40, 3, before=1) == 3 * (1 << 40) - 2
    with pytest.raises(NoModel, match="its window has 1099511627776 positions"):
        valid_positions(1 << 40, 1 << 40, 1 << 41)
