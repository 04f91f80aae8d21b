# SPDX-License-Identifier: Apache-2.0
"""Collectives matched across ranks: which rows of different ranks are one and the same collective.

By process group, kind and sequence number; without numbers by order within the group (and step), where
sequences of different length are aligned on their longest common subsequence; sends and receives by
(source, destination, order).  What cannot be matched is counted by reason, what could be matched in two
ways is ambiguous, and nothing is guessed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from cclbench.disk_arithmetic import accumulate, counts, elementwise, extremes
from cclbench.disk_columns import DiskColumn, DiskTable, disk_array, pieces, release
from cclbench.disk_order import parted, sample
from cclbench.intervals import Int64, Mask
from cclbench.normalize.call_keys import Int32, Rows, by_number, by_order, by_pair

_ROWS: Final = 1 << 16
"""Rows that are looked through at a time."""
_MATCHED_ROWS: Final = 1 << 17
"""About how many rows are matched at a time."""

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
class Matching:
    """The instance of each row (−1 for none), why it has none, and each instance's size.

    `instance` and `reason` have shape (rows,); `present` and `expected`, the ranks an instance has and
    those its group has, shape (instances,).  All are on disk where they are large.
    """

    instance: Int64
    reason: npt.NDArray[np.int8]
    present: Int32
    expected: Int32

    def counts(self) -> dict[str, int]:
        """Rows that are in no instance, by reason."""
        found = counts(self.reason, len(UNMATCHED)).astype(np.int64).tolist()
        return {why: n for why, n in zip(UNMATCHED[1:], found[1:], strict=True) if n}


def match(rows: Rows, pair_kinds: tuple[int, int]) -> Matching:
    """Match all rows; `pair_kinds` are the codes of send and receive.

    Memory holds the rows of some lanes at a time, of process groups, or of the pairs of ranks that send and
    receive; and of a large group whose calls are numbered those of some numbers.
    """
    reason = disk_array(len(rows), np.int8, ALONE)
    instance = disk_array(len(rows), np.int64, -1)
    present, expected = DiskColumn(np.int32), DiskColumn(np.int32)
    lanes = _lanes(rows, reason, pair_kinds)
    for table, keys in zip(lanes, (by_number, by_order, by_pair), strict=True):
        for part in _some_at_a_time(table):
            at = table["row"][part]
            own = rows.chosen(at)
            key, ambiguous = keys(own)
            number, of_each = _instances(key)
            reason[at[ambiguous]] = AMBIGUOUS
            matched = np.flatnonzero(number >= 0)
            reason[at[matched]] = MATCHED
            instance[at[matched]] = len(present) + number[matched]
            sizes = np.full(len(of_each), 2, np.int32)
            if keys is not by_pair:
                sizes[number[matched]] = own.size[matched]
            present.append(of_each)
            expected.append(sizes)
            release(reason, instance)
            table.release()
    return Matching(instance, reason, present.values(), expected.values())


def _lanes(rows: Rows, reason: npt.NDArray[np.int8], pair_kinds: tuple[int, int]) -> list[DiskTable]:
    """Rows that may be matched by number, by order, and as pairs: their indices, lanes and numbers.

    Only rows of one lane can be the same; a lane's rows of one number, −1 for none, belong together.  The
    `reason` of all others is written.
    """
    tables = [DiskTable(row=np.int64, lane=np.int64, number=np.int64) for _ in range(3)]
    for here in pieces(len(rows), most=_ROWS):
        own, why = rows.chosen(here), reason[here]
        pairs = np.isin(own.kind, pair_kinds)
        why[own.kind < 0] = NO_KIND
        why[~pairs & (own.group < 0)] = NO_GROUP
        why[~pairs & (own.size == 1)] = ONE_RANK
        why[pairs & ((own.source < 0) | (own.target < 0))] = NO_PEER
        lane = np.where(pairs, own.source.astype(np.int64) << 32 | own.target, own.group)
        numbered = ~pairs & (own.seq >= 0)
        number = np.where(numbered, own.seq, -1)
        for table, chosen in zip(tables, (numbered, ~pairs & ~numbered, pairs), strict=True):
            at = np.flatnonzero(chosen & (why == ALONE))
            table.append(row=here.start + at, lane=lane[at], number=number[at])
        release(reason)
    return tables


def _some_at_a_time(table: DiskTable) -> Iterator[Int64]:
    """Indices of rows, lane after lane, about `_MATCHED_ROWS` at a time; a number is never parted."""
    lane, number = table["lane"], table["number"]
    chosen = sample(len(lane))
    sampled = [number[chosen]]
    table.release()
    sampled.append(lane[chosen])
    most = max(_MATCHED_ROWS * len(chosen) // max(len(lane), 1), 1)
    cuts = np.lexsort(sampled)[most::most]
    numbers, lanes = (values[cuts] for values in sampled)
    table.release()

    def stretch(lane: Int64, number: Int64) -> Int64:
        """How many cuts lie at or before each row, by lane and then number."""
        found = np.searchsorted(lanes, lane)
        for one in np.unique(lanes).tolist():
            own = numbers[np.searchsorted(lanes, one) : np.searchsorted(lanes, one, side="right")]
            inside = np.flatnonzero(lane == one)
            found[inside] += np.searchsorted(own, number[inside], side="right")
        return np.asarray(found)

    stretches = elementwise(stretch, lane, number, dtype=np.int32)
    return filter(len, parted(stretches, range(1, len(lanes) + 1)))


def _instances(key: Int64) -> tuple[Int64, Int32]:
    """The keys that two or more rows share numbered: of each row, −1 for none; and their rows."""
    at = np.flatnonzero(key >= 0)
    _, of_row, present = np.unique(key[at], return_inverse=True, return_counts=True)
    number = np.where(present > 1, np.cumsum(present > 1) - 1, -1)
    found = np.full(len(key), -1, np.int64)
    found[at] = number[of_row]
    return found, present[present > 1].astype(np.int32)


def contradictions(instance: Int64, starts: Int64, ends: Int64, tolerance: int) -> Int64:
    """Instances whose ranks were never all inside at once: one left before another came.

    A collective ends nowhere before its last rank arrives; `starts` and `ends` are on the common clock,
    ns, shape (rows,), of the rows of `instance`; differences up to `tolerance` are forgiven.
    """
    if not len(instance):
        return np.empty(0, np.int64)
    count = extremes(instance)[1] + 1
    latest = disk_array(count, np.int64, np.iinfo(np.int64).min)
    earliest = disk_array(count, np.int64, np.iinfo(np.int64).max)
    accumulate(np.maximum, latest, instance, starts)
    accumulate(np.minimum, earliest, instance, ends)

    def apart(latest: Int64, earliest: Int64) -> Mask:
        return np.asarray(latest > earliest + tolerance)

    return np.flatnonzero(elementwise(apart, latest, earliest, dtype=np.bool_))
