# SPDX-License-Identifier: Apache-2.0
"""Collectives matched across ranks: which rows of different ranks are one and the same collective.

By process group, kind and sequence number; without numbers by order within the group (and step), where
sequences of different length are aligned on their longest common subsequence; sends and receives by
(source, destination, order).  What cannot be matched is counted by reason, what could be matched in two
ways is ambiguous, and nothing is guessed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cclbench.intervals import Int64, Mask

Int32 = npt.NDArray[np.int32]

UNMATCHED = (
    "matched",
    "its process group is unknown",
    "its process group has one rank",
    "its kind is unknown",
    "its peer is unknown",
    "no other rank's trace has it",
    "order within the group is ambiguous",
    "the ranks' times contradict it",
)
"""Why a row is in no instance, by code; 0 is a row that is in one."""
MATCHED, NO_GROUP, ONE_RANK, NO_KIND, NO_PEER, ALONE, AMBIGUOUS, CONTRADICTED = range(len(UNMATCHED))


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Collectives of all ranks, arrays of shape (rows,); −1 stands for unknown.

    `group` and `kind` are codes, `size` the group's ranks, `bytes` the payload's larger side; `source`
    and `target` the ranks of a point-to-point transfer.  Rows of a rank are in order of their start.
    """

    rank: Int32
    group: Int32
    size: Int32
    kind: npt.NDArray[np.int8]
    seq: Int64
    step: Int32
    bytes: Int64
    source: Int32
    target: Int32

    def __len__(self) -> int:
        return len(self.rank)


@dataclass(frozen=True, slots=True, eq=False)
class Matching:
    """The instance of each row (−1 for none), why it has none, and each instance's size.

    `instance` and `reason` have shape (rows,); `present` and `expected`, the ranks an instance has and
    those its group has, shape (instances,).
    """

    instance: Int64
    reason: npt.NDArray[np.int8]
    present: Int32
    expected: Int32

    def counts(self) -> dict[str, int]:
        """Rows that are in no instance, by reason."""
        found = np.bincount(self.reason, minlength=len(UNMATCHED)).tolist()
        return {why: n for why, n in zip(UNMATCHED[1:], found[1:], strict=True) if n}


def match(rows: Rows, pair_kinds: tuple[int, int]) -> Matching:
    """Match all rows; `pair_kinds` are the codes of send and receive."""
    reason = np.full(len(rows), ALONE, np.int8)
    reason[rows.kind < 0] = NO_KIND
    pairs = np.isin(rows.kind, pair_kinds)
    reason[~pairs & (rows.group < 0)] = NO_GROUP
    reason[~pairs & (rows.size == 1)] = ONE_RANK
    reason[pairs & ((rows.source < 0) | (rows.target < 0))] = NO_PEER
    key = np.full(len(rows), -1, np.int64)
    numbered = (reason == ALONE) & ~pairs & (rows.seq >= 0)
    ordered = (reason == ALONE) & ~pairs & (rows.seq < 0)
    paired = (reason == ALONE) & pairs
    used = 0
    for chosen, keys in ((numbered, _by_number), (ordered, _by_order), (paired, _by_pair)):
        at = np.flatnonzero(chosen)
        if len(at):
            found, ambiguous = keys(rows, at)
            reason[at[ambiguous]] = AMBIGUOUS
            key[at] = np.where(found >= 0, found + used, -1)
            used += int(found.max()) + 1
    return _instances(rows, key, reason, pairs)


def _instances(rows: Rows, key: Int64, reason: npt.NDArray[np.int8], pairs: Mask) -> Matching:
    """Number the keys that two or more ranks share."""
    at = np.flatnonzero(key >= 0)
    _, of_row, present = np.unique(key[at], return_inverse=True, return_counts=True)
    shared = present[of_row] > 1
    number = np.cumsum(present > 1) - 1
    instance = np.full(len(rows), -1, np.int64)
    instance[at[shared]] = number[of_row[shared]]
    reason[at[shared]] = MATCHED
    expected = np.zeros(int(number[-1]) + 1 if len(number) else 0, np.int32)
    expected[instance[at[shared]]] = np.where(pairs, 2, rows.size)[at[shared]]
    return Matching(instance, reason, present[present > 1].astype(np.int32), expected)


def _by_number(rows: Rows, at: Int64) -> tuple[Int64, Mask]:
    """Keys of rows by (group, number, kind, occurrence): a grouped call may run as several kernels.

    A number that ranks use for different kinds, or a different number of times, is ambiguous.
    """
    call = _codes(rows.group[at], rows.seq[at])
    occurrence = _occurrence(rows.rank[at], call)
    whole = _codes(call, rows.kind[at], occurrence)
    times = _times(call, rows.rank[at])
    ambiguous = _differs(call, times) | _differs(_codes(call, occurrence), rows.kind[at].astype(np.int64))
    return np.where(ambiguous, -1, whole), ambiguous


def _by_order(rows: Rows, at: Int64) -> tuple[Int64, Mask]:
    """Keys of rows by (group, place in the group's order)."""
    call = _codes(rows.kind[at], rows.bytes[at], rows.step[at])
    return _by_place(rows.group[at].astype(np.int64), rows.rank[at], call)


def _by_pair(rows: Rows, at: Int64) -> tuple[Int64, Mask]:
    """Keys of sends and receives by (source, target, place in their order)."""
    lane = _codes(rows.source[at], rows.target[at])
    return _by_place(lane, rows.rank[at], _codes(rows.bytes[at], rows.step[at]))


