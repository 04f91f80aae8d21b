# SPDX-License-Identifier: Apache-2.0
"""Ranges of host threads that nest, such as operators' calls: which holds which, which held an instant."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa

from cclbench.ground import intervals
from cclbench.ground.intervals import Index, Int64, Mask

_WRAPPER: Final = re.compile(r"(?:torch::)?autograd::|[^:]*$")


def is_wrapper(name: str) -> bool:
    """Whether a host row is around operators (`autograd::engine::...`), which have namespaces themselves."""
    return _WRAPPER.match(name) is not None


@dataclass(frozen=True, slots=True, eq=False)
class Ranges:
    """Ranges on threads, arrays of shape (ranges,), by thread, then start, then the outer of two.

    The ranges of a thread nest, as on its stack.
    """

    track: Int64
    start_ns: Int64
    end_ns: Int64

    @staticmethod
    def order_of(track: Int64, start_ns: Int64, end_ns: Int64, number: Int64) -> Int64:
        """Where ranges stand in that order; ids count up, so of equal ranges the later one is the inner."""
        return np.lexsort((number, -end_ns, start_ns, track))

    def _ranges_of_threads(self) -> tuple[Int64, list[slice]]:
        """The threads, ascending, and where the ranges of each are."""
        first = np.flatnonzero(intervals.begins(self.track))
        return self.track[first], [slice(*bounds) for bounds in pairwise([*first.tolist(), len(self.track)])]

    def _on_threads(self, track: Int64) -> Iterator[tuple[slice, Int64]]:
        """The ranges of each thread that has rows of these tracks, and those rows."""
        threads, ranges = self._ranges_of_threads()
        for place, rows in intervals.by_code(track, threads):
            yield ranges[place], rows

    def parent_indices(self) -> Index:
        """Index of the innermost range that each one begins in, −1 for none; shape (ranges,)."""
        found = np.empty(len(self.track), np.int32)
        for own in self._ranges_of_threads()[1]:
            starts, ends = self.start_ns[own], self.end_ns[own]
            parent = intervals.outwards(np.arange(-1, len(starts) - 1), starts, ends)
            found[own] = np.where(parent >= 0, parent + own.start, -1)
        return found

    def innermost_at(self, track: Int64, at: Int64) -> Index:
        """Index of the innermost range on each thread at each instant, −1 for none; shape of `at`."""
        found = np.full(len(at), -1, np.int32)
        for own, here in self._on_threads(track):
            index = intervals.innermost(self.start_ns[own], self.end_ns[own], at[here])
            found[here] = np.where(index >= 0, index + own.start, -1)
        return found

    def is_inside(self, track: Int64, at: Int64) -> Mask:
        """Whether some range of each thread holds each instant, shape of `at`."""
        found = np.zeros(len(at), np.bool_)
        for own, here in self._on_threads(track):
            # The latest end of all that have begun: the first element stands for none.
            reach = np.append(np.iinfo(np.int64).min, np.maximum.accumulate(self.end_ns[own]))
            found[here] = reach[np.searchsorted(self.start_ns[own], at[here], side="right")] > at[here]
        return found

    def select_ranges(self, chosen: Mask) -> Ranges:
        """Some of the ranges."""
        return Ranges(self.track[chosen], self.start_ns[chosen], self.end_ns[chosen])


def join_ranges(*several: Ranges) -> tuple[Ranges, Int64]:
    """All ranges of them in order, and where each stood in them one after another."""
    track, start, end = (
        np.concatenate([getattr(one, edge) for one in (NO_RANGES, *several)])
        for edge in ("track", "start_ns", "end_ns")
    )
    order = Ranges.order_of(track, start, end, np.arange(len(track)))
    return Ranges(track[order], start[order], end[order]), order


def nearest_flagged(parents: Index, flag: Mask) -> Index:
    """Index of the nearest flagged one of each and what holds it, −1 for none."""
    none = np.int32(len(parents))
    own = np.arange(len(parents), dtype=np.int32)
    step = np.append(np.where(flag, own, parents), none)  # where parents say −1: the last
    while ((further := step[step]) != step).any():
        step = further
    found = step[:-1]
    return np.where(found == none, -1, found)


def inherited_numbers(parents: Index, numbers: pa.ChunkedArray) -> Int64:
    """The number of each call, else of the nearest one that holds it and has one; −1 for none."""
    at = nearest_flagged(parents, numbers.is_valid().to_numpy())
    return np.asarray(np.append(numbers.fill_null(-1).to_numpy(), -1)[at], np.int64)


def holds_chosen(parents: Index, chosen: Mask) -> Mask:
    """Which calls hold a chosen one, shape (calls,)."""
    found = np.zeros(len(parents), np.bool_)
    above = np.unique(parents[chosen])
    while len(above := above[~np.append(found, True)[above]]):
        found[above] = True
        above = np.unique(parents[above])
    return found


class Ids:
    """Ids of calls, in any order: where each stands."""

    def __init__(self, ids: Int64) -> None:
        self._order = np.argsort(ids, kind="stable").astype(np.int32)
        self._sorted = ids[self._order]

    def index_of(self, wanted: Int64) -> Index:
        """Index of each id, −1 where it is none, shape of `wanted`."""
        at = np.searchsorted(self._sorted, wanted)
        found = np.full(len(wanted), -1, np.int32)
        known = at < len(self._sorted)
        known[known] = self._sorted[at[known]] == wanted[known]
        found[known] = self._order[at[known]]
        return found


NO_RANGES = Ranges(*(np.empty(0, np.int64) for _ in range(3)))
