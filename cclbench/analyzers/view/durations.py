# SPDX-License-Identifier: Apache-2.0
"""Distributions of durations, kept exactly: how many calls took each number of nanoseconds."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from cclbench.ground.intervals import Int64


@dataclass(frozen=True, slots=True, eq=False)
class Durations:
    """Distinct durations in ns, ascending, and the number of calls of each."""

    ns: Int64 = field(default_factory=lambda: np.empty(0, np.int64))
    counts: Int64 = field(default_factory=lambda: np.empty(0, np.int64))

    def __add__(self, other: Durations) -> Durations:
        if not len(self.ns):
            return other
        ns, place = np.unique(np.append(self.ns, other.ns), return_inverse=True)
        counts = np.zeros(len(ns), np.int64)
        np.add.at(counts, place, np.append(self.counts, other.counts))
        return Durations(ns, counts)

    @property
    def max_ns(self) -> int | None:
        """The longest; None without calls."""
        return int(self.ns[-1]) if len(self.ns) else None

    def quantile_ns(self, share: float) -> float | None:
        """The quantile, interpolated linearly between neighbouring calls; None without calls."""
        if not len(self.ns):
            return None
        until = np.cumsum(self.counts)
        place = share * (int(until[-1]) - 1)
        low, high = (
            int(self.ns[np.searchsorted(until, rank, "right")]) for rank in (int(place), -int(-place // 1))
        )
        return low + (high - low) * (place - int(place))


def durations_by_code(codes: Int64, ns: Int64, count: int) -> list[Durations]:
    """The distribution of each of `count` codes."""
    order = np.lexsort((ns, codes))
    sorted_codes, sorted_ns = codes[order], ns[order]
    is_new = np.ones(len(order), np.bool_)
    is_new[1:] = (sorted_codes[1:] != sorted_codes[:-1]) | (sorted_ns[1:] != sorted_ns[:-1])
    first = np.flatnonzero(is_new)
    counts = np.diff(np.append(first, len(order)))
    bounds = np.searchsorted(sorted_codes[first], np.arange(count + 1)).tolist()
    values = sorted_ns[first]
    return [Durations(values[a:b], counts[a:b]) for a, b in pairwise(bounds)]
