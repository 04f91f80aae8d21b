# SPDX-License-Identifier: Apache-2.0
"""Clocks of ranks against one another, estimated from collectives: ranks finish one together.

Model: rank r ends instance i at T_i + a_r + b_r·(T_i − t0).  Offsets a and drifts b are found by robust
least squares over all matched instances (conjugate gradients, Huber weights), per set of ranks that
collectives connect, and are relative to that set's median rank.  A correction is applied only where
it exceeds its own uncertainty: the spread of the rank's ends that no clock explains.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from cclbench.intervals import Int64

Float = npt.NDArray[np.float64]

_ROUNDS: Final = 60
_HUBER: Final = 1.5
"""Residuals beyond this many standard deviations weigh less: 1.345 to 1.5 is usual (Huber 1981)."""
_SETTLED_NS: Final = 0.01
_DRIFT_POINTS: Final = 8
"""Instances that a rank must share before a slope is fitted through its ends."""


@dataclass(frozen=True, slots=True, eq=False)
class Clocks:
    """Per rank, arrays of shape (ranks,): offset at `t0_ns`, drift, and how far to trust them.

    `offset_ns` + `drift`·(t − `t0_ns`) is what to subtract from the rank's times; both are 0 where not
    `applied`.  `residual_ns` is the 95th percentile of what the fit leaves, `uncertainty_ns` what an
    offset had to exceed; `part` numbers the sets of connected ranks.  Ranks without shared instances
    have no estimate: `known` is false.
    """

    ranks: Int64
    offset_ns: Float
    drift: Float
    residual_ns: Float
    uncertainty_ns: Float
    applied: npt.NDArray[np.bool_]
    known: npt.NDArray[np.bool_]
    part: Int64
    t0_ns: int

    def corrected(self, rank: npt.NDArray[np.int32], at: Int64) -> Int64:
        """Times of those ranks on the common clock, int64 ns, shape of `at`."""
        i = np.searchsorted(self.ranks, rank)
        shift = self.offset_ns[i] + self.drift[i] * (at - self.t0_ns)
        return at - np.rint(shift).astype(np.int64)

    @property
    def worst_residual_ns(self) -> float:
        """The largest residual of any rank with an estimate; 0 where there is none."""
        return float(self.residual_ns[self.known].max(initial=0.0))


def estimate(
    rank: npt.NDArray[np.int32], instance: Int64, ends: Int64, host: npt.NDArray[np.int32]
) -> Clocks:
    """Clocks of all ranks in `rank`, from the ends of matched instances.

    `rank`, `instance`, `ends` have shape (rows,) (rows without an instance left out); `host` gives each
    distinct rank, ascending, the number of its host, −1 for unknown.  One host's ranks share a clock:
    their common offset is what is estimated, unless a rank's own lies further off than the ends spread.
    """
    ranks, r = np.unique(rank.astype(np.int64), return_inverse=True)
    present = len(ranks)
    if not len(ranks):
        nothing, none = np.empty(0), np.empty(0, np.bool_)
        return Clocks(ranks, nothing, nothing, nothing, nothing, none, none, ranks, 0)
    _, i = np.unique(instance, return_inverse=True)
    t0 = int(ends.min())
    t = (ends - t0).astype(np.float64)
    part = _connected(r, i, present)
    cells = _cells(r, i)
    a, b = _offsets(t, r, i, cells, part), np.zeros(present)
    free = np.bincount(r) >= _DRIFT_POINTS
    slope = _slopes(_left(t, i), t, cells, free, part)
    worth = free & _explains(slope, _left(t - a[r], i), t, r, i)
    for _ in range(_ROUNDS if worth.any() else 0):
        slope = _slopes(_left(t - b[r] * t, i), t, cells, worth, part)
        b = np.where(worth, b + slope, 0.0)
        a = _offsets(t - b[r] * t, r, i, cells, part)
        if abs(slope[worth]).max() * np.ptp(t) < _SETTLED_NS:
            break
    left = _left(t - a[r] - b[r] * t, i)
    spread = _quantile(abs(left), r, 0.95)
    uncertainty = np.maximum(spread, 1.0)
    a = _shared(a, uncertainty, host, ~worth)
    applied = (abs(a) > uncertainty) | worth
    a, b = np.where(applied, a, 0.0), np.where(applied, b, 0.0)
    residual = _quantile(abs(_left(t - a[r] - b[r] * t, i)), r, 0.95)
    return Clocks(
        ranks=ranks,
        offset_ns=a,
        drift=b,
        residual_ns=residual,
        uncertainty_ns=uncertainty,
        applied=applied,
        known=np.ones(present, np.bool_),
        part=part,
        t0_ns=t0,
    )


def _connected(r: Int64, i: Int64, ranks: int) -> Int64:
    """Number of the connected set of each rank: ranks that instances link, directly or through others."""
    label = np.arange(ranks)
    while True:
        lowest = np.full(int(i.max()) + 1, ranks)
        np.minimum.at(lowest, i, label[r])
        new = label.copy()
        np.minimum.at(new, r, lowest[i])
        new = new[new]
        if (new == label).all():
            return np.unique(label, return_inverse=True)[1]
        label = new


def _left(t: Float, i: Int64) -> Float:
    """What each end differs from its instance's mean, shape of `t`."""
    return t - (np.bincount(i, t) / np.bincount(i))[i]


