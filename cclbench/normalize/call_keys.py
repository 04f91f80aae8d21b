# SPDX-License-Identifier: Apache-2.0
"""Which collectives of different ranks are one and the same: keys of rows, equal where they are."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from cclbench.disk_columns import release
from cclbench.intervals import Int64, Mask, by_code, occurrence
from cclbench.normalize.alignment import aligned

Int32 = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Collectives of all ranks, arrays of shape (rows,), which may be on disk; −1 stands for unknown.

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

    def chosen(self, rows: slice | Int64) -> Rows:
        """Those rows, in memory."""
        found = {}
        for field in fields(self):
            values = getattr(self, field.name)
            found[field.name] = values[rows]
            release(values)
        return Rows(**found)


def by_number(rows: Rows) -> tuple[Int64, Mask]:
    """Keys of rows by (group, number, kind, occurrence): a grouped call may run as several kernels.

    A number that ranks use for different kinds, or a different number of times, is ambiguous.
    """
    call = _codes(rows.group, rows.seq)
    place = occurrence(_codes(rows.rank, call))
    whole = _codes(call, rows.kind, place)
    times = _times(call, rows.rank)
    ambiguous = _differs(call, times) | _differs(_codes(call, place), rows.kind.astype(np.int64))
    return np.where(ambiguous, -1, whole), ambiguous


def by_order(rows: Rows) -> tuple[Int64, Mask]:
    """Keys of rows by (group, place in the group's order); of a group whose ranks' orders differ by (group,
    kind, bytes, step, place among these) where all ranks have as many.

    Collectives of several streams begin in another order on each rank; those of a kind do not.
    """
    call = _codes(rows.kind, rows.bytes, rows.step)
    lane, rank = rows.group.astype(np.int64), rows.rank
    uneven = _uneven(lane, rank, call)
    if uneven.any():
        of_call = _codes(lane, call)
        complete = _ranks_of_each(lane, rank) == _ranks_of_each(of_call, rank)
        alike = uneven & (rows.step >= 0) & ~_differs(of_call, _times(of_call, rank)) & complete
        # the rows that are alike are a lane for each call, in which all ranks have the same order
        lane = np.where(alike, of_call + int(lane.max(initial=0)) + 1, lane)
        uneven = _uneven(lane, rank, call)
    return _by_place(lane, rank, call, uneven)


def by_pair(rows: Rows) -> tuple[Int64, Mask]:
    """Keys of sends and receives by (source, target, place in their order)."""
    lane, call = _codes(rows.source, rows.target), _codes(rows.bytes, rows.step)
    return _by_place(lane, rows.rank, call, _uneven(lane, rows.rank, call))


def _by_place(lane: Int64, rank: Int32, call: Int64, uneven: Mask) -> tuple[Int64, Mask]:
    """Keys of rows by (lane, place in its order), aligned in lanes that are `uneven`."""
    place = occurrence(_codes(rank, lane))
    ambiguous = np.zeros(len(lane), np.bool_)
    for _, here in by_code(lane, np.unique(lane[uneven])):
        place[here], ambiguous[here] = aligned(rank[here], call[here])
    return np.where(place >= 0, _codes(lane, place), -1), ambiguous


def _uneven(lane: Int64, rank: Int32, call: Int64) -> Mask:
    """Rows of lanes whose ranks do not have the same calls in the same order, shape (rows,)."""
    place = occurrence(_codes(rank, lane))
    return _differs(lane, _times(lane, rank)) | np.isin(lane, lane[_differs(_codes(lane, place), call)])


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


def _ranks_of_each(of: Int64, rank: Int32) -> Int64:
    """How many ranks have rows of each `of`, shape of `of`."""
    code = _codes(of)
    _, one_each = np.unique(_codes(code, rank), return_index=True)
    return np.bincount(code[one_each])[code]


def _differs(of: Int64, value: Int64) -> Mask:
    """Rows of each `of` whose values are not all equal, shape of `of`."""
    code = _codes(of)
    low = np.full(int(code.max()) + 1, np.iinfo(np.int64).max)
    high = np.full(len(low), np.iinfo(np.int64).min)
    np.minimum.at(low, code, value)
    np.maximum.at(high, code, value)
    return np.asarray(low != high)[code]