def _by_place(lane: Int64, rank: Int32, call: Int64) -> tuple[Int64, Mask]:
    """Keys of rows by (lane, place in its order), aligned where the ranks' calls differ."""
    place = _occurrence(rank, lane)
    ambiguous = np.zeros(len(lane), np.bool_)
    uneven = _differs(lane, _times(lane, rank)) | np.isin(lane, lane[_differs(_codes(lane, place), call)])
    for one in np.unique(lane[uneven]).tolist():
        here = np.flatnonzero(lane == one)
        place[here], ambiguous[here] = _aligned(rank[here], call[here])
    return np.where(place >= 0, _codes(lane, place), -1), ambiguous


def _aligned(rank: Int32, call: Int64) -> tuple[Int64, Mask]:
    """Places of one group's rows, −1 where there is none, and which rows could take several.

    Each rank is aligned with the one that has most rows, itself with itself; a pair counts only where the
    first and the last of the longest common subsequences agree on it.
    """
    ranks, counts = np.unique(rank, return_counts=True)
    longest = np.flatnonzero(rank == ranks[np.argmax(counts)])
    place = np.full(len(rank), -1, np.int64)
    ambiguous = np.zeros(len(rank), np.bool_)
    for one in ranks.tolist():
        mine = np.flatnonzero(rank == one)
        a, b = call[longest].tolist(), call[mine].tolist()
        first = common(a, b)
        last = [(len(a) - 1 - i, len(b) - 1 - j) for i, j in common(a[::-1], b[::-1])]
        agreed = set(first) & set(last)
        for i, j in agreed:
            place[mine[j]] = i
        unsure = {j for _, j in [*first, *last]} - {j for _, j in agreed}
        ambiguous[mine[sorted(unsure)]] = True
    return place, ambiguous


def common(a: list[int], b: list[int]) -> list[tuple[int, int]]:
    """A longest common subsequence of `a` and `b` as pairs of indices, ascending.

    E. W. Myers, "An O(ND) difference algorithm and its variations" (1986): the cost grows with the
    number of differences, which are few.
    """
    reach: dict[int, int] = {1: 0}
    trail: list[dict[int, int]] = []
    d = 0
    while True:
        trail.append(dict(reach))
        for k in range(-d, d + 1, 2):
            down = k == -d or (k != d and reach[k - 1] < reach[k + 1])
            x = reach[k + 1] if down else reach[k - 1] + 1
            while x < len(a) and x - k < len(b) and a[x] == b[x - k]:
                x += 1
            reach[k] = x
            if x >= len(a) and x - k >= len(b):
                return _walked(trail, len(a), len(b))
        d += 1


def _walked(trail: list[dict[int, int]], x: int, y: int) -> list[tuple[int, int]]:
    pairs: list[tuple[int, int]] = []
    for d in range(len(trail) - 1, -1, -1):
        reach, k = trail[d], x - y
        down = k == -d or (k != d and reach[k - 1] < reach[k + 1])
        before = k + 1 if down else k - 1
        from_x = reach[before] if d else 0
        from_y = from_x - before if d else 0
        while x > from_x and y > from_y:
            x, y = x - 1, y - 1
            pairs.append((x, y))
        x, y = from_x, from_y
    return pairs[::-1]


def contradictions(instance: Int64, starts: Int64, ends: Int64, tolerance: int) -> Int64:
    """Instances whose ranks were never all inside at once: one left before another came.

    A collective ends nowhere before its last rank arrives; `starts` and `ends` are on the common clock,
    ns, shape (rows,), of the rows of `instance`; differences up to `tolerance` are forgiven.
    """
    if not len(instance):
        return np.empty(0, np.int64)
    latest = np.full(int(instance.max()) + 1, np.iinfo(np.int64).min)
    earliest = np.full(len(latest), np.iinfo(np.int64).max)
    np.maximum.at(latest, instance, starts)
    np.minimum.at(earliest, instance, ends)
    return np.flatnonzero(latest > earliest + tolerance)


def _codes(*columns: npt.NDArray[np.signedinteger]) -> Int64:
    """A number for each distinct combination, in sorted order, shape of the columns."""
    code = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        values, index = np.unique(column, return_inverse=True)
        code = code * len(values) + index
        if len(columns) > 1:
            code = np.unique(code, return_inverse=True)[1]
    return code


def _times(*columns: npt.NDArray[np.signedinteger]) -> Int64:
    """How many rows have the same combination, shape of the columns."""
    code = _codes(*columns)
    return np.bincount(code)[code]


def _occurrence(rank: Int32, of: Int64) -> Int64:
    """How many earlier rows of the same rank have the same `of`, shape of `of`."""
    code = _codes(rank, of)
    order = np.argsort(code, kind="stable")
    first = np.flatnonzero(np.diff(code[order], prepend=-1))
    lengths = np.diff(np.append(first, len(order)))
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order)) - np.repeat(first, lengths)
    return place


def _differs(of: Int64, value: Int64) -> Mask:
    """Rows of each `of` whose values are not all equal, shape of `of`."""
    code = _codes(of)
    low = np.full(int(code.max()) + 1, np.iinfo(np.int64).max)
    high = np.full(len(low), np.iinfo(np.int64).min)
    np.minimum.at(low, code, value)
    np.maximum.at(high, code, value)
    return np.asarray(low != high)[code]
