# SPDX-License-Identifier: Apache-2.0
"""Relative clocks of ranks, estimated from collectives, which all ranks finish together.

Model: rank r ends instance i at T_i + a_r + b_r·(T_i − t0).  Offsets a and drifts b are found by robust
least squares over all matched instances (conjugate gradients, Huber weights), per set of ranks that
collectives connect, and are relative to that set's median rank.  A correction is applied only if it
exceeds its own uncertainty: the spread of the rank's ends that the model leaves unexplained.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from cclbench.ground.intervals import Int64
from cclbench.normalize.shared_ends import (
    BLOCK,
    Cells,
    Float,
    SharedEnds,
    divide,
    index_of,
    median_magnitude,
    sum_groups,
)

_ROUNDS: Final = 60
_HUBER: Final = 1.5
"""Residuals beyond this many standard deviations weigh less: 1.345 to 1.5 is usual (Huber 1981)."""
_SETTLED_NS: Final = 0.01
_DRIFT_POINTS: Final = 8
"""Instances that a rank must share before a slope is fitted through its ends."""


@dataclass(frozen=True, slots=True, eq=False)
class Clocks:
    """Clock of each rank, arrays of shape (ranks,): offset at `t0_ns`, drift, and their uncertainty.

    `offset_ns` + `drift`·(t − `t0_ns`) is to be subtracted from the rank's times; both are 0 if not
    `applied`.  `residual_ns` is the 95th percentile of the residuals, `uncertainty_ns` the least offset
    to be applied; `part` numbers the sets of connected ranks.  Ranks without shared instances have no
    estimate: `is_estimated` is false.
    """

    ranks: Int64
    offset_ns: Float
    drift: Float
    residual_ns: Float
    uncertainty_ns: Float
    applied: npt.NDArray[np.bool_]
    is_estimated: npt.NDArray[np.bool_]
    part: Int64
    t0_ns: int

    def correct_times(self, rank: npt.NDArray[np.int32], at: Int64) -> Int64:
        """Times of those ranks on the common clock, int64 ns, shape of `at`."""
        corrected = np.empty(len(at), np.int64)
        for begin in range(0, len(at), BLOCK):
            block = slice(begin, begin + BLOCK)
            i = index_of(self.ranks, rank[block])
            shift = self.offset_ns[i] + self.drift[i] * (at[block] - self.t0_ns)
            corrected[block] = at[block] - np.rint(shift).astype(np.int64)
        return corrected

    @property
    def worst_residual_ns(self) -> float:
        """The largest residual of any rank with an estimate; 0 if there is none."""
        return float(self.residual_ns[self.is_estimated].max(initial=0.0))


def estimate_clocks(
    rank: npt.NDArray[np.int32], instance: Int64, ends: Int64, host: npt.NDArray[np.int32]
) -> Clocks:
    """Clocks of all ranks in `rank`, from the ends of matched instances.

    `rank`, `instance`, `ends` have shape (rows,) (rows without an instance left out); `host` is the
    host number of each distinct rank, ascending, −1 if unknown.  Ranks of one host share a clock: they get
    a common offset, except ranks whose own offset differs from it by more than their ends' spread.
    """
    ranks = np.unique(rank).astype(np.int64)
    present = len(ranks)
    if not present:
        nothing, none = np.empty(0), np.empty(0, np.bool_)
        return Clocks(ranks, nothing, nothing, nothing, nothing, none, none, ranks, 0)
    first, last = int(ends.min()), int(ends.max())
    shared = SharedEnds.from_rows(ranks, rank, instance, ends, first)
    part = _connected_sets(shared.cells, present)
    still = np.zeros(present)
    a, b = _robust_offsets(shared, shared.t, part), still
    free = shared.ends_of_rank >= _DRIFT_POINTS
    slopes = _Slopes(shared, part)
    slope = slopes.fit_slopes(shared.residuals(shared.t, still), free)
    worth = free & _has_drift(shared, slope, shared.residuals(shared.t, a))
    for _ in range(_ROUNDS if worth.any() else 0):
        slope = slopes.fit_slopes(shared.residuals(shared.correct_drift(b), still), worth)
        b = np.where(worth, b + slope, 0.0)
        a = _robust_offsets(shared, shared.correct_drift(b), part)
        if abs(slope[worth]).max() * (last - first) < _SETTLED_NS:
            break
    spread = shared.worst_residuals(a, b)
    uncertainty = np.maximum(spread, 1.0)
    a = _merge_host_offsets(a, uncertainty, host, ~worth)
    applied = (abs(a) > uncertainty) | worth
    a, b = np.where(applied, a, 0.0), np.where(applied, b, 0.0)
    return Clocks(
        ranks=ranks,
        offset_ns=a,
        drift=b,
        residual_ns=shared.worst_residuals(a, b),
        uncertainty_ns=uncertainty,
        applied=applied,
        is_estimated=np.ones(present, np.bool_),
        part=part,
        t0_ns=first,
    )


def _connected_sets(cells: Cells, ranks: int) -> Int64:
    """Connected set of each rank, by number: ranks that instances link, directly or through others."""
    label = np.arange(ranks)
    while True:
        lowest = np.full(int(cells.occurrences.max()) + 1, ranks)
        np.minimum.at(lowest, cells.occurrences, label[cells.rank])
        new = label.copy()
        np.minimum.at(new, cells.rank, lowest[cells.occurrences])
        new = new[new]
        if (new == label).all():
            return np.unique(label, return_inverse=True)[1]
        label = new


def _least_squares(value: Float, mass: Float, cells: Cells, free: npt.NDArray[np.bool_]) -> Float:
    """x of each rank that minimises Σ mass·(value − x_rank + m_set)² over x and m; 0 where not `free`.

    By conjugate gradients (Hestenes and Stiefel 1952), preconditioned by the diagonal, so that sets of
    ranks linked by few instances converge as well as others.
    """
    sets = int(cells.occurrences.max()) + 1
    of_set = sum_groups(mass, cells.occurrences, sets)

    def gradient(v: Float) -> Float:
        mean = divide(sum_groups(mass * v, cells.occurrences, sets), of_set)
        return free * sum_groups(mass * (v - mean[cells.occurrences]), cells.rank, len(free))

    diagonal = sum_groups(mass, cells.rank, len(free))
    x, rest = np.zeros(len(free)), gradient(value)
    scaled = divide(rest, diagonal)
    way, norm = scaled, _inner_product(rest, scaled)
    goal = norm * 1e-24
    for _ in range(4 * len(free)):
        bent = gradient(way[cells.rank])
        bend = _inner_product(way, bent)
        if norm <= goal or bend <= 0:  # rounding may leave a shift of all ranks, which changes nothing
            break
        length = norm / bend
        x, rest = x + length * way, rest - length * bent
        scaled = divide(rest, diagonal)
        before, norm = norm, _inner_product(rest, scaled)
        way = scaled + norm / before * way
    return x


def _inner_product(left: Float, right: Float) -> float:
    """Inner product with the same rounding on all machines, unlike a BLAS's."""
    return float((left * right).sum())


