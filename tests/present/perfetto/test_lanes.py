# SPDX-License-Identifier: Apache-2.0
"""Lanes: nothing crosses in one, and nothing moves that need not."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cclbench.ground.errors import InputError
from cclbench.present.perfetto.lanes import MOST_LANES, slice_lanes

Slice = tuple[int, int, int]


def found(*slices: Slice) -> list[int]:
    """Lanes of (track, start, end)."""
    track, start, end = (np.array(column, np.int64) for column in zip(*slices, strict=True))
    return slice_lanes(track, start, end).tolist()


@pytest.mark.parametrize(
    ("slices", "expected"),
    [
        ([(0, 0, 10), (0, 2, 5), (0, 5, 10), (0, 10, 20)], [0, 0, 0, 0]),
        ([(0, 0, 10), (0, 0, 10), (0, 0, 4)], [0, 0, 0]),
        ([(0, 0, 10), (0, 5, 15)], [0, 1]),
        ([(0, 5, 15), (0, 0, 10)], [1, 0]),
        ([(0, 0, 10), (1, 5, 15)], [0, 0]),
        # The fourth follows both and returns to the first lane; the staircase needs two lanes only.
        ([(0, 0, 10), (0, 5, 15), (0, 11, 20), (0, 20, 30)], [0, 1, 0, 0]),
        # Three that overlap pairwise.
        ([(0, 0, 10), (0, 1, 11), (0, 2, 12)], [0, 1, 2]),
        # Inside the first, and crossing a closed child of it is no crossing.
        ([(0, 0, 100), (0, 10, 20), (0, 20, 90), (0, 30, 40)], [0, 0, 0, 0]),
        # It crosses the outermost of two open ones.
        ([(0, 0, 10), (0, 2, 8), (0, 5, 12)], [0, 0, 1]),
        # Instants cross nothing, wherever they are.
        ([(0, 0, 10), (0, 5, 5), (0, 10, 10), (0, 0, 0), (0, 5, 15)], [0, 0, 0, 0, 1]),
    ],
)
def test_by_hand(slices: Sequence[Slice], expected: list[int]) -> None:
    assert found(*slices) == expected
    assert slice_lanes(*[np.empty(0, np.int64)] * 3).tolist() == []


@given(
    st.lists(
        st.tuples(st.integers(0, 1), st.integers(0, 12), st.integers(0, 8)).map(
            lambda one: (one[0], one[1], one[1] + one[2])
        ),
        min_size=1,
        max_size=30,
    )
)
def test_nothing_crosses_in_a_lane_and_whole_tracks_stay(slices: list[Slice]) -> None:
    def crosses(a: Slice, b: Slice) -> bool:
        return a[0] == b[0] and (a[1] < b[1] < a[2] < b[2] or b[1] < a[1] < b[2] < a[2])

    lane = found(*slices)
    pairs = [(a, b) for a in range(len(slices)) for b in range(a)]
    assert not [1 for a, b in pairs if lane[a] == lane[b] and crosses(slices[a], slices[b])]
    for track in (0, 1):
        if not [1 for a, b in pairs if slices[a][0] == track and crosses(slices[a], slices[b])]:
            assert {n for n, one in zip(lane, slices, strict=True) if one[0] == track} <= {0}


def test_a_track_of_nothing_but_crossings_is_refused() -> None:
    many = [(0, n, MOST_LANES + 1 + n) for n in range(MOST_LANES + 1)]
    assert max(found(*many[:-1])) == MOST_LANES - 1
    with pytest.raises(InputError, match="more than 256 rows of one stream or thread cross one another"):
        found(*many)
