# SPDX-License-Identifier: Apache-2.0
"""Distribute the slices of a track over lanes in which they nest or do not overlap, as viewers require."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt

from cclbench.ground.errors import InputError
from cclbench.ground.intervals import Int64, Mask

MOST_LANES: Final = 256
Int32 = npt.NDArray[np.int32]


def slice_lanes(tracks: npt.NDArray[np.integer], starts: Int64, ends: Int64) -> Int32:
    """The lane of each slice in its track, 0 if nothing crosses; shape (n,).

    Two slices cross if the later one begins within the earlier and ends after it.  Each is put in the first
    lane in which it crosses none; slices without a duration cross none.  `InputError` if a track needs more
    than `MOST_LANES`.
    """
    lane = np.zeros(len(starts), np.int32)
    rows = np.flatnonzero(ends > starts)
    order = rows[np.lexsort((-ends[rows], starts[rows], tracks[rows]))]
    for track_rows in np.split(order, np.flatnonzero(np.diff(tracks[order])) + 1):
        crossing = _in_crossing_runs(starts[track_rows], ends[track_rows])
        if crossing.any():
            crossing_rows = track_rows[crossing]
            lane[crossing_rows] = list(
                _first_free_lanes(starts[crossing_rows].tolist(), ends[crossing_rows].tolist())
            )
    return lane


def _in_crossing_runs(starts: Int64, ends: Int64) -> Mask:
    """Mask of slices, sorted by start and longest first, in a run of overlapping ones of which two cross."""
    at = np.arange(len(starts))
    depth = at - np.searchsorted(np.sort(ends), starts, "right")
    inner = np.flatnonzero(depth > 0)
    if not len(inner):
        return np.zeros(len(starts), np.bool_)
    # If nothing crosses, the innermost slice open when one begins is the last one of depth − 1.
    by_depth = np.argsort(depth, kind="stable")
    place = depth[by_depth] * len(starts) + by_depth
    outer = by_depth[np.searchsorted(place, (depth[inner] - 1) * len(starts) + inner) - 1]
    crosses = inner[ends[inner] > ends[outer]]
    run = np.cumsum(depth == 0)
    return np.isin(run, run[crosses])


def _first_free_lanes(starts: list[int], ends: list[int]) -> Iterator[int]:
    """The first lane with room for each slice; the open slices of a lane form a stack."""
    stacks: list[list[int]] = []
    for start, end in zip(starts, ends, strict=True):
        for lane, stack in enumerate(stacks):  # noqa: B007  (the result of the search)
            while stack and stack[-1] <= start:
                stack.pop()
            if not stack or end <= stack[-1]:
                break
        else:
            if len(stacks) == MOST_LANES:
                raise InputError(
                    f"more than {MOST_LANES} rows of one stream or thread cross one another",
                    hint="select fewer steps with --steps",
                )
            lane, stack = len(stacks), []
            stacks.append(stack)
        stack.append(end)
        yield lane
