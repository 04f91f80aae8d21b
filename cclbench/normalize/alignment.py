# SPDX-License-Identifier: Apache-2.0
"""Align ranks' calls without sequence numbers on the common subsequence of their calls."""

from __future__ import annotations

from array import array
from typing import Final

import numpy as np
import numpy.typing as npt

from cclbench.ground.intervals import Int64, Mask, by_code

MOST_DIFFERENCES: Final = 2048
"""Most rows that one of two ranks has and the other lacks: two seconds of work and 16 MB."""


def align_sequences(rank: npt.NDArray[np.int32], call: Int64) -> tuple[Int64, Mask]:
    """Places of one group's rows, −1 for none, and which rows are ambiguous.

    Each rank is aligned with the one that has most rows; a pair counts only if the first and the last of the
    longest common subsequences agree on it.  All rows of a rank with more than `MOST_DIFFERENCES` differences
    are ambiguous.
    """
    ranks, counts = np.unique(rank, return_counts=True)
    longest = np.flatnonzero(rank == ranks[np.argmax(counts)])
    place = np.full(len(rank), -1, np.int64)
    ambiguous = np.zeros(len(rank), np.bool_)
    a = call[longest].tolist()
    for _, mine in by_code(rank.astype(np.int64), ranks.astype(np.int64)):
        b = call[mine].tolist()
        first, backwards = longest_common_subsequence(a, b), longest_common_subsequence(a[::-1], b[::-1])
        if first is None or backwards is None:
            ambiguous[mine] = True
            continue
        last = [(len(a) - 1 - i, len(b) - 1 - j) for i, j in backwards]
        agreed = set(first) & set(last)
        for i, j in agreed:
            place[mine[j]] = i
        unsure = {j for _, j in [*first, *last]} - {j for _, j in agreed}
        ambiguous[mine[sorted(unsure)]] = True
    return place, ambiguous


def longest_common_subsequence(a: list[int], b: list[int]) -> list[tuple[int, int]] | None:
    """A longest common subsequence of `a` and `b` as pairs of indices, ascending.

    E. W. Myers, "An O(ND) difference algorithm and its variations" (1986): the cost grows with the
    number of differences, which are few; None if there are more than `MOST_DIFFERENCES`.
    """
    most = min(len(a) + len(b), MOST_DIFFERENCES)
    reach = [0] * (2 * most + 3)  # by diagonal, those below 0 from the end
    trail: list[array[int]] = []
    for d in range(most + 1):
        trail.append(array("q", [reach[k] for k in range(1 - d, d, 2)]))
        for k in range(-d, d + 1, 2):
            down = k == -d or (k != d and reach[k - 1] < reach[k + 1])
            x = reach[k + 1] if down else reach[k - 1] + 1
            while x < len(a) and x - k < len(b) and a[x] == b[x - k]:
                x += 1
            reach[k] = x
            if x >= len(a) and x - k >= len(b):
                return _walk_back(trail, len(a), len(b))
    return None


def _walk_back(trail: list[array[int]], x: int, y: int) -> list[tuple[int, int]]:
    pairs: list[tuple[int, int]] = []
    for d in range(len(trail) - 1, -1, -1):
        # Reach of each diagonal in the round before: 1 - d, 3 - d, ..., d - 1.
        reach, k = trail[d], x - y
        at = (k + d) // 2
        down = k == -d or (k != d and reach[at - 1] < reach[at])
        before = k + 1 if down else k - 1
        from_x = reach[at if down else at - 1] if d else 0
        from_y = from_x - before if d else 0
        while x > from_x and y > from_y:
            x, y = x - 1, y - 1
            pairs.append((x, y))
        x, y = from_x, from_y
    return pairs[::-1]
