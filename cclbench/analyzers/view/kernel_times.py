# SPDX-License-Identifier: Apache-2.0
"""Compute kernels by name and grid: number and time, and their speed on a rank against others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import pyarrow as pa

from cclbench.analyzers.metric import NotApplicable
from cclbench.analyzers.view.columns import has_word, word_codes
from cclbench.ground.intervals import Int64, begins

if TYPE_CHECKING:
    from cclbench.analyzers.view.rank_view import RankView

_GRID: Final = ("grid_x", "grid_y", "grid_z")
MOST_KERNELS: Final = 64
"""Number of kernels of a rank that are compared with other ranks, those with the most time."""

Kernel = tuple[str | None, str | None, int | None, int | None, int | None]
"""Category, name and grid."""
Totals = Mapping[Kernel, tuple[int, int]]
"""Number and total time, ns, of a rank's kernels with the most time."""
_UNCLASSIFIED: Final = (None, "other", "compute")
LEAST_OF_FAMILY: Final = 0.02
"""Least share of a rank's time in common kernels for a family to count."""


class KernelTimes(NamedTuple):
    """Number and total time of each kernel in each window; arrays of shape (kernels, windows)."""

    kernels: list[Kernel]
    times: Int64
    ns: Int64


def kernel_times(rank: RankView) -> KernelTimes:
    """Compute kernels that begin in the rank's windows; `NotApplicable` without any."""
    windows = len(rank.windows)
    numbers: dict[Kernel, int] = {}
    parts: list[tuple[Int64, Int64]] = []
    for batch, window in rank.kernels("name", "category", *_GRID):
        computes = ~has_word(batch, "category", "communication")
        batch, window = batch.filter(pa.array(computes)), window[computes]
        keys, key = _batch_kernels(batch)
        number = np.array([numbers.setdefault(kernel, len(numbers)) for kernel in keys], np.int64)
        place = number[key] * windows + window
        cells = np.unique(place)
        cell = np.searchsorted(cells, place)
        ns = np.zeros(len(cells), np.int64)
        np.add.at(ns, cell, batch["dur_ns"].to_numpy())
        parts.append((np.array([cells, np.bincount(cell, minlength=len(cells))]), ns))
    count, ns = (np.zeros(len(numbers) * windows, np.int64) for _ in range(2))
    for (cells, times), cell_ns in parts:
        count[cells] += times
        ns[cells] += cell_ns
    if not count.any():
        raise NotApplicable("no compute kernel begins in the window")
    return KernelTimes(list(numbers), count.reshape(-1, windows), ns.reshape(-1, windows))


def _batch_kernels(batch: pa.RecordBatch) -> tuple[list[Kernel], Int64]:
    """The distinct kernels of a batch, and each row's index into them."""
    (category, categories), (name, names) = word_codes(batch, "category"), word_codes(batch, "name")
    rows = np.stack([category, name, *(batch[axis].fill_null(-1).to_numpy() for axis in _GRID)])
    order = np.lexsort(rows[::-1])
    first = begins(*rows[:, order])
    key = np.empty(len(name), np.int64)
    key[order] = np.cumsum(first) - 1
    distinct = rows[:, order[first]].T.tolist()
    return [
        (categories[kind], names[name_code], *(None if axis < 0 else axis for axis in axes))
        for kind, name_code, *axes in distinct
    ], key


def longest_kernels(kernels: KernelTimes) -> Totals:
    """The `MOST_KERNELS` kernels with the most time."""
    sums = zip(kernels.times.sum(axis=1).tolist(), kernels.ns.sum(axis=1).tolist(), strict=True)
    times = {
        kernel: count_and_ns
        for kernel, count_and_ns in zip(kernels.kernels, sums, strict=True)
        if count_and_ns[1]
    }
    return {kernel: times[kernel] for kernel in sorted(times, key=lambda key: -times[key][1])[:MOST_KERNELS]}


class KernelSpeeds(NamedTuple):
    """Time of common kernels on each rank over that on the median rank."""

    ranks: dict[int, float]
    families: dict[int, dict[str, float]]
    """By rank: the ratio of families with at least `LEAST_OF_FAMILY` of the time."""
    rows: int
    ns: int
    """Number and total time of these kernels over all ranks."""

    def slows_together(self, rank: int) -> bool:
        """Whether all families of a rank, at least two, show at least half of its slowdown.

        A slower device slows all of them; a larger work load does not.
        """
        families, slowdown = self.families[rank], self.ranks[rank] - 1
        return slowdown > 0 and len(families) > 1 and min(families.values()) - 1 >= slowdown / 2


def kernel_speeds(totals: Mapping[int, Totals]) -> KernelSpeeds:
    """Σ n · mean duration / Σ n · median over ranks of the mean, by rank; `NotApplicable` without any."""
    if len(totals) < 2:
        raise NotApplicable("needs at least two ranks")
    shared = sorted(set.intersection(*(set(times) for times in totals.values())), key=str)
    if not shared:
        raise NotApplicable("no kernel runs on all ranks")
    mean = np.array(
        [[times[kernel][1] / times[kernel][0] for kernel in shared] for times in totals.values()], np.float64
    )
    count = np.array([[times[kernel][0] for kernel in shared] for times in totals.values()], np.float64)
    rank_ns, median_ns = count * mean, count * np.median(mean, axis=0)
    family = [_kernel_family(kernel) for kernel in shared]
    names = sorted(set(family))
    of_family = np.array([[name == kernel_family for kernel_family in family] for name in names], np.bool_)
    family_ns, expected = rank_ns @ of_family.T, median_ns @ of_family.T
    families = {
        rank: {
            name: float(family_ns[place, n] / expected[place, n])
            for n, name in enumerate(names)
            if expected[place, n] >= LEAST_OF_FAMILY * expected[place].sum()
        }
        for place, rank in enumerate(totals)
    }
    ratio = rank_ns.sum(axis=1) / median_ns.sum(axis=1)
    return KernelSpeeds(
        dict(zip(totals, ratio.tolist(), strict=True)), families, int(count.sum()), round(rank_ns.sum())
    )


def _kernel_family(kernel: Kernel) -> str:
    """A kernel's category, or its name where the category is unspecific."""
    category, name, *_ = kernel
    return str(name) if category in _UNCLASSIFIED else str(category)
