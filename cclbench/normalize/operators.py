# SPDX-License-Identifier: Apache-2.0
"""Nested ranges on host threads, such as operator calls: parents, and the innermost range at an instant."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa

from cclbench.ground import intervals
from cclbench.ground.intervals import Index, Int64, Mask

_WRAPPER: Final = re.compile(r"(?:torch::)?autograd::|[^:]*$")


def is_wrapper(name: str) -> bool:
    """Whether a host row is a wrapper of operators: `autograd::...`, or a name without a namespace."""
    return _WRAPPER.match(name) is not None


@dataclass(frozen=True, slots=True, eq=False)
class Ranges:
    """Ranges on threads, arrays of shape (ranges,), sorted by thread, then start, the outer one first.

    The ranges of a thread nest, as on its stack.
    """

    track: Int64
    start_ns: Int64
    end_ns: Int64

    @staticmethod
    def order_of(track: Int64, start_ns: Int64, end_ns: Int64, number: Int64) -> Int64:
        """Indices that sort ranges in that order; of equal ranges the higher `number` is the inner one."""
        return np.lexsort((number, -end_ns, start_ns, track))

    def _ranges_of_threads(self) -> tuple[Int64, list[slice]]:
        """The threads, ascending, and the slice of each one's ranges."""
        first = np.flatnonzero(intervals.begins(self.track))
        return self.track[first], [slice(*bounds) for bounds in pairwise([*first.tolist(), len(self.track)])]

    def _on_threads(self, track: Int64) -> Iterator[tuple[slice, Int64]]:
        """The slice of each thread's ranges and the indices of `track` on it."""
        threads, ranges = self._ranges_of_threads()
        for place, rows in intervals.by_code(track, threads):
            yield ranges[place], rows

    def parent_indices(self) -> Index:
        """Index of the innermost range in which each one begins, −1 for none; shape (ranges,)."""
        parents = np.empty(len(self.track), np.int32)
        for on_thread in self._ranges_of_threads()[1]:
            starts, ends = self.start_ns[on_thread], self.end_ns[on_thread]
            parent = intervals.outwards(np.arange(-1, len(starts) - 1), starts, ends)
            parents[on_thread] = np.where(parent >= 0, parent + on_thread.start, -1)
        return parents

    def innermost_at(self, track: Int64, at: Int64) -> Index:
        """Index of the innermost range on each thread at each instant, −1 for none; shape of `at`."""
        indices = np.full(len(at), -1, np.int32)
        for on_thread, rows in self._on_threads(track):
            index = intervals.innermost(self.start_ns[on_thread], self.end_ns[on_thread], at[rows])
            indices[rows] = np.where(index >= 0, index + on_thread.start, -1)
        return indices

    def is_inside(self, track: Int64, at: Int64) -> Mask:
        """Whether any range of the thread contains each instant, shape of `at`."""
        inside = np.zeros(len(at), np.bool_)
        for on_thread, rows in self._on_threads(track):
            # The latest end of all ranges begun so far; the first element is for none.
            reach = np.append(np.iinfo(np.int64).min, np.maximum.accumulate(self.end_ns[on_thread]))
            inside[rows] = reach[np.searchsorted(self.start_ns[on_thread], at[rows], side="right")] > at[rows]
        return inside

    def select_ranges(self, chosen: Mask) -> Ranges:
        """The `chosen` ranges."""
        return Ranges(self.track[chosen], self.start_ns[chosen], self.end_ns[chosen])


def join_ranges(*several: Ranges) -> tuple[Ranges, Int64]:
    """All ranges in order, and the index of each in the concatenated input."""
    track, start, end = (
        np.concatenate([getattr(ranges, edge) for ranges in (NO_RANGES, *several)])
        for edge in ("track", "start_ns", "end_ns")
    )
    order = Ranges.order_of(track, start, end, np.arange(len(track)))
    return Ranges(track[order], start[order], end[order]), order


def nearest_flagged(parents: Index, flag: Mask) -> Index:
    """Index of the nearest flagged call among each call and its ancestors, −1 for none."""
    none = np.int32(len(parents))
    indices = np.arange(len(parents), dtype=np.int32)
    step = np.append(np.where(flag, indices, parents), none)  # a parent of −1 is the last element
    while ((further := step[step]) != step).any():
        step = further
    nearest = step[:-1]
    return np.where(nearest == none, -1, nearest)


def inherited_numbers(parents: Index, numbers: pa.ChunkedArray) -> Int64:
    """The number of each call, else that of its nearest ancestor that has one; −1 for none."""
    at = nearest_flagged(parents, numbers.is_valid().to_numpy())
    return np.asarray(np.append(numbers.fill_null(-1).to_numpy(), -1)[at], np.int64)


def holds_chosen(parents: Index, chosen: Mask) -> Mask:
    """Which calls contain a chosen one, shape (calls,)."""
    has_chosen = np.zeros(len(parents), np.bool_)
    above = np.unique(parents[chosen])
    while len(above := above[~np.append(has_chosen, True)[above]]):
        has_chosen[above] = True
        above = np.unique(parents[above])
    return has_chosen


class Ids:
    """Index of calls by id; ids may be in any order."""

    def __init__(self, ids: Int64) -> None:
        self._order = np.argsort(ids, kind="stable").astype(np.int32)
        self._sorted = ids[self._order]

    def index_of(self, ids: Int64) -> Index:
        """Index of each id, −1 if it does not exist, shape of `ids`."""
        at = np.searchsorted(self._sorted, ids)
        indices = np.full(len(ids), -1, np.int32)
        is_present = at < len(self._sorted)
        is_present[is_present] = self._sorted[at[is_present]] == ids[is_present]
        indices[is_present] = self._order[at[is_present]]
        return indices


NO_RANGES = Ranges(*(np.empty(0, np.int64) for _ in range(3)))


def count_launches(track: Int64, start: Int64, end: Int64, launched: Mapping[int, Int64]) -> Int64:
    """Number of launches of its thread that each range encloses, shape (ranges,); `launched`: the sorted
    launch times of each thread, ns."""
    count = np.zeros(len(start), np.int64)
    for thread, at in launched.items():
        on_thread = track == thread
        count[on_thread] = np.searchsorted(at, end[on_thread]) - np.searchsorted(at, start[on_thread])
    return count
