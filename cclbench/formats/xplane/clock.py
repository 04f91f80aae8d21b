# SPDX-License-Identifier: Apache-2.0
"""Correct the times of TPU ops by the device's own clock, if ops state it.

The profiler converts an op's time to the host's clock.  For some consecutive ops it errs by as much as 0.2 s:
the op before them appears longer, later ones shorter or without duration, and step times vary that did not.
`device_offset_ps` and `device_duration_ps` are the device's own counts.
"""

from __future__ import annotations

import numpy as np

from cclbench.ground.intervals import Int64

_BINS = 64
_LARGEST_SKEW = 2e-4
"""Quartz clocks differ by less; a larger slope is the profiler's error."""


def on_host(own_ps: Int64, shown_ps: Int64, instants_ps: Int64) -> Int64:
    """Convert instants of the device's clock to the host's, in ps.

    Most ops are shown at the right time, so the clocks differ by a robust line through the smallest
    difference shown − own in each of 64 time bins: median of the slopes of all pairs (Theil-Sen), median
    intercept.  `own_ps` and `shown_ps` are times of the same events, at least one.
    """
    difference = shown_ps - own_ps
    origin, closest = int(own_ps.min()), int(difference.min())
    # Relative values are small enough for floats to resolve a ps.
    at, late = (own_ps - origin).astype(np.float64), (difference - closest).astype(np.float64)
    bins = (at * (_BINS / (at.max() + 1))).astype(np.int64)
    order = np.lexsort((late, bins))
    least = order[np.unique(bins[order], return_index=True)[1]]
    x, y = at[least], late[least]
    i, j = np.triu_indices(len(x), 1)
    slope = float(np.median((y[j] - y[i]) / (x[j] - x[i]))) if len(i) else 0.0
    slope = slope if abs(slope) < _LARGEST_SKEW else 0.0
    intercept = float(np.median(y - slope * x))
    late_ps = np.rint(intercept + slope * (instants_ps - origin)).astype(np.int64)
    host: Int64 = instants_ps + closest + late_ps
    return host


class DeviceClock:
    """Moves a device's other rows with its ops; times in ns, as shown and as corrected."""

    def __init__(self, shown_start: Int64, shown_end: Int64, start: Int64, end: Int64) -> None:
        order = np.argsort(shown_start, kind="stable")
        # Ops shown at the same instant may be in any order: take the first start from one on, the last end up
        # to one.
        self.shown_start, self.start = shown_start[order], np.minimum.accumulate(start[order][::-1])[::-1]
        self.shown_end, self.end = (np.maximum.accumulate(ends[order]) for ends in (shown_end, end))
        self.largest_error_ns = int(abs(shown_start - start).max())
        """Largest difference between shown and corrected start."""

    def move_begins(self, shown: Int64) -> Int64:
        """Move start times with the op that begins then or next."""
        at = np.minimum(np.searchsorted(self.shown_start, shown), len(self.start) - 1)
        return shown + (self.start - self.shown_start)[at]

    def move_ends(self, shown: Int64) -> Int64:
        """Move end times with the end of the last op that began before."""
        at = np.maximum(np.searchsorted(self.shown_start, shown) - 1, 0)
        moved: Int64 = shown + (self.end - self.shown_end)[at]
        return moved
