# SPDX-License-Identifier: Apache-2.0
"""Align two sequences of kernels that differ in few places, and know which pairs are certain."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from cclbench.ground.intervals import Int64, Mask

MOST_DIFFERENCES: Final = 256
"""Most kernels that one of two aligned sequences has and the other lacks: at 100,000 kernels a second."""
_UNREACHED: Final = -(1 << 40)


@dataclass(frozen=True, slots=True, eq=False)
class Alignment:
    """A longest common subsequence of `a` and `b` as pairs of their indices, ascending.

    `best` are all pairs that longest common subsequences consist of: ranges of `a`, of shape (ranges, 3) with
    first, end, and the difference to the index in `b`; `spare` are ranges of `b` that one of them leaves out.
    """

    a: Int64
    b: Int64
    best: Int64
    spare: Int64
    length: int
    """Number of kernels in the second sequence."""

    def certain(self, content: Int64) -> Mask:
        """Of each pair, whether every longest common subsequence pairs its `b` with an `a` of equal content.

        `content` is a code for each place of the first sequence.
        """
        limits = np.iinfo(np.int64)
        least, most = np.full(self.length, limits.max), np.full(self.length, limits.min)
        for first, end, shift in self.best.tolist():
            b_range, codes = slice(first - shift, end - shift), content[first:end]
            np.minimum(least[b_range], codes, out=least[b_range])
            np.maximum(most[b_range], codes, out=most[b_range])
        for first, end in self.spare.tolist():
            least[first:end], most[first:end] = limits.min, limits.max
        return np.asarray((least == most)[self.b])


def align_kernels(a: Int64, b: Int64, most: int = MOST_DIFFERENCES) -> Alignment | None:
    """Align two sequences of codes; None if they differ in more than `most` places.

    Myers' furthest reach by number of differences (1986), from both ends: a pair is on a shortest path if the
    differences before and after it add up to the least.  Time and memory grow with `most` times the length at
    worst.
    """
    if abs(len(a) - len(b)) > most:
        return None
    reach = _furthest_reaches(a, b, most)
    back = None if reach is None else _furthest_reaches(a[::-1], b[::-1], most)
    if reach is None or back is None:
        return None
    return Alignment(*_walk_back(reach, len(a), len(b)), *_shortest_paths(a, b, reach, back), len(b))


def _furthest_reaches(a: Int64, b: Int64, most: int) -> list[Int64] | None:
    """Furthest place in `a` on each diagonal −d, 2 − d, ..., d for d = 0, 1, ... until both ends are reached.

    A diagonal is the place in `a` less that in `b`.  None if it takes more than `most` differences.
    """
    end = len(a) - len(b)
    reaches: list[Int64] = []
    for d in range(most + 1):
        diagonal = np.arange(-d, d + 1, 2)
        at = np.zeros(1, np.int64)
        if d:
            at = np.maximum(*_with_one_more(reaches[-1], diagonal, len(a), len(b)))
        inside = at >= 0
        places = zip(at[inside].tolist(), diagonal[inside].tolist(), strict=True)
        at[inside] = [_end_of_equal(a, b, x, x - k) for x, k in places]
        reaches.append(at)
        if abs(end) <= d and (end + d) % 2 == 0 and at[(end + d) // 2] == len(a):
            return reaches
    return None


def _with_one_more(reach: Int64, diagonal: Int64, a: int, b: int) -> tuple[Int64, Int64]:
    """Places reached with one difference more, of `b` or of `a`, which are the lengths of both."""
    of_b, of_a = np.append(reach, _UNREACHED), np.append(_UNREACHED, reach + 1)
    return (
        np.where(of_b - diagonal <= b, of_b, _UNREACHED),
        np.where(of_a <= a, of_a, _UNREACHED),
    )


def _end_of_equal(a: Int64, b: Int64, x: int, y: int) -> int:
    """End in `a` of the equal stretch that begins at `x` and `y`."""
    width = 64
    while True:
        other = a[x : x + width][: len(b) - y] != b[y : y + width][: len(a) - x]
        first = int(other.argmax()) if len(other) else 0
        if len(other) and other[first]:
            return x + first
        x, y = x + len(other), y + len(other)
        if len(other) < width:
            return x
        width *= 4


def _shortest_paths(a: Int64, b: Int64, reach: list[Int64], back: list[Int64]) -> tuple[Int64, Int64]:
    """Pairs and left-out places of `b` on paths of fewest differences; see `Alignment`."""
    total, end = len(reach) - 1, len(a) - len(b)
    best, spare = [], []
    below: dict[int, tuple[int, int]] = {}
    for d in range(total + 1):
        diagonal = np.arange(-d, d + 1, 2)
        rest = (end - diagonal + total - d) // 2
        inside = (rest >= 0) & (rest <= total - d)
        lows = len(a) - np.where(inside, back[total - d][np.clip(rest, 0, total - d)], _UNREACHED)
        ranges = {
            k: (low, high)
            for k, low, high in zip(diagonal.tolist(), lows.tolist(), reach[d].tolist(), strict=True)
            if low <= high
        }
        for k, (low, high) in ranges.items():
            equal = np.flatnonzero(np.diff(np.r_[0, a[low:high] == b[low - k : high - k], 0]))
            best += [(low + first, low + last, k) for first, last in equal.reshape(-1, 2).tolist()]
            if k + 1 in below:  # one more of b leads here from the diagonal above
                first, last = max(low, below[k + 1][0]), min(high, below[k + 1][1])
                spare += [(first - k - 1, last - k)] if first <= last else []
        below = ranges
    return np.array(best, np.int64).reshape(-1, 3), np.array(spare, np.int64).reshape(-1, 2)


def _walk_back(reach: list[Int64], a: int, b: int) -> tuple[Int64, Int64]:
    """Pairs on one of the shortest paths."""
    pairs = [np.empty(0, np.int64)]
    diagonals = [np.empty(0, np.int64)]
    x, k = a, a - b
    for d in range(len(reach) - 1, -1, -1):
        begin, is_of_b = 0, False
        if d:
            of_b, of_a = _with_one_more(reach[d - 1], np.arange(-d, d + 1, 2), a, b)
            at = (k + d) // 2
            begin, is_of_b = int(max(of_a[at], of_b[at])), bool(of_b[at] >= of_a[at])
        pairs.append(np.arange(begin, x))
        diagonals.append(np.full(x - begin, k))
        x, k = (begin, k + 1) if is_of_b else (begin - 1, k - 1)
    places = np.concatenate(pairs[::-1])
    return places, places - np.concatenate(diagonals[::-1])