def _robust_offsets(ends: SharedEnds, t: Float, part: Int64) -> Float:
    """Robust offsets relative to the part's median: least squares with Huber weights, started at medians."""
    every = np.ones(len(part), np.bool_)
    count = ends.instances.astype(np.float64)
    left = ends.residuals(t, np.zeros(len(part)))
    offset = _least_squares(ends.medians_of_cells(left), count, ends.cells, every)
    median = None
    for _ in range(_ROUNDS):
        ends.residuals(t, offset, left)
        median = median_magnitude(left, median)
        if not median:
            break
        scale = 1.4826 * median
        pulled, mass = _sum_weighted_pull(ends, left, _HUBER * scale)
        moved = _least_squares(pulled / mass, mass, ends.cells, every)
        offset = offset + moved
        if abs(moved).max() < max(_SETTLED_NS, 1e-3 * scale):
            break
    return offset - _medians_of_parts(offset, part)[part]


def _sum_weighted_pull(ends: SharedEnds, left: Float, bound: float) -> tuple[Float, Float]:
    """Sums, by cell, of the weighted deviations of ends from their instances' means, and of the weights.

    Weight = bound / max(bound, |residual|) (Huber).
    """
    pulled, mass = np.zeros((2, len(ends.cells.rank)))
    for block in ends.blocks:
        far = block.view_ends(left)
        weight = bound / np.maximum(bound, abs(far))
        pull = weight * far
        mean = pull.sum(axis=1, keepdims=True) / weight.sum(axis=1, keepdims=True)
        block.view_cells(pulled)[:] += (pull - weight * mean).sum(axis=2)
        block.view_cells(mass)[:] += weight.sum(axis=2)
    return pulled, mass


