# SPDX-License-Identifier: Apache-2.0
"""When ranks end the collectives that they share: what clocks are fitted to."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from cclbench.ground.intervals import Int64

Float = npt.NDArray[np.float64]
Groups = npt.NDArray[np.signedinteger[Any]]


def sum_groups(values: Float, group: Groups, groups: int) -> Float:
    """Sum of each group's values, shape (groups,); `group` numbers the groups, shape of the values."""
    return np.asarray(np.bincount(group, values, groups), np.float64)


def subtract_group_means(values: Float, group: Groups, groups: int) -> Float:
    """Each value less the mean of its group's values."""
    mean = divide(sum_groups(values, group, groups), np.bincount(group, minlength=groups))
    return np.asarray(values - mean[group])


def divide(part: Float, whole: npt.NDArray[Any]) -> Float:
    """`part / whole`, 0 where the whole is 0."""
    return np.asarray(np.divide(part, whole, out=np.zeros(len(whole)), where=whole != 0))


@dataclass(frozen=True, slots=True, eq=False)
class Cells:
    """Rows of one rank in instances of the same ranks: a cell's rank and its set of ranks, shape (cells,).

    What ranks differ by is the same in all instances of a set of ranks, so that a few cells stand for
    millions of rows: two a rank where each is in two groups.
    """

    rank: Int64
    ranks_of: Int64


@dataclass(frozen=True, slots=True, eq=False)
class SharedEnds:
    """Ends of matched instances, arrays of shape (rows,): by which rank, of which instance, in which cell.

    Ranks are numbered in ascending order, rows are in that order; `t` is the time since the first end, ns.
    """

    rank: npt.NDArray[np.int32]
    instance: Int64
    t: Float
    cell: npt.NDArray[np.int32]
    cells: Cells
    ranks: int
    instances: int

    @classmethod
    def from_rows(
        cls, ranks: Int64, rank: npt.NDArray[np.int32], instance: Int64, ends: Int64, first: int
    ) -> Self:
        """From the ends of rows of `rank`, each one of `ranks`, of which the first is at `first`."""
        number = np.searchsorted(ranks, rank).astype(np.int32)
        instances = int(instance.max()) + 1
        # A set of ranks is recognised by the sum of its ranks' random numbers, whatever their order.
        random = np.random.default_rng(0).integers(1 << 20, 1 << 62, len(ranks), dtype=np.uint64)
        set_sum = np.zeros(instances, np.uint64)
        np.add.at(set_sum, instance, random[number])
        set_of = np.unique(set_sum, return_inverse=True)[1]
        codes = set_of[instance] * len(ranks) + number
        cells, cell = np.unique(codes, return_inverse=True)
        parts = Cells(cells % len(ranks), cells // len(ranks))
        t = (ends - first).astype(np.float64)
        return cls(number, instance, t, cell.astype(np.int32), parts, len(ranks), instances)

    def corrected(self, offset: Float, drift: Float) -> Float:
        """The times less their rank's offset and drift, shape (rows,)."""
        return np.asarray(self.t - offset[self.rank] - drift[self.rank] * self.t)

    def left(self, t: Float) -> Float:
        """What each time differs from its instance's mean, shape (rows,)."""
        return subtract_group_means(t, self.instance, self.instances)

    def residual(self, offset: Float, drift: Float) -> Float:
        """The 95th percentile of how far each rank's corrected ends lie from their instances' means."""
        return self.quantile(abs(self.left(self.corrected(offset, drift))), self.rank, self.ranks, 0.95)

    def of_cells(self, values: Float) -> Float:
        """Sum of each cell's rows, shape (cells,)."""
        return sum_groups(values, self.cell, len(self.cells.rank))

    def quantile(self, values: Float, of: Groups, groups: int, q: float) -> Float:
        """The q-quantile (nearest rank, rounded up) of each group's values; a group is of one rank's rows."""
        found = np.zeros(groups)
        bounds = np.searchsorted(self.rank, np.arange(self.ranks + 1)).tolist()
        for begin, end in pairwise(bounds):  # a rank's rows at a time, which are sorted in the cache
            own, numbers = of[begin:end], values[begin:end]
            order = np.lexsort((numbers, own))
            group, first, length = np.unique(own[order], return_index=True, return_counts=True)
            found[group] = numbers[order][first + np.ceil(q * length).astype(np.int64) - 1]
        return found
