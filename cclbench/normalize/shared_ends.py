# SPDX-License-Identifier: Apache-2.0
"""End times of the collectives that ranks share, to which clocks are fitted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from cclbench.ground.intervals import Int64, begins

Float = npt.NDArray[np.float64]
Groups = npt.NDArray[np.signedinteger[Any]]

BLOCK: Final = 1 << 16
"""Approximate number of ends or rows processed at a time, so that temporaries stay in a core's cache."""


def sum_groups(values: Float, group: Groups, groups: int) -> Float:
    """Sum of each group's values, shape (groups,); `group` numbers the groups, shape of the values."""
    return np.asarray(np.bincount(group, values, groups), np.float64)


def index_of(ranks: Int64, rank: npt.NDArray[np.int32]) -> Int64:
    """Index in `ranks`, ascending, of each of `rank`: one search for each run of equal ones."""
    first = np.flatnonzero(begins(rank))
    return np.repeat(np.searchsorted(ranks, rank[first]), np.diff(first, append=len(rank)))


def divide(part: Float, total: npt.NDArray[Any]) -> Float:
    """`part / total`, 0 where the total is 0."""
    return np.asarray(np.divide(part, total, out=np.zeros(len(total)), where=total != 0))


@dataclass(frozen=True, slots=True)
class Cells:
    """Ends of one rank in the instances of one set of ranks, arrays of shape (cells,): `rank`, `occurrences`.

    Ranks differ by the same amount in all instances of a set of ranks, so that a few cells stand for
    millions of ends: two per rank if each is in two groups.
    """

    rank: Int64
    occurrences: Int64


class Block(NamedTuple):
    """Sets with equal numbers of ranks and instances: their cells, their ends, and a range of instances."""

    cells: slice
    ends: slice
    ranks: int
    instances: slice

    def view_ends(self, values: Float) -> Float:
        """Its part of an array of shape (ends,), as one of shape (sets, ranks, instances)."""
        return values[self.ends].reshape(self._set_count, self.ranks, -1)[:, :, self.instances]

    def view_cells(self, values: Float) -> Float:
        """Its part of an array of shape (cells,), as one of shape (sets, ranks)."""
        return values[self.cells].reshape(self._set_count, self.ranks)

    @property
    def _set_count(self) -> int:
        return int(self.cells.stop - self.cells.start) // self.ranks


