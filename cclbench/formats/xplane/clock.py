# SPDX-License-Identifier: Apache-2.0
"""A TPU's own clock, where its ops tell it, in place of the times at which a profile shows them.

The profiler shows an op at the host's time it believes to be the op's.  For some ops in a row it errs by
as much as 0.2 s: the op before them is shown longer, later ones shorter or without any duration, and
steps vary that did not.  `device_offset_ps` and `device_duration_ps` are what the device counted.
"""

from __future__ import annotations

import numpy as np

from cclbench.ground.intervals import Int64

_BINS = 64
_LARGEST_SKEW = 2e-4
"""Two quartz clocks differ by less; what seems more is the profiler's error."""


def on_host(own_ps: Int64, shown_ps: Int64, instants_ps: Int64) -> Int64:
    """The host's time, in ps, of instants of the device's clock.

    Most ops are shown right, so the clocks differ by the robust line through the least difference
    shown − own in each of 64 stretches of time: median of the slopes of all pairs (Theil, Sen), median
    intercept.  `own_ps` and `shown_ps` are times of the same events, at least one.
    """
    apart = shown_ps - own_ps
    origin, closest = int(own_ps.min()), int(apart.min())
    # What is left is small, so that floats hold each ps of it however long the device has counted.
    at, late = (own_ps - origin).astype(np.float64), (apart - closest).astype(np.float64)
    bins = (at * (_BINS / (at.max() + 1))).astype(np.int64)
    order = np.lexsort((late, bins))
    least = order[np.unique(bins[order], return_index=True)[1]]
    x, y = at[least], late[least]
    one, other = np.triu_indices(len(x), 1)
    slope = float(np.median((y[other] - y[one]) / (x[other] - x[one]))) if len(one) else 0.0
    slope = slope if abs(slope) < _LARGEST_SKEW else 0.0
    intercept = float(np.median(y - slope * x))
    late_ps = np.rint(intercept + slope * (instants_ps - origin)).astype(np.int64)
    host: Int64 = instants_ps + closest + late_ps
    return host


class DeviceClock:
    """Moves a device's other rows as its ops were moved; times in ns, as shown and as they are now."""

    def __init__(self, shown_start: Int64, shown_end: Int64, start: Int64, end: Int64) -> None:
        order = np.argsort(shown_start, kind="stable")
        # Ops shown at one instant may stand in any order: of those from one on the first, up to one the last.
        self.shown_start, self.start = shown_start[order], np.minimum.accumulate(start[order][::-1])[::-1]
        self.shown_end, self.end = (np.maximum.accumulate(ends[order]) for ends in (shown_end, end))
        self.largest_error_ns = int(abs(shown_start - start).max())
        """By how much an op was shown too early or too late."""

    def move_begins(self, shown: Int64) -> Int64:
        """Begins move as the op that begins then or next."""
        at = np.minimum(np.searchsorted(self.shown_start, shown), len(self.start) - 1)
        return shown + (self.start - self.shown_start)[at]

    def move_ends(self, shown: Int64) -> Int64:
        """Ends move as the end of the op that began last before."""
        at = np.maximum(np.searchsorted(self.shown_start, shown) - 1, 0)
        moved: Int64 = shown + (self.end - self.shown_end)[at]
        return moved
