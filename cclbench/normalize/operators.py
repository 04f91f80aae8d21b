# SPDX-License-Identifier: Apache-2.0
"""Which operator's call launched a device event: the innermost one on the launching thread then."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cclbench.intervals import Int64


@dataclass(frozen=True, slots=True, eq=False)
class Operators:
    """Calls of operators, arrays of shape (calls,); the calls of a thread nest, as on its stack."""

    id: Int64
    track: Int64
    start_ns: Int64
    end_ns: Int64

    def innermost(self, track: Int64, at: Int64) -> Int64:
        """Id of the innermost call on each thread at each instant, −1 where none runs; shape of `at`."""
        found = np.full(len(at), -1, np.int64)
        # Ids count up: of calls that take the same time the later one is the inner.
        by_id = np.argsort(self.id)
        lasting = by_id[(self.end_ns > self.start_ns)[by_id]]
        for thread in np.unique(track):
            calls, here = lasting[self.track[lasting] == thread], track == thread
            call = _innermost(self.start_ns[calls], self.end_ns[calls], at[here])
            found[here] = np.append(self.id[calls], -1)[call]
        return found


def _innermost(start: Int64, end: Int64, at: Int64) -> Int64:
    """Index of the innermost of nested intervals [start, end) around each instant, −1 for none.

    Of equal ones the last is the inner.  Sorted by time, begins and ends count the depth; the interval around
    an instant is the last that began at the depth that reigns there.
    """
    outer_first = np.lexsort((-end, start))
    time = np.concatenate([start[outer_first], end[outer_first]])
    step = np.repeat([1, -1], len(start))
    order = np.lexsort((step, time))
    time, depth = time[order], np.cumsum(step[order])
    place = np.flatnonzero(step[order] > 0)
    # One number for depth and place in time: depth · length + place.
    begun = depth[place] * len(time) + place
    by_depth = np.argsort(begun)
    reigning = np.searchsorted(time, at, side="right") - 1
    inside = (reigning >= 0) & (depth[reigning] > 0) if len(time) else np.zeros(len(at), np.bool_)
    wanted = depth[reigning[inside]] * len(time) + reigning[inside]
    last = by_depth[np.searchsorted(begun[by_depth], wanted, side="right") - 1]
    found = np.full(len(at), -1, np.int64)
    found[inside] = outer_first[order[place[last]]]
    return found
