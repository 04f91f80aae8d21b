# SPDX-License-Identifier: Apache-2.0
"""What a rank's accelerator did, a piece of its rows at a time: where steps begin, and whose kernels ran."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from cclbench import intervals
from cclbench.disk_columns import DiskColumn
from cclbench.disk_order import in_order
from cclbench.intervals import Index, Int64, Intervals, Mask

DEVICE_WORK: Final = ("kernel", "copy", "memset", "graph")
"""Kinds of rows in which an accelerator works."""
_LEAST, _MOST = np.iinfo(np.int64).min, np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True, eq=False)
class DeviceRows:
    """Some rows of a rank's accelerator, arrays of shape (rows,): `step` indexes `Marks`, −1 for none."""

    step: Index
    starts: Int64
    ends: Int64
    kernel: Mask


def extents(rows: Iterable[DeviceRows], steps: int) -> tuple[dict[int, int], dict[int, int]]:
    """By step, of `steps`, where its first kernel begins, and where the last of its rows ends."""
    opening, ending = np.full(steps, _MOST), np.full(steps, _LEAST)
    for piece in rows:
        launched = piece.step >= 0
        kernel = launched & piece.kernel
        np.minimum.at(opening, piece.step[kernel], piece.starts[kernel])
        np.maximum.at(ending, piece.step[launched], piece.ends[launched])
    first, last = np.flatnonzero(opening < _MOST), np.flatnonzero(ending > _LEAST)
    return (
        dict(zip(first.tolist(), opening[first].tolist(), strict=True)),
        dict(zip(last.tolist(), ending[last].tolist(), strict=True)),
    )


def own_shares(rows: Iterable[DeviceRows], starts: Int64, ends: Int64, window: Index) -> list[float | None]:
    """Of the kernel time in each window the share that its own step launched; None without kernels.

    `window` is each step's, −1 for none.
    """
    by_own, by_any = _Union(), _Union()
    for piece in rows:
        of_step = np.where(piece.step >= 0, window[piece.step], -1)
        own = piece.kernel & (of_step >= 0)
        at = of_step[own]
        by_own.add(np.maximum(piece.starts[own], starts[at]), np.minimum(piece.ends[own], ends[at]))
        by_any.add(piece.starts[piece.kernel], piece.ends[piece.kernel])
    parts, wholes = (kernels.within(starts, ends).tolist() for kernels in (by_own, by_any))
    return [part / whole if whole else None for part, whole in zip(parts, wholes, strict=True)]


class _Union:
    """The union of intervals that come in any order, on disk."""

    def __init__(self) -> None:
        self._starts, self._ends = DiskColumn(np.int64), DiskColumn(np.int64)

    def add(self, starts: Int64, ends: Int64) -> None:
        """More of them."""
        found = intervals.union(starts, ends)
        self._starts.append(found.starts)
        self._ends.append(found.ends)

    def within(self, starts: Int64, ends: Int64) -> Int64:
        """|X ∩ [starts[i], ends[i])| for each window i, shape of `starts`; windows may overlap."""
        total = np.zeros(len(starts), np.int64)
        for stretch in self._stretches():
            total += intervals.within(stretch, starts, ends)
        return total

    def _stretches(self) -> Iterator[Intervals]:
        """The union in order of time, some of it at a time."""
        last = intervals.EMPTY
        for starts, places in in_order(self._starts):
            ends = self._ends.values()[places]
            found = intervals.union(np.concatenate([last.starts, starts]), np.concatenate([last.ends, ends]))
            self._ends.release()
            yield Intervals(found.starts[:-1], found.ends[:-1])
            # What begins later may go on where this one ends.
            last = Intervals(found.starts[-1:], found.ends[-1:])
        yield last