@dataclass(frozen=True, slots=True, eq=False)
class SharedEnds:
    """Ends of matched instances: `t`, ns since the first end, shape (ends,), those of a cell together.

    A cell's ends are in order of instance, and `instances` is their number in each cell; the cells of a set
    of ranks are consecutive, and so are sets with equal numbers of ranks and instances.  Ranks are numbered
    in ascending order.
    """

    t: Float
    cells: Cells
    instances: Int64
    blocks: list[Block]
    ranks: int

    @classmethod
    def from_rows(
        cls, ranks: Int64, rank: npt.NDArray[np.int32], instance: Int64, ends: Int64, first: int
    ) -> Self:
        """From the ends of rows of `ranks`; `first` is the earliest end."""
        number = index_of(ranks, rank)
        order = np.lexsort((number, instance))
        size = np.bincount(instance)
        begin = np.cumsum(size) - size
        begin, size = begin[size > 0], size[size > 0]
        # A set of ranks is identified by the sum of its ranks' random numbers, in any order.
        random = np.random.default_rng(0).integers(1 << 20, 1 << 62, len(ranks), dtype=np.uint64)
        _, first_of_set, set_of, times = np.unique(
            np.add.reduceat(random[number[order]], begin),
            return_index=True,
            return_inverse=True,
            return_counts=True,
        )
        sets = np.lexsort((times, size[first_of_set]))
        by_set = begin[np.argsort(np.argsort(sets)[set_of], kind="stable")]
        width, times = size[first_of_set][sets], times[sets]
        t = np.empty(len(rank))
        cell_rank: list[Int64] = []
        blocks: list[Block] = []
        end = cell = begun = 0
        for low, high in pairwise([*np.flatnonzero(begins(width, times)).tolist(), len(sets)]):
            many, each, count = int(width[low]), int(times[low]), high - low
            starts = by_set[begun : begun + count * each].reshape(count, each)
            cell_rank.append(number[order[starts[:, :1] + np.arange(many)]].reshape(-1))
            for block in _split_blocks(cell, end, count, many, each):
                sets_of_block = slice((block.cells.start - cell) // many, (block.cells.stop - cell) // many)
                rows = order[starts[sets_of_block, None, block.instances] + np.arange(many)[:, None]]
                block.view_ends(t)[:] = ends[rows] - first
                blocks.append(block)
            end, cell, begun = end + count * many * each, cell + count * many, begun + count * each
        cells = Cells(np.concatenate(cell_rank), np.repeat(np.arange(len(sets)), width))
        return cls(t, cells, np.repeat(times, width), blocks, len(ranks))

    @property
    def _begins(self) -> Int64:
        """Where each cell's ends begin, shape (cells,)."""
        return np.cumsum(self.instances) - self.instances

    @property
    def ends_of_rank(self) -> Int64:
        """Number of ends of each rank, shape (ranks,)."""
        return np.bincount(self.cells.rank, self.instances, self.ranks).astype(np.int64)

    def of_rank(self, values: Float) -> Float:
        """The values, of shape (ranks,), repeated for each rank's ends, shape (ends,)."""
        return np.repeat(values[self.cells.rank], self.instances)

    def remove_slope(self, values: Float, slope: Float, t: Float) -> Float:
        """The values less their rank's slope times `t`, shape (ends,)."""
        along = self.of_rank(slope)
        along *= t
        return np.subtract(values, along, out=along)

    def correct_drift(self, drift: Float) -> Float:
        """The times less their rank's drift, shape (ends,)."""
        return self.remove_slope(self.t, drift, self.t)

    def deviations(self, means: Float) -> Float:
        """Differences of the times from their cell's value of `means`, shape (ends,)."""
        middle = np.repeat(means, self.instances)
        return np.subtract(self.t, middle, out=middle)

    def residuals(self, t: Float, offset: Float, out: Float | None = None) -> Float:
        """Difference of each time, less its rank's offset, from its instance's mean, shape (ends,).

        It is written to `out`, if given, which can be `t`.
        """
        out = np.empty(len(t)) if out is None else out
        late = offset[self.cells.rank]
        for block in self.blocks:
            times = block.view_ends(t) - block.view_cells(late)[:, :, None]
            np.subtract(times, times.sum(axis=1, keepdims=True) / block.ranks, out=block.view_ends(out))
        return out

    def worst_residuals(self, offset: Float, drift: Float) -> Float:
        """95th percentile of the absolute residuals of each rank's corrected ends, shape (ranks,)."""
        values = self.correct_drift(drift)
        np.abs(self.residuals(values, offset, values), out=values)
        percentiles = np.zeros(self.ranks)
        begin = self._begins
        order = np.argsort(self.cells.rank, kind="stable")
        bounds = np.searchsorted(self.cells.rank[order], np.arange(self.ranks + 1)).tolist()
        for rank, (low, high) in enumerate(pairwise(bounds)):
            rank_ends = [values[begin[cell] : begin[cell] + self.instances[cell]] for cell in order[low:high]]
            percentiles[rank] = _nearest_rank(np.concatenate(rank_ends), 0.95)
        return percentiles

    def of_cells(self, values: Float) -> Float:
        """Sum of each cell's ends, shape (cells,)."""
        return np.asarray(np.add.reduceat(values, self._begins))

    def of_ranks(self, values: Float) -> Float:
        """Sum of each rank's ends, shape (ranks,)."""
        return sum_groups(self.of_cells(values), self.cells.rank, self.ranks)

    def furthest_of_cells(self, values: Float) -> Float:
        """The largest magnitude of each cell's ends, shape (cells,)."""
        return np.asarray(np.maximum.reduceat(abs(values), self._begins))

    def medians_of_cells(self, values: Float) -> Float:
        """The median (the lower one of two) of each cell's ends, shape (cells,)."""
        bounds = [*self._begins.tolist(), len(values)]
        medians = [_nearest_rank(values[begin:end], 0.5) for begin, end in pairwise(bounds)]
        return np.array(medians, np.float64)


def median_magnitude(values: Float, near: float | None) -> float:
    """The median of the values' magnitudes; sooner if it is within a tenth of `near`.

    Magnitudes outside of that range are counted only, those inside are sorted.
    """
    if near is None:
        return float(np.median(abs(values), overwrite_input=True))
    low, high = near / 1.1, near * 1.1
    below, inside = 0, []
    for begin in range(0, len(values), BLOCK):
        far = abs(values[begin : begin + BLOCK])
        small = far < low
        below += int(np.count_nonzero(small))
        inside.append(far[~small & (far <= high)])
    middle = np.concatenate(inside)
    places = [(len(values) - 1) // 2 - below, len(values) // 2 - below]
    if places[0] < 0 or places[1] >= len(middle):
        return median_magnitude(values, None)
    return float(np.partition(middle, places)[places].mean())


def _nearest_rank(values: Float, q: float) -> float:
    """The q-quantile of the values: the smallest that a share of at least q does not exceed."""
    at = int(np.ceil(q * len(values))) - 1
    return float(np.partition(values, at)[at])


def _split_blocks(cell: int, end: int, sets: int, ranks: int, instances: int) -> Iterator[Block]:
    """Split `sets` sets, from first cell `cell` and first end `end`, into blocks."""
    at_once = max(1, BLOCK // (ranks * instances))
    some = max(1, BLOCK // ranks)
    for low in range(0, sets, at_once):
        high = min(low + at_once, sets)
        cells = slice(cell + low * ranks, cell + high * ranks)
        ends = slice(end + low * ranks * instances, end + high * ranks * instances)
        for first in range(0, instances, some):
            yield Block(cells, ends, ranks, slice(first, first + some))
