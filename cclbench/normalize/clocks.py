# SPDX-License-Identifier: Apache-2.0
"""Clocks of ranks against one another, estimated from collectives: ranks finish one together.

Model: rank r ends instance i at T_i + a_r + b_r·(T_i − t0).  Offsets a and drifts b are found by robust
least squares over all matched instances (alternating, with Huber weights), per set of ranks that
collectives connect, and are relative to that set's median rank.  A correction is applied only where
it exceeds its own uncertainty: the spread of the rank's ends that no clock explains.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

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
        nothing = np.empty(0)
        return Clocks(ranks, nothing, nothing, nothing, nothing, nothing > 0, nothing > 0, ranks, 0)
    _, i = np.unique(instance, return_inverse=True)
    t0 = int(ends.min())
    t = (ends - t0).astype(np.float64)
    part = _connected(r, i, present)
    a, b = _offsets(t, r, i, part, present), np.zeros(present)
    _, worth = _slopes(_left(t - a[r], i), t, r, part)
    for _ in range(_ROUNDS if worth.any() else 0):
        slope, _ = _slopes(_left(t - a[r] - b[r] * t, i), t, r, part)
        b = np.where(worth, b + slope, 0.0)
        a = _offsets(t - b[r] * t, r, i, part, present)
        if abs(slope[worth]).max() * np.ptp(t) < _SETTLED_NS:
            break
    left = _left(t - a[r] - b[r] * t, i)
    spread = _quantile(abs(left), r, present, 0.95)
    uncertainty = np.maximum(spread, 1.0)
    a = _shared(a, uncertainty, host, ~worth)
    applied = (abs(a) > uncertainty) | worth
    a, b = np.where(applied, a, 0.0), np.where(applied, b, 0.0)
    residual = _quantile(abs(_left(t - a[r] - b[r] * t, i)), r, present, 0.95)
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
    count = np.bincount(i)
    return t - (np.bincount(i, t) / np.maximum(count, 1))[i]


def _offsets(t: Float, r: Int64, i: Int64, part: Int64, ranks: int) -> Float:
    """Robust offsets: each rank's, given the instances' times, and those given the offsets, in turn."""
    offset = np.zeros(ranks)
    weight = np.ones(len(t))
    for _ in range(_ROUNDS):
        mass = np.bincount(i, weight)
        when = np.bincount(i, weight * (t - offset[r])) / mass
        step = np.bincount(r, weight * (t - when[i]), ranks) / np.bincount(r, weight, ranks)
        step -= _medians(step, part)[part]
        moved = abs(step - offset).max()
        offset = step
        left = t - when[i] - offset[r]
        scale = 1.4826 * float(np.median(abs(left)))
        weight = np.minimum(1.0, _HUBER * scale / np.maximum(abs(left), 1e-9)) if scale else np.ones(len(t))
        weight = np.maximum(weight, 1e-6)
        if moved < _SETTLED_NS:
            break
    return offset


def _slopes(left: Float, t: Float, r: Int64, part: Int64) -> tuple[Float, npt.NDArray[np.bool_]]:
    """Least-squares slope of each rank's residuals over time, relative to its part's median, and
    whether it explains more than noise.

    A slope is worth its place where, over the rank's window, it moves the clock by more than three
    times what it leaves unexplained.
    """
    ranks = len(part)
    count = np.bincount(r, minlength=ranks).astype(np.float64)
    mean_t = np.bincount(r, t, ranks) / np.maximum(count, 1)
    mean_l = np.bincount(r, left, ranks) / np.maximum(count, 1)
    dt, dl = t - mean_t[r], left - mean_l[r]
    var = np.bincount(r, dt * dt, ranks)
    slope = np.divide(np.bincount(r, dt * dl, ranks), var, out=np.zeros(ranks), where=var > 0)
    rest = np.sqrt(np.bincount(r, (dl - slope[r] * dt) ** 2, ranks) / np.maximum(count - 2, 1))
    slope -= _medians(slope, part)[part]
    span = np.full(ranks, 0.0)
    np.maximum.at(span, r, abs(dt))
    worth = (count >= _DRIFT_POINTS) & (2 * abs(slope) * span > 3 * rest) & (2 * abs(slope) * span > 1.0)
    return slope, worth


def _shared(
    offset: Float, uncertainty: Float, host: npt.NDArray[np.int32], free: npt.NDArray[np.bool_]
) -> Float:
    """Offsets with one host's ranks on one clock, but for ranks that lie further off than they spread."""
    shared = offset.copy()
    for one in np.unique(host[host >= 0]).tolist():
        mates = np.flatnonzero((host == one) & free)
        if len(mates) < 2:
            continue
        middle = float(np.median(offset[mates]))
        agreeing = mates[abs(offset[mates] - middle) <= uncertainty[mates]]
        shared[agreeing] = middle
    return shared


def _medians(values: Float, part: Int64) -> Float:
    """Median of each part's values."""
    order = np.lexsort((values, part))
    first = np.flatnonzero(np.diff(part[order], prepend=-1))
    length = np.diff(np.append(first, len(order)))
    low, high = first + (length - 1) // 2, first + length // 2
    return np.asarray((values[order][low] + values[order][high]) / 2)


def _quantile(values: Float, of: Int64, count: int, q: float) -> Float:
    """The q-quantile (nearest rank, rounded up) of each group's values; 0 for empty groups."""
    order = np.lexsort((values, of))
    length = np.bincount(of, minlength=count)
    first = np.cumsum(length) - length
    at = first + np.maximum(np.ceil(q * length).astype(np.int64) - 1, 0)
    padded = np.append(values[order], 0.0)
    return np.where(length > 0, padded[np.minimum(at, len(values))], 0.0)


def for_all(estimated: Clocks, ranks: Int64) -> Clocks:
    """The same clocks with an entry for each of `ranks`, ascending; those without an estimate run true."""
    at = np.searchsorted(ranks, estimated.ranks)
    known = np.zeros(len(ranks), np.bool_)
    known[at] = estimated.known

    def spread(values: Float) -> Float:
        whole = np.zeros(len(ranks), values.dtype)
        whole[at] = values
        return whole

    return Clocks(
        ranks=ranks,
        offset_ns=spread(estimated.offset_ns),
        drift=spread(estimated.drift),
        residual_ns=spread(estimated.residual_ns),
        uncertainty_ns=spread(estimated.uncertainty_ns),
        applied=spread(estimated.applied.astype(np.float64)) > 0,
        known=known,
        part=spread(estimated.part.astype(np.float64)).astype(np.int64),
        t0_ns=estimated.t0_ns,
    )
