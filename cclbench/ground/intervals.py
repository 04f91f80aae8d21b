# SPDX-License-Identifier: Apache-2.0
"""Interval algebra on int64 nanoseconds: union, intersect, subtract, length.

Intervals are half-open [start, end).  An `Intervals` value is a set of points in time, held as sorted,
disjoint, non-touching, non-empty pieces; every operation is exact and vectorised.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt

Int64 = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Index = npt.NDArray[np.int32]
"""Indices into another array, −1 for none."""
_STEPS_OUTWARDS: Final = 16
"""Levels of nesting that are walked one by one: few ranges are nested deeper."""


@dataclass(frozen=True, slots=True, eq=False)
class Intervals:
    """A set of instants: `starts[i] < ends[i] < starts[i+1]`, int64 ns, shape (n,)."""

    starts: Int64
    ends: Int64

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def length(self) -> int:
        """|X|: total length in ns."""
        return int((self.ends - self.starts).sum())


EMPTY = Intervals(np.empty(0, np.int64), np.empty(0, np.int64))


def union(starts: Int64, ends: Int64) -> Intervals:
    """The union of intervals in any order, overlapping or not; empty ones are dropped."""
    full = ends > starts
    starts, ends = starts[full], ends[full]
    if not len(starts):
        return EMPTY
    order = np.argsort(starts, kind="stable")
    starts, reach = starts[order], np.maximum.accumulate(ends[order])
    first = np.empty(len(starts), np.bool_)
    first[0] = True
    np.greater(starts[1:], reach[:-1], out=first[1:])
    last = np.append(np.flatnonzero(first)[1:] - 1, len(starts) - 1)
    return Intervals(starts[first], reach[last])


def union_lengths(owner: Int64 | Index, starts: Int64, ends: Int64, owners: int) -> Int64:
    """|the intervals of each owner|, for owners 0 to `owners` − 1; shape (owners,)."""
    order = np.lexsort((starts, owner))
    owner, starts, ends = owner[order], starts[order], ends[order]
    total = np.zeros(owners, np.int64)
    np.add.at(total, owner, ends - starts)
    # If no interval overlaps its neighbour, none overlaps any.
    overlaps = (owner[1:] == owner[:-1]) & (starts[1:] < ends[:-1])
    for number in np.unique(owner[1:][overlaps]).tolist():
        rows = slice(*np.searchsorted(owner, (number, number + 1)))
        total[number] = union(starts[rows], ends[rows]).length
    return total


def join(*sets: Intervals) -> Intervals:
    """X ∪ Y ∪ ..."""
    return union(
        np.concatenate([EMPTY.starts, *(s.starts for s in sets)]),
        np.concatenate([EMPTY.ends, *(s.ends for s in sets)]),
    )


def intersect(a: Intervals, b: Intervals) -> Intervals:
    """X ∩ Y."""
    edges, (in_a, in_b) = atoms([a, b])
    return _masked_pieces(edges, in_a & in_b)


def subtract(a: Intervals, b: Intervals) -> Intervals:
    r"""X \ Y."""
    edges, (in_a, in_b) = atoms([a, b])
    return _masked_pieces(edges, in_a & ~in_b)


def atoms(sets: Sequence[Intervals], cuts: Int64 | None = None) -> tuple[Int64, list[Mask]]:
    """Cut time at every edge of every set, and at `cuts`.

    Returns the sorted distinct edges, shape (m+1,), and for each set a mask, shape (m,), of the
    pieces [edges[i], edges[i+1]) it covers: any set expression is then boolean algebra on masks.
    """
    parts = [edge for s in sets for edge in (s.starts, s.ends)]
    edges = _distinct_values(np.concatenate([*parts, cuts] if cuts is not None else parts))
    left = edges[:-1]
    masks = []
    for s in sets:
        at = np.searchsorted(s.starts, left, side="right") - 1
        masks.append((at >= 0) & (left < s.ends[at]) if len(s) else np.zeros(len(left), np.bool_))
    return edges, masks


def lengths(edges: Int64, mask: Mask, starts: Int64, ends: Int64) -> Int64:
    """Length of the masked pieces inside each window [starts[i], ends[i]), shape of `starts`.

    Windows may overlap; each of their bounds must be among `edges` (pass them as `cuts`).
    """
    covered = np.concatenate([[0], np.cumsum(np.where(mask, np.diff(edges), 0))]).astype(np.int64)
    return np.asarray(
        covered[np.searchsorted(edges, ends)] - covered[np.searchsorted(edges, starts)], dtype=np.int64
    )


def within(s: Intervals, starts: Int64, ends: Int64) -> Int64:
    """|X ∩ [starts[i], ends[i])| for each window i, shape of `starts`; windows may overlap, in any order."""
    length_before = np.concatenate([[0], np.cumsum(s.ends - s.starts)])
    end_before = np.concatenate([[np.iinfo(np.int64).min], s.ends])

    def covered_until(until: Int64) -> Int64:
        """|X ∩ (−∞, until)|: whole pieces that begin before, less what the last one has beyond."""
        begun = np.searchsorted(s.starts, until, side="left")
        beyond = np.maximum(end_before[begun], until) - until
        return np.asarray(length_before[begun] - beyond, dtype=np.int64)

    return covered_until(ends) - covered_until(starts)


def clipped(s: Intervals, start: int, end: int) -> Intervals:
    """X ∩ [start, end)."""
    if end <= start:
        return EMPTY
    first, last = np.searchsorted(s.ends, start, side="right"), np.searchsorted(s.starts, end, side="left")
    return Intervals(np.maximum(s.starts[first:last], start), np.minimum(s.ends[first:last], end))


def begins(codes: npt.NDArray[np.signedinteger], *more: npt.NDArray[np.signedinteger]) -> Mask:
    """Whether each row differs from the row before in any column, true for the first; shape (rows,)."""
    differs = np.zeros(len(codes), np.bool_)
    differs[:1] = True
    for column in (codes, *more):
        differs[1:] |= column[1:] != column[:-1]
    return differs


def occurrence(codes: Int64, order: Int64 | None = None) -> Int64:
    """The index of each row among the rows of its code, in the given or their own order; shape (rows,)."""
    by_code = (
        np.argsort(codes, kind="stable") if order is None else order[np.argsort(codes[order], kind="stable")]
    )
    first = np.flatnonzero(begins(codes[by_code]))
    count = np.diff(np.append(first, len(codes)))
    place = np.empty(len(codes), np.int64)
    place[by_code] = np.arange(len(codes)) - np.repeat(first, count)
    return place


def enclosing(ends: Int64) -> Index:
    """For each range, sorted by start, the last one before it that ends after it; −1 for none."""
    around = np.arange(-1, len(ends) - 1, dtype=np.int32)
    # Pointer doubling: the ranges between a range and its candidate end no later than the range itself.
    while (short := (around >= 0) & (ends[around] <= ends)).any():
        around[short] = around[around[short]]
    return around


def innermost(starts: Int64, ends: Int64, at: Int64) -> Int64:
    """For each instant, the last of the ranges, sorted by start, that contains it; −1 for none."""
    return outwards(np.searchsorted(starts, at, side="right") - 1, at, ends)


def outwards(index: npt.NDArray[np.signedinteger], at: Int64, ends: Int64) -> Int64:
    """From each range (−1 for none), the first enclosing one, or itself, that ends after each instant."""
    around, until = enclosing(ends), np.append(ends, np.iinfo(np.int64).max)
    result = index.astype(np.int64)
    pending = np.flatnonzero(at >= until[result])
    for _ in range(_STEPS_OUTWARDS):
        if not len(pending):
            return result
        result[pending] = around[result[pending]]
        pending = pending[at[pending] >= until[result[pending]]]
    # Deep nesting: jumps over 2^k ranges, the longest first.
    jumps = [np.append(around, np.int32(-1))]
    while (jumps[-1] >= 0).any():
        jumps.append(jumps[-1][jumps[-1]])
    for jump in reversed(jumps):
        further = jump[result[pending]]
        result[pending] = np.where(at[pending] >= until[further], further, result[pending])
    result[pending] = around[result[pending]]
    return result


def by_code(codes: Int64, sorted_codes: Int64) -> Iterator[tuple[int, Int64]]:
    """For each of `sorted_codes` that occurs, its index there and the rows that have it."""
    if not len(sorted_codes):
        return
    place = np.minimum(np.searchsorted(sorted_codes, codes), len(sorted_codes) - 1)
    rows = np.flatnonzero(sorted_codes[place] == codes)
    # For few codes, the small integer type makes this a radix sort.
    rows = rows[np.argsort(place[rows].astype(np.min_scalar_type(len(sorted_codes))), kind="stable")]
    place = place[rows]
    first = np.flatnonzero(begins(place))
    for begin, end in pairwise([*first.tolist(), len(rows)]):
        yield int(place[begin]), rows[begin:end]


def _distinct_values(values: Int64) -> Int64:
    """The distinct values, sorted: `np.unique`, but several times faster on partially sorted values."""
    values = np.sort(values, kind="stable")
    return values[begins(values)]


def _masked_pieces(edges: Int64, mask: Mask) -> Intervals:
    return union(edges[:-1][mask], edges[1:][mask])