@dataclass(frozen=True, slots=True, eq=False)
class _Cells:
    """Rows of one rank in instances of the same ranks: `of` row → cell, a cell's rank and its set of ranks.

    What ranks differ by is the same in all instances of a set of ranks, so that a few cells stand for
    millions of rows: two a rank where each is in two groups.
    """

    of: Int64
    rank: Int64
    ranks_of: Int64

    def sum(self, values: Float) -> Float:
        """Sum of each cell's rows."""
        return _sums(self.of, values)


def _cells(r: Int64, i: Int64) -> _Cells:
    ranks, instances = int(r.max()) + 1, int(i.max()) + 1
    # A set of ranks is told by the sum of its ranks' random numbers, whatever their order.
    token = np.random.default_rng(0).integers(1 << 20, 1 << 62, ranks, dtype=np.uint64)
    told = np.zeros(instances, np.uint64)
    np.add.at(told, i, token[r])
    same = np.unique(told, return_inverse=True)[1][i]
    cell, of = np.unique(same * ranks + r, return_inverse=True)
    return _Cells(of, cell % ranks, cell // ranks)


def _sums(of: Int64, values: Float) -> Float:
    """Sum of each group's values; `of` numbers the groups."""
    return np.asarray(np.bincount(of, values), np.float64)


def _ratio(part: Float, whole: Float) -> Float:
    """Of each; 0 where the whole is 0."""
    return np.divide(part, whole, out=np.zeros(len(whole)), where=whole != 0)


def _solved(value: Float, mass: Float, cells: _Cells, free: npt.NDArray[np.bool_]) -> Float:
    """x of each rank that minimises Σ mass·(value − x_rank + m_set)² over x and m; 0 where not `free`.

    By conjugate gradients (Hestenes and Stiefel 1952), preconditioned by the diagonal: sets of ranks
    that few instances link converge as well as those that many do.
    """
    of_set = _sums(cells.ranks_of, mass)

    def gradient(v: Float) -> Float:
        mean = _ratio(_sums(cells.ranks_of, mass * v), of_set)
        return free * _sums(cells.rank, mass * (v - mean[cells.ranks_of]))

    diagonal = _sums(cells.rank, mass)
    x, rest = np.zeros(len(free)), gradient(value)
    scaled = _ratio(rest, diagonal)
    way, norm = scaled, float(rest @ scaled)
    goal = norm * 1e-24
    for _ in range(4 * len(free)):
        if norm <= goal:
            break
        bent = gradient(way[cells.rank])
        length = norm / float(way @ bent)
        x, rest = x + length * way, rest - length * bent
        scaled = _ratio(rest, diagonal)
        before, norm = norm, float(rest @ scaled)
        way = scaled + norm / before * way
    return x


def _offsets(t: Float, r: Int64, i: Int64, cells: _Cells, part: Int64) -> Float:
    """Robust offsets relative to the part's median, by least squares with Huber weights, from medians."""
    every = np.ones(len(part), np.bool_)
    rows = cells.sum(np.ones(len(t)))
    left = _left(t, i)
    offset = _solved(_quantile(left, cells.of, 0.5), rows, cells, every)
    for _ in range(_ROUNDS):
        left = _left(t - offset[r], i)
        scale = 1.4826 * float(np.median(abs(left)))
        if not scale:
            break
        bound = _HUBER * scale
        weight = bound / np.maximum(bound, abs(left))
        left = t - offset[r]
        left -= (np.bincount(i, weight * left) / np.bincount(i, weight))[i]
        mass = cells.sum(weight)
        moved = _solved(cells.sum(weight * left) / mass, mass, cells, every)
        offset = offset + moved
        if abs(moved).max() < max(_SETTLED_NS, 1e-3 * scale):
            break
    return offset - _medians(offset, part)[part]


def _slopes(left: Float, t: Float, cells: _Cells, free: npt.NDArray[np.bool_], part: Int64) -> Float:
    """Least-squares slopes of the ranks' residuals over time, relative to the part's median."""
    rows = cells.sum(np.ones(len(t)))
    dt = t - (cells.sum(t) / rows)[cells.of]
    mass = cells.sum(dt * dt)
    slope = _solved(_ratio(cells.sum(dt * left), mass), mass, cells, free)
    return slope - _medians(slope, part)[part]


def _explains(slope: Float, left: Float, t: Float, r: Int64, i: Int64) -> npt.NDArray[np.bool_]:
    """Whether a rank's slope moves its clock, over its window, by three times what is left of it."""
    count = np.bincount(r).astype(np.float64)
    middle = np.bincount(r, t) / count
    dt = t - middle[r]
    rest = _left(left - slope[r] * dt, i)
    rest -= (np.bincount(r, rest) / count)[r]
    spread = np.sqrt(np.bincount(r, rest * rest) / np.maximum(count - 2, 1))
    span = np.zeros(len(count))
    np.maximum.at(span, r, abs(dt))
    moved = 2 * abs(slope) * span
    return np.asarray((moved > 3 * spread) & (moved > 1.0))


def _shared(
    offset: Float, uncertainty: Float, host: npt.NDArray[np.int32], free: npt.NDArray[np.bool_]
) -> Float:
    """Offsets with one host's ranks on one clock, but for ranks that lie further off than they spread."""
    shared = offset.copy()
    for one in np.unique(host[host >= 0]).tolist():
        mates = np.flatnonzero((host == one) & free)
        if len(mates):
            middle = float(np.median(offset[mates]))
            shared[mates[abs(offset[mates] - middle) <= uncertainty[mates]]] = middle
    return shared


def _medians(values: Float, part: Int64) -> Float:
    """Median of each part's values."""
    order = np.lexsort((values, part))
    length = np.bincount(part)
    first = np.cumsum(length) - length
    low, high = first + (length - 1) // 2, first + length // 2
    return np.asarray((values[order][low] + values[order][high]) / 2)


def _quantile(values: Float, of: Int64, q: float) -> Float:
    """The q-quantile (nearest rank, rounded up) of each group's values; `of` numbers the groups."""
    order = np.lexsort((values, of))
    length = np.bincount(of)
    first = np.cumsum(length) - length
    at = first + np.ceil(q * length).astype(np.int64) - 1
    return np.asarray(values[order][at])


def for_all(estimated: Clocks, ranks: Int64, clock: Int64) -> Clocks:
    """The clocks with an entry for each of `ranks`, ascending; those without an estimate run true.

    `clock` is the rank by whose number `estimated` knows each rank's clock, shape of `ranks`.
    """
    known = np.isin(clock, estimated.ranks)
    at = np.searchsorted(estimated.ranks, clock[known])

    def spread(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        whole = np.zeros(len(ranks), values.dtype)
        whole[known] = values[at]
        return whole

    names = ("offset_ns", "drift", "residual_ns", "uncertainty_ns", "applied", "part")
    of_all: dict[str, Any] = {name: spread(getattr(estimated, name)) for name in names}
    return replace(estimated, ranks=ranks, known=known, **of_all)
