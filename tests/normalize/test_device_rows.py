# SPDX-License-Identifier: Apache-2.0
"""Where steps begin and end on a device, and whose kernels run in them."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cclbench.normalize.device_rows import DeviceRows, own_shares, step_extents

STEPS = 3
WINDOWS = ((0, 10), (10, 25), (25, 40))
ROW = st.tuples(st.integers(-1, STEPS - 1), st.integers(-5, 45), st.integers(0, 12), st.booleans())


def device_rows(rows):
    """Rows of step, start, duration and whether it is a kernel."""
    step, start, duration = (np.array([row[i] for row in rows], np.int64) for i in range(3))
    return DeviceRows(
        step.astype(np.int32), start, start + duration, np.array([r[3] for r in rows], np.bool_)
    )


def instants(rows):
    return {at for _, start, duration, _ in rows for at in range(start, start + duration)}


@given(rows=st.lists(ROW))
def test_where_steps_begin_and_end(rows):
    opening, ending = step_extents(device_rows(rows), STEPS)
    launched = [row for row in rows if row[0] >= 0]
    for step in range(STEPS):
        own = [row for row in launched if row[0] == step]
        assert opening.get(step) == min((start for _, start, _, kernel in own if kernel), default=None)
        assert ending.get(step) == max((start + lasts for _, start, lasts, _ in own), default=None)


@given(rows=st.lists(ROW), window=st.permutations([0, 1, -1]))
def test_shares_are_those_of_all_instants(rows, window):
    """A nanosecond at a time: of those in a window in which a kernel runs, those in which an own one does."""
    starts, ends = (np.array(bounds) for bounds in zip(*WINDOWS, strict=True))
    shares = own_shares(device_rows(rows), starts, ends, np.array(window, np.int32))
    kernels = [row for row in rows if row[3]]
    expected = []
    for number, (begin, end) in enumerate(WINDOWS):
        own = instants(row for row in kernels if row[0] >= 0 and window[row[0]] == number)
        busy = instants(kernels) & set(range(begin, end))
        expected.append(len(own & busy) / len(busy) if busy else None)
    assert shares == expected
