# SPDX-License-Identifier: Apache-2.0
"""Device rows of a rank with their launches."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cclbench.ground.intervals import Index, Int64, begins, union_lengths


@dataclass(frozen=True, slots=True, eq=False)
class Launched:
    """Device rows with the thread and time of their launches, arrays of shape (rows,)."""

    track: Int64
    at: Int64
    """Launch time, ns, −1 if unknown."""
    starts: Int64
    ends: Int64
    operator: Int64
    """Id of the call that the trace states, −1 for none."""

    def __len__(self) -> int:
        return len(self.at)

    def by_thread(self) -> dict[int, Int64]:
        """Launch times of each thread, ns, sorted."""
        has_time = self.at >= 0
        track, at = self.track[has_time], self.at[has_time]
        order = np.lexsort((at, track))
        track, at = track[order], at[order]
        first = np.flatnonzero(begins(track))
        return dict(zip(track[first].tolist(), np.split(at, first[1:]), strict=False))

    def stated_calls(self) -> Int64:
        """Unique ids of the calls that the rows state, sorted."""
        return np.unique(self.operator[self.operator >= 0])


def device_time(call: Index, starts: Int64, ends: Int64, calls: int) -> tuple[Int64, Int64]:
    """Number of device rows of each call and their union, ns; `call` is each row's, of `calls` in all."""
    return np.bincount(call, minlength=calls), union_lengths(call, starts, ends, calls)
