# SPDX-License-Identifier: Apache-2.0
"""The same kernels side by side: slower on one rank than on others, or slower as time goes on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import numpy as np

from cclbench.analyzers.metric import Coverage, NotApplicable, Value, metric
from cclbench.analyzers.view.kernel_times import kernel_speeds, kernel_times, longest_kernels
from cclbench.analyzers.view.rank_view import RankView

LEAST_WINDOWS: Final = 9
"""Windows of which the first and the last third are three each."""


def slowest_rank_of_same_kernels(ranks: Mapping[int, Sequence[Value]]) -> Iterable[Value]:
    """The largest rank's ratio; by rank (category) each one's, over kernels that all ranks run."""
    found = {rank: times for rank in sorted(ranks) if isinstance(times := ranks[rank][0].detail, dict)}
    found_speeds = kernel_speeds(found)
    rows = [sum(number for number, _ in times.values()) for times in found.values()]
    time = [sum(ns for _, ns in times.values()) for times in found.values()]
    coverage = Coverage(found_speeds.rows, sum(rows), found_speeds.ns, sum(time))
    yield Value(value=max(found_speeds.ranks.values()), provenance="derived", coverage=coverage)
    for rank, own in found_speeds.ranks.items():
        yield Value(value=own, category=str(rank), provenance="derived")
    for rank, families in found_speeds.families.items():
        for family, own in families.items():
            yield Value(value=own, category=str(rank), stat=family, provenance="derived")


@metric(
    "balance.kernel_speed",
    definition="How much longer the same compute kernels (name and grid) take on a rank than on the median"
    " rank, of kernels that all ranks run and that are among the 64 of each that take most time; by rank"
    " (category), of each of its families of kernels (stat), and of the slowest. Where all families take"
    " longer by about the same the rank's device is slower (clocks, power, heat, a neighbour); where some do,"
    " they have other work under one name: experts, sequences. 1 with a high balance.load_imbalance means"
    " that the rank has more work.",
    formula="Σ n · own mean duration / Σ n · median over ranks of the mean duration",
    unit="ratio",
    better="lower",
    not_applicable="there is one rank only, or no compute kernel runs on all of them",
    combine=slowest_rank_of_same_kernels,
    rank_rows=False,
)
def kernel_speed(rank: RankView) -> Value:
    found = kernel_times(rank)
    return Value(value=float((found.ns.sum(axis=1) > 0).sum()), detail=longest_kernels(found))


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
    found = kernel_times(rank)
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
