# SPDX-License-Identifier: Apache-2.0
"""Columns on disk by their values: sorted, or parted where a stretch of values begins, some at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from cclbench.disk_columns import DiskColumn, Number, pieces, release

_SAMPLE: Final = 16
"""One value of so many tells where a stretch begins."""
_ROWS: Final = 1 << 16
"""Rows that are looked through, or sorted, at a time."""


def cuts(most: int, *columns: npt.NDArray[Any]) -> list[int]:
    """Numbers between which about `most` of the columns' values lie, ascending."""
    sampled = [values[sample(len(values))] for values in columns]
    most = max(most // _SAMPLE, 1)
    found: list[int] = np.unique(np.sort(np.concatenate(sampled))[most::most]).tolist()
    release(columns)
    return found


def sample(rows: int) -> npt.NDArray[np.int64]:
    """Indices of one row in `_SAMPLE`, always the same.

    Its place among those is random: rows may come in patterns, such as every other of one process group.
    """
    first = np.arange(0, rows, _SAMPLE)
    place = np.random.default_rng(0).integers(_SAMPLE, size=len(first))
    found: npt.NDArray[np.int64] = np.minimum(first + place, rows - 1)
    return found


def parted(values: npt.NDArray[Any], cuts: Sequence[int]) -> Iterator[npt.NDArray[np.int64]]:
    """The indices, in order, of the values below the first cut, of those from it to the next, and so on."""
    every = np.iinfo(values.dtype)
    extremes = [(rows, values[rows].min(), values[rows].max()) for rows in pieces(len(values), most=_ROWS)]
    release(values)
    for since, until in pairwise([every.min, *cuts, every.max + 1]):
        found = [np.empty(0, np.int64)]
        for rows, least, most in extremes:
            if least < until and most >= since:
                found.append(
                    rows.start + np.flatnonzero((values[rows] >= since) & (values[rows] <= until - 1))
                )
        release(values)
        yield np.concatenate(found)


def in_order(column: DiskColumn[Number]) -> Iterator[tuple[npt.NDArray[Number], npt.NDArray[np.int64]]]:
    """The values sorted, and the place of each in the column: a stretch of values at a time.

    Equal values are of one stretch, in the column's order.  Pieces of the column are sorted by themselves, on
    disk, and then merged.
    """
    by_piece, places = DiskColumn(column.dtype.type), DiskColumn(np.int64)
    values, firsts, sample = column.values(), [0], [column.values()[:0]]
    for here in pieces(len(column), column, most=_ROWS):
        own = values[here]
        order = np.argsort(own, kind="stable")
        own = own[order]
        by_piece.append(own)
        places.append(here.start + order)
        firsts.append(here.stop)
        sample.append(own[::_SAMPLE])
    whole, place = by_piece.values(), places.values()
    apart = max(_ROWS // _SAMPLE, 1)
    steps = np.unique(np.sort(np.concatenate(sample))[apart::apart])
    bounds = [
        first + np.array([0, *np.searchsorted(whole[first:end], steps), end - first])
        for first, end in pairwise(firsts)
    ]
    by_piece.release()
    for stretch in range(len(steps) + 1 if bounds else 0):
        parts = [slice(own[stretch], own[stretch + 1]) for own in bounds]
        merged = np.concatenate([whole[part] for part in parts])
        order = np.argsort(merged, kind="stable")
        yield merged[order], np.concatenate([place[part] for part in parts])[order]
        by_piece.release()
        places.release()
