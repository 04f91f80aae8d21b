# SPDX-License-Identifier: Apache-2.0
"""Compute kernels by name and grid: how often and how long, and how much longer on a rank than on others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import pyarrow as pa

from cclbench.analyzers.metric import NotApplicable
from cclbench.analyzers.view.columns import is_category, word_codes
from cclbench.ground.intervals import Int64, begins

if TYPE_CHECKING:
    from cclbench.analyzers.view.rank_view import RankView

_GRID: Final = ("grid_x", "grid_y", "grid_z")
MOST_KERNELS: Final = 64
"""Kernels of a rank that are compared with other ranks': those that take most of its time."""

Kernel = tuple[str | None, str | None, int | None, int | None, int | None]
"""Category, name and grid."""
Totals = Mapping[Kernel, tuple[int, int]]
"""Of a rank's kernels how often and how long, ns: of those that take most of its time."""
_UNCLASSIFIED: Final = (None, "other", "compute")
LEAST_OF_FAMILY: Final = 0.02
"""Share of a rank's time in kernels that all ranks run from which on a family is looked at."""


class KernelTimes(NamedTuple):
    """How often each kernel ran in each window, and how long in all; arrays of shape (kernels, windows)."""

    kernels: list[Kernel]
    times: Int64
    ns: Int64


def kernel_times(rank: RankView) -> KernelTimes:
    """The rank's compute kernels that begin in its windows."""
    windows = len(rank.windows)
    numbers: dict[Kernel, int] = {}
    parts: list[tuple[Int64, Int64]] = []
    for batch, window in rank.kernels("name", "category", *_GRID):
        own = ~is_category(batch, "communication")
        batch, window = batch.filter(pa.array(own)), window[own]
        keys, key = _batch_kernels(batch)
        number = np.array([numbers.setdefault(one, len(numbers)) for one in keys], np.int64)
        place = number[key] * windows + window
        found = np.unique(place)
        at = np.searchsorted(found, place)
        ns = np.zeros(len(found), np.int64)
        np.add.at(ns, at, batch["dur_ns"].to_numpy())
        parts.append((np.array([found, np.bincount(at, minlength=len(found))]), ns))
    count, ns = (np.zeros(len(numbers) * windows, np.int64) for _ in range(2))
    for (found, times), of in parts:
        count[found] += times
        ns[found] += of
    if not count.any():
        raise NotApplicable("no compute kernel begins in the window")
    return KernelTimes(list(numbers), count.reshape(-1, windows), ns.reshape(-1, windows))


def _batch_kernels(batch: pa.RecordBatch) -> tuple[list[Kernel], Int64]:
    """The distinct kernels of a batch, and the number of each row's."""
    (category, categories), (name, names) = word_codes(batch, "category"), word_codes(batch, "name")
    rows = np.stack([category, name, *(batch[axis].fill_null(-1).to_numpy() for axis in _GRID)])
    order = np.lexsort(rows[::-1])
    first = begins(*rows[:, order])
    key = np.empty(len(name), np.int64)
    key[order] = np.cumsum(first) - 1
    distinct = rows[:, order[first]].T.tolist()
    return [
        (categories[kind], names[own], *(None if axis < 0 else axis for axis in axes))
        for kind, own, *axes in distinct
    ], key


def longest_kernels(found: KernelTimes) -> Totals:
    """The `MOST_KERNELS` that take most time."""
    sums = zip(found.times.sum(axis=1).tolist(), found.ns.sum(axis=1).tolist(), strict=True)
    times = {kernel: own for kernel, own in zip(found.kernels, sums, strict=True) if own[1]}
    return {kernel: times[kernel] for kernel in sorted(times, key=lambda one: -times[one][1])[:MOST_KERNELS]}


class KernelSpeeds(NamedTuple):
    """How much longer the kernels that all ranks run take on each than on the median rank."""

    ranks: dict[int, float]
    families: dict[int, dict[str, float]]
    """Of each rank those of its families that have `LEAST_OF_FAMILY` of the time and more."""
    rows: int
    ns: int
    """How many and how long such kernels are, over all ranks."""

    def slows_together(self, rank: int) -> bool:
        """Whether all families of a rank, two at least, take longer by about the same: at least half as much.

        A device that is slower slows all of them; work that is larger does not.
        """
        own, whole = self.families[rank], self.ranks[rank] - 1
        return whole > 0 and len(own) > 1 and min(own.values()) - 1 >= whole / 2


def kernel_speeds(found: Mapping[int, Totals]) -> KernelSpeeds:
    """Σ n · own mean duration / Σ n · median over ranks of the mean, of each; not applicable without any."""
    if len(found) < 2:
        raise NotApplicable("kernels are compared across ranks, and there is one")
    shared = sorted(set.intersection(*(set(times) for times in found.values())), key=str)
    if not shared:
        raise NotApplicable("no kernel runs on all ranks")
    mean = np.array(
        [[times[one][1] / times[one][0] for one in shared] for times in found.values()], np.float64
    )
    count = np.array([[times[one][0] for one in shared] for times in found.values()], np.float64)
    own, usual = count * mean, count * np.median(mean, axis=0)
    family = [_kernel_family(kernel) for kernel in shared]
    names = sorted(set(family))
    of_family = np.array([[name == one for one in family] for name in names], np.bool_)
    taken, expected = own @ of_family.T, usual @ of_family.T
    families = {
        rank: {
            name: float(taken[place, n] / expected[place, n])
            for n, name in enumerate(names)
            if expected[place, n] >= LEAST_OF_FAMILY * expected[place].sum()
        }
        for place, rank in enumerate(found)
    }
    ratio = own.sum(axis=1) / usual.sum(axis=1)
    return KernelSpeeds(
        dict(zip(found, ratio.tolist(), strict=True)), families, int(count.sum()), round(own.sum())
    )


def _kernel_family(kernel: Kernel) -> str:
    """A kernel's category, its name where that is none in particular."""
    category, name, *_ = kernel
    return str(name) if category in _UNCLASSIFIED else str(category)
