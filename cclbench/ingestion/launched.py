# SPDX-License-Identifier: Apache-2.0
"""Device rows of a rank by what launched them."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from cclbench.disk_columns import disk_array, pieces, release
from cclbench.ingestion.host_rows import HostRows
from cclbench.intervals import Index, Int64, begins, union_lengths


@dataclass(frozen=True, slots=True, eq=False)
class Launched:
    """Device rows by the host's instant that launched them, arrays of shape (rows,)."""

    track: Int64
    at: Int64
    """−1 where no launch is known."""
    starts: Int64
    ends: Int64
    operator: Int64
    """Id of the call that the trace states, −1 for none."""

    def __len__(self) -> int:
        return len(self.at)

    def release(self) -> None:
        """Let go of what was read."""
        release(self.track, self.at, self.starts, self.ends, self.operator)

    def by_thread(self) -> dict[int, Int64]:
        """The instants of each thread's launches, sorted."""
        found: defaultdict[int, list[Int64]] = defaultdict(list)
        for here in pieces(len(self), self):
            known = self.at[here] >= 0
            track, at = self.track[here][known], self.at[here][known]
            order = np.argsort(track, kind="stable")
            first = np.flatnonzero(begins(track[order]))
            for own in np.split(order, first[1:]) if len(order) else ():
                found[int(track[own[0]])].append(at[own])
        return {thread: np.sort(np.concatenate(found.pop(thread))) for thread in sorted(found)}

    def stated(self) -> Int64:
        """The ids of calls that the rows state, each once, sorted."""
        ids = self.operator[self.operator >= 0]
        ids.sort()
        return ids[begins(ids)]


class RowsByStretch:
    """Device rows by the stretch of the host's time that launched them; of no launch, that they begin in."""

    def __init__(self, launched: Launched, rows: HostRows) -> None:
        stretch = np.empty(len(launched), np.uint16)
        for here in pieces(len(launched), launched):
            at = launched.at[here]
            stretch[here] = rows.stretch_of(np.where(at >= 0, at, launched.starts[here]))
        self._order: Index = disk_array(len(launched), np.int32)
        self._order[:] = np.argsort(stretch, kind="stable")
        self._until = np.cumsum(np.bincount(stretch, minlength=rows.stretches))
        release(self._order)

    def __getitem__(self, stretch: int) -> Int64:
        """Which rows those of a stretch are."""
        first = self._until[stretch - 1] if stretch else 0
        return self._order[first : self._until[stretch]].astype(np.int64)


def device_time(call: Index, starts: Int64, ends: Int64, calls: int) -> tuple[Int64, Int64]:
    """How many device rows each call launched, and their union, ns; `call` is each row's, of so many."""
    return np.bincount(call, minlength=calls), union_lengths(call, starts, ends, calls)
