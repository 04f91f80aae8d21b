# SPDX-License-Identifier: Apache-2.0
"""The same kernels side by side: slower on one rank than on others, or slower as time goes on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from cclbench.analyzers.metric import Coverage, NotApplicable, Value, metric
from cclbench.analyzers.view.columns import codes, is_category
from cclbench.analyzers.view.rank_view import RankView
from cclbench.intervals import Int64, begins

_GRID: Final = ("grid_x", "grid_y", "grid_z")
LEAST_WINDOWS: Final = 9
"""Windows of which the first and the last third are three each."""

MOST_KERNELS: Final = 64
"""Kernels of a rank that are compared with other ranks': those that take most of its time."""

Kernel = tuple[str | None, int | None, int | None, int | None]
"""Name and grid."""


class _Times(NamedTuple):
    """How often each kernel ran in each window, and how long in all; arrays of shape (kernels, windows)."""

    kernels: list[Kernel]
    times: Int64
    ns: Int64


def _times(rank: RankView) -> _Times:
    """The rank's compute kernels that begin in its windows."""
    windows = len(rank.windows)
    numbers: dict[Kernel, int] = {}
    parts: list[tuple[Int64, Int64]] = []
    for batch, window in rank.kernels("name", "category", *_GRID):
        own = ~is_category(batch, "communication")
        batch, window = batch.filter(pa.array(own)), window[own]
        keys, key = _keys(batch)
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
    return _Times(list(numbers), count.reshape(-1, windows), ns.reshape(-1, windows))


def _keys(batch: pa.RecordBatch) -> tuple[list[Kernel], Int64]:
    """The distinct kernels of a batch, and the number of each row's."""
    name, names = codes(batch, "name")
    rows = np.stack([name, *(batch[axis].fill_null(-1).to_numpy() for axis in _GRID)])
    order = np.lexsort(rows[::-1])
    first = begins(*rows[:, order])
    key = np.empty(len(name), np.int64)
    key[order] = np.cumsum(first) - 1
    distinct = rows[:, order[first]].T.tolist()
    return [(names[own], *(None if axis < 0 else axis for axis in axes)) for own, *axes in distinct], key


def slowest_rank_of_same_kernels(ranks: Mapping[int, Sequence[Value]]) -> Iterable[Value]:
    """The largest rank's ratio; by rank (category) each one's, over kernels that all ranks run."""
    found = {rank: times for rank in sorted(ranks) if isinstance(times := ranks[rank][0].detail, dict)}
    if len(found) < 2:
        raise NotApplicable("kernels are compared across ranks, and there is one")
    shared = sorted(set.intersection(*(set(times) for times in found.values())), key=str)
    if not shared:
        raise NotApplicable("no kernel runs on all ranks")
    mean = np.array(
        [[times[one][1] / times[one][0] for one in shared] for times in found.values()], np.float64
    )
    count = np.array([[times[one][0] for one in shared] for times in found.values()], np.float64)
    middle = np.median(mean, axis=0)
    ratio = (count * mean).sum(axis=1) / (count * middle).sum(axis=1)
    rows = [sum(number for number, _ in times.values()) for times in found.values()]
    time = [sum(ns for _, ns in times.values()) for times in found.values()]
    coverage = Coverage(int(count.sum()), sum(rows), round((count * mean).sum()), sum(time))
    yield Value(value=float(ratio.max()), provenance="derived", coverage=coverage)
    for rank, own in zip(found, ratio.tolist(), strict=True):
        yield Value(value=own, category=str(rank), provenance="derived")


@metric(
    "balance.kernel_speed",
    definition="How much longer the same compute kernels (name and grid) take on a rank than on the median"
    " rank, of kernels that all ranks run and that are among the 64 of each that take most time; by rank"
    " (category), and of the slowest. Above 1 the rank's device"
    " is slower (clocks, power, heat, a neighbour), or its kernels have other work under one name. 1 with a"
    " high balance.load_imbalance means that the rank has more work.",
    formula="Σ n · own mean duration / Σ n · median over ranks of the mean duration",
    unit="ratio",
    better="lower",
    not_applicable="there is one rank only, or no compute kernel runs on all of them",
    combine=slowest_rank_of_same_kernels,
    rank_rows=False,
)
def kernel_speed(rank: RankView) -> Value:
    found = _times(rank)
    sums = zip(found.times.sum(axis=1).tolist(), found.ns.sum(axis=1).tolist(), strict=True)
    times = {kernel: own for kernel, own in zip(found.kernels, sums, strict=True) if own[1]}
    longest = sorted(times, key=lambda kernel: -times[kernel][1])[:MOST_KERNELS]
    return Value(value=float(len(times)), detail={kernel: times[kernel] for kernel in longest})


@metric(
    "compute.drift",
    definition="How much longer the same compute kernels (name and grid) take in the last third of the"
    " windows than in the first. Above 1 the device becomes slower: clocks fall with power or heat. The stat"
    " later_longer is the share of pairs of a late and an early window of which the late one's kernels take"
    " longer, for what they are: near 1/2 there is no drift.",
    formula="Σ n · mean duration in the last third / Σ n · mean duration in the first, n of the last third",
    unit="ratio",
    better="lower",
    not_applicable=f"there are fewer than {LEAST_WINDOWS} windows, or the CPU is the device",
)
def drift(rank: RankView) -> Iterator[Value]:
    windows = len(rank.windows)
    if windows < LEAST_WINDOWS:
        raise NotApplicable(f"there are fewer than {LEAST_WINDOWS} windows in which to see a drift")
    found = _times(rank)
    third = windows // 3
    first, last = slice(0, third), slice(windows - third, windows)
    both = (found.times[:, first].sum(axis=1) > 0) & (found.times[:, last].sum(axis=1) > 0)
    times, ns = found.times[both], found.ns[both]
    mean = ns[:, first].sum(axis=1) / times[:, first].sum(axis=1)
    expected = mean @ times
    if not expected[last].sum():
        raise NotApplicable("no kernel runs in both the first and the last third of the windows")
    weight = float(expected[last].sum())
    yield Value(value=float(ns[:, last].sum() / weight), weight=weight, provenance="derived")
    with np.errstate(invalid="ignore", divide="ignore"):
        ratio = ns.sum(axis=0) / expected
    early, late = (ratio[part][np.isfinite(ratio[part])] for part in (first, last))
    longer = (late[:, None] > early[None, :]).mean() + (late[:, None] == early[None, :]).mean() / 2
    yield Value(value=float(longer), stat="later_longer", provenance="derived", unit="1")
