# SPDX-License-Identifier: Apache-2.0
"""When ranks end the collectives that they share, on disk where these are many: what clocks are fitted to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Self

import numpy as np

from cclbench.disk_arithmetic import (
    Float,
    accumulate,
    centred,
    distinct,
    elementwise,
    extremes,
    magnitude,
    sums,
)
from cclbench.disk_columns import disk_array, release
from cclbench.disk_order import cuts, parted
from cclbench.intervals import Int64
from cclbench.normalize.call_keys import Int32

_SORTED_ROWS: Final = 1 << 17
"""About how many rows are sorted at a time: those of some ranks."""


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

    Ranks are numbered in ascending order; `t` is the time since the first end, ns.
    """

    rank: Int32
    instance: Int64
    t: Float
    cell: Int32
    cells: Cells
    ranks: int
    instances: int

    @classmethod
    def of(cls, ranks: Int64, rank: Int32, instance: Int64, ends: Int64, first: int) -> Self:
        """From the ends of rows of `rank`, each one of `ranks`, of which the first is at `first`."""
        r = elementwise(lambda rank: np.searchsorted(ranks, rank), rank, dtype=np.int32)
        t = elementwise(lambda end: end - first, ends, dtype=np.float64)
        instances = extremes(instance)[1] + 1
        # A set of ranks is told by the sum of its ranks' random numbers, whatever their order.
        token = np.random.default_rng(0).integers(1 << 20, 1 << 62, len(ranks), dtype=np.uint64)
        told = disk_array(instances, np.uint64)
        accumulate(np.add, told, instance, elementwise(lambda r: token[r], r, dtype=np.uint64))
        sets = distinct(told)

        def code(r: Int32, instance: Int64) -> Int64:
            return np.asarray(np.searchsorted(sets, told[instance]) * len(ranks) + r)

        codes = elementwise(code, r, instance, dtype=np.int64, beside=(told,))
        cells = distinct(codes)
        cell = elementwise(lambda code: np.searchsorted(cells, code), codes, dtype=np.int32)
        parts = Cells(cells % len(ranks), cells // len(ranks))
        return cls(r, instance, t, cell, parts, len(ranks), instances)

    def corrected(self, offset: Float, drift: Float) -> Float:
        """The times less their rank's offset and drift, shape (rows,)."""

        def corrected(t: Float, rank: Int32) -> Float:
            return np.asarray(t - offset[rank] - drift[rank] * t)

        return elementwise(corrected, self.t, self.rank, dtype=np.float64)

    def left(self, t: Float) -> Float:
        """What each time differs from its instance's mean, shape (rows,)."""
        return centred(t, self.instance, self.instances)

    def residual(self, offset: Float, drift: Float) -> Float:
        """The 95th percentile of how far each rank's corrected ends lie from their instances' means."""
        left = self.left(self.corrected(offset, drift))
        return self.quantile(magnitude(left), self.rank, self.ranks, 0.95)

    def of_cells(self, values: Float) -> Float:
        """Sum of each cell's rows, shape (cells,)."""
        return sums(self.cell, values, len(self.cells.rank))

    def quantile(self, values: Float, of: Int32, groups: int, q: float) -> Float:
        """The q-quantile (nearest rank, rounded up) of each group's values; a group is of one rank's rows."""
        found = np.zeros(groups)
        for part in parted(self.rank, cuts(_SORTED_ROWS, self.rank)):
            own, numbers = of[part], values[part]
            order = np.lexsort((numbers, own))
            group, first, length = np.unique(own[order], return_index=True, return_counts=True)
            found[group] = numbers[order][first + np.ceil(q * length).astype(np.int64) - 1]
            release(of, values)
        return found
