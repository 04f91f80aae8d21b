# SPDX-License-Identifier: Apache-2.0
"""Distributions of durations, kept exactly: how many calls took each number of nanoseconds."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np

from cclbench.ground.intervals import Int64

_MOST_PARTS: Final = 32
"""Distributions that a sum keeps side by side before it joins them."""


@dataclass(frozen=True, slots=True, eq=False)
class Durations:
    """Durations of calls in ns, as distinct values, ascending, with the number of calls of each.

    `parts`: of several ranks one after the other; each is (values, numbers).
    """

    parts: tuple[tuple[Int64, Int64], ...] = ()

    def __add__(self, other: Durations) -> Durations:
        both = Durations(self.parts + other.parts)
        return Durations((both.joined,)) if len(both.parts) > _MOST_PARTS else both

    @property
    def joined(self) -> tuple[Int64, Int64]:
        """The distinct values and their numbers over all parts."""
        if len(self.parts) == 1:
            return self.parts[0]
        empty = np.empty(0, np.int64)
        values = np.concatenate([empty, *(ns for ns, _ in self.parts)])
        numbers = np.concatenate([empty, *(counts for _, counts in self.parts)])
        ns, place = np.unique(values, return_inverse=True)
        counts = np.zeros(len(ns), np.int64)
        np.add.at(counts, place, numbers)
        return ns, counts

    @property
    def max_ns(self) -> int | None:
        """The longest; None without calls."""
        return max((int(ns[-1]) for ns, _ in self.parts if len(ns)), default=None)

    def quantile_ns(self, share: float) -> float | None:
        """The quantile, interpolated linearly between neighbouring calls; None without calls."""
        ns, counts = self.joined
        if not len(ns):
            return None
        until = np.cumsum(counts)
        place = share * (int(until[-1]) - 1)
        low, high = (
            int(ns[np.searchsorted(until, rank, "right")]) for rank in (int(place), -int(-place // 1))
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
    return [Durations(((values[a:b], counts[a:b]),)) for a, b in pairwise(bounds)]
