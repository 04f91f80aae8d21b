# SPDX-License-Identifier: Apache-2.0
"""Rows of a device that come in pieces give the same as all at once."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cclbench import disk_order
from cclbench.normalize.device_rows import DeviceRows, extents, own_shares

STEPS = 3
WINDOWS = ((0, 10), (10, 25), (25, 40))
ROW = st.tuples(st.integers(-1, STEPS - 1), st.integers(-5, 45), st.integers(0, 12), st.booleans())


def in_pieces(rows, length):
    """Rows of step, start, duration and whether it is a kernel, `length` at a time."""
    for first in range(0, len(rows), length):
        step, start, duration, kernel = (np.array(c) for c in zip(*rows[first : first + length], strict=True))
        yield DeviceRows(step.astype(np.int32), start, start + duration, kernel)


def instants(rows):
    return {at for _, start, duration, _ in rows for at in range(start, start + duration)}


@given(rows=st.lists(ROW), length=st.integers(1, 5))
def test_where_steps_begin_and_end(rows, length):
    opening, ending = extents(list(in_pieces(rows, length)), STEPS)
    launched = [row for row in rows if row[0] >= 0]
    for step in range(STEPS):
        own = [row for row in launched if row[0] == step]
        assert opening.get(step) == min((start for _, start, _, kernel in own if kernel), default=None)
        assert ending.get(step) == max((start + lasts for _, start, lasts, _ in own), default=None)


@given(rows=st.lists(ROW), length=st.integers(1, 5), window=st.permutations([0, 1, -1]))
def test_shares_are_those_of_all_instants(rows, length, window):
    """A nanosecond at a time: of those in a window in which a kernel runs, those in which an own one does."""
    starts, ends = (np.array(bounds) for bounds in zip(*WINDOWS, strict=True))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(disk_order, "_ROWS", 2)
        shares = own_shares(list(in_pieces(rows, length)), starts, ends, np.array(window, np.int32))
    kernels = [row for row in rows if row[3]]
    expected = []
    for number, (begin, end) in enumerate(WINDOWS):
        own = instants(row for row in kernels if row[0] >= 0 and window[row[0]] == number)
        busy = instants(kernels) & set(range(begin, end))
        expected.append(len(own & busy) / len(busy) if busy else None)
    assert shares == expected
