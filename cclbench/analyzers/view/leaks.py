# SPDX-License-Identifier: Apache-2.0
"""Call sites that allocate memory in step after step and free none of it.

What is allocated before the first step end is warm-up and not judged. Of a call site's later blocks those
count that outlive the step they are from. The call site leaks where

- the recording has at least `LEAST_STEPS` step ends,
- none of its blocks that lasted to a second step end is freed: ring buffers, prefetched input and garbage
  that is collected now and then free some,
- blocks of at least `LEAST_BIRTHS` steps remain at the last step end,
- their births do not slow down: neither is the mean distance of the later ones more than `_SLOWER` times that
  of the earlier ones, nor has there been none for longer than `_SLOWER` times the longest distance, nor are
  the bytes of the later births less than `1 / _SLOWER` of those of the earlier ones. A cache that saturates
  slows down.

A cache that is still filling as fast at the last step as at the first one cannot be told from a leak.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from cclbench.analyzers.view.allocator import OLDER, History, Owners
from cclbench.ground.intervals import Int64

LEAST_STEPS: Final = 6
LEAST_BIRTHS: Final = 4
_SLOWER: Final = 2.0


@dataclass(frozen=True, slots=True)
class SiteGrowth:
    """What one call site keeps at the ends of steps."""

    call_site: str | None
    first: int
    """Bytes at the first step end."""
    last: int
    """Bytes at the last step end."""
    bytes_per_step: float
    """Of blocks that were allocated after the first step end and remain at the last one."""
    leaks: bool


def growth_by_site(history: History) -> list[SiteGrowth] | None:
    """The call sites that grow from the first to the last step end, leaks and then the fastest first.

    None where the recording has no call sites or fewer than two step ends.
    """
    owners, ends = history.owners, history.step_ends
    if owners is None or ends is None or len(ends) < 2:
        return None
    grown = []
    first, last = (_bytes_by_owner(owners, int(moment)) for moment in ends[[0, -1]])
    for owner, call_site in enumerate(owners.call_sites):
        if owner != OLDER and last[owner] > first[owner]:
            kept = _Births.from_owner(owners, owner, ends)
            rate = float(kept.bytes.sum()) / (len(ends) - 1)
            leaks = len(ends) >= LEAST_STEPS and kept.continue_unfreed(len(ends) - 1)
            grown.append(SiteGrowth(call_site, int(first[owner]), int(last[owner]), rate, leaks))
    return sorted(grown, key=lambda site: (not site.leaks, -site.bytes_per_step, site.call_site or ""))


def _bytes_by_owner(owners: Owners, moment: int) -> Int64:
    live = owners.live_at(moment)
    held = np.zeros(len(owners.call_sites), np.int64)
    np.add.at(held, owners.owner[live], owners.bytes[live])
    return held


@dataclass(frozen=True, slots=True, eq=False)
class _Births:
    """The steps, from 1, in which an owner allocated blocks that remain; arrays of shape (births,)."""

    step: Int64
    bytes: Int64
    freed: bool
    """Whether it freed a block that had lasted to a second step end."""

    @classmethod
    def from_owner(cls, owners: Owners, owner: int, ends: Int64) -> _Births:
        chosen = (owners.owner == owner) & (owners.begin > ends[0]) & (owners.begin <= ends[-1])
        begin, end, size = owners.begin[chosen], owners.end[chosen], owners.bytes[chosen]
        born = np.searchsorted(ends, begin, side="left")
        outlived = np.searchsorted(ends, end, side="left") - born
        freed = (end <= ends[-1]) & (outlived >= 2)
        remains = end > ends[-1]
        steps, places = np.unique(born[remains], return_inverse=True)
        kept = np.zeros(len(steps), np.int64)
        np.add.at(kept, places, size[remains])
        return cls(steps, kept, bool(freed.any()))

    def continue_unfreed(self, last: int) -> bool:
        """Whether births go on to the `last` step as they began, and nothing is freed."""
        if self.freed or len(self.step) < LEAST_BIRTHS:
            return False
        distances = np.diff(np.append(0, self.step))
        half = len(distances) // 2
        earlier, later = distances[:half], distances[half:]
        slows = later.mean() > _SLOWER * earlier.mean() or last - self.step[-1] > _SLOWER * distances.max()
        shrinks = self.bytes[half:].mean() * _SLOWER < self.bytes[:half].mean()
        return not (slows or shrinks)