class _Slopes:
    """Least-squares slopes of ranks' residuals over time, relative to the part's median."""

    def __init__(self, ends: SharedEnds, part: Int64) -> None:
        self._ends, self._part = ends, part
        self._means = ends.of_cells(ends.t) / ends.instances
        dt = ends.deviations(self._means)
        dt *= dt
        self._mass = ends.of_cells(dt)

    def fit_slopes(self, left: Float, free: npt.NDArray[np.bool_]) -> Float:
        """Slopes of the residuals `left`, shape (ranks,); 0 where not `free`."""
        dt = self._ends.deviations(self._means)
        dt *= left
        along = self._ends.of_cells(dt)
        slope = _least_squares(divide(along, self._mass), self._mass, self._ends.cells, free)
        return slope - _medians_of_parts(slope, self._part)[self._part]


def _has_drift(ends: SharedEnds, slope: Float, left: Float) -> npt.NDArray[np.bool_]:
    """Whether a rank's slope moves its clock, over its window, by more than 3 times the residuals' spread."""
    count = ends.ends_of_rank
    dt = ends.deviations(divide(ends.of_ranks(ends.t), count)[ends.cells.rank])
    span = np.zeros(len(slope))
    np.maximum.at(span, ends.cells.rank, ends.furthest_of_cells(dt))
    moved = 2 * abs(slope) * span
    rest = ends.remove_slope(left, slope, dt)
    del left, dt  # as large as all ends, as are the next ones
    ends.residuals(rest, np.zeros(len(slope)), rest)
    rest -= ends.of_rank(divide(ends.of_ranks(rest), count))
    rest *= rest
    spread = np.sqrt(ends.of_ranks(rest) / np.maximum(count - 2, 1))
    return np.asarray((moved > 3 * spread) & (moved > 1.0))


def _merge_host_offsets(
    offset: Float, uncertainty: Float, host: npt.NDArray[np.int32], free: npt.NDArray[np.bool_]
) -> Float:
    """Offsets with each host's ranks on one clock, except ranks further from it than their uncertainty."""
    shared = offset.copy()
    for host_id in np.unique(host[host >= 0]).tolist():
        mates = np.flatnonzero((host == host_id) & free)
        if len(mates):
            middle = float(np.median(offset[mates]))
            shared[mates[abs(offset[mates] - middle) <= uncertainty[mates]]] = middle
    return shared


def _medians_of_parts(values: Float, part: Int64) -> Float:
    """Median of each part's values."""
    order = np.lexsort((values, part))
    length = np.bincount(part)
    first = np.cumsum(length) - length
    low, high = first + (length - 1) // 2, first + length // 2
    return np.asarray((values[order][low] + values[order][high]) / 2)


def for_all(estimated: Clocks, ranks: Int64, clock: Int64) -> Clocks:
    """The clocks with an entry for each of `ranks`, ascending; 0 for those without an estimate.

    `clock` is the rank under which `estimated` has each rank's clock, shape of `ranks`.
    """
    is_estimated = np.isin(clock, estimated.ranks)
    at = np.searchsorted(estimated.ranks, clock[is_estimated])

    def spread(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        column = np.zeros(len(ranks), values.dtype)
        column[is_estimated] = values[at]
        return column

    names = ("offset_ns", "drift", "residual_ns", "uncertainty_ns", "applied", "part")
    of_all: dict[str, Any] = {name: spread(getattr(estimated, name)) for name in names}
    return replace(estimated, ranks=ranks, is_estimated=is_estimated, **of_all)
