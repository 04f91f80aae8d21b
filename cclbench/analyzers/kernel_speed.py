# SPDX-License-Identifier: Apache-2.0
"""Speed of the same kernels: on one rank against the others, and over time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import numpy as np

from cclbench.analyzers.metric import Coverage, NotApplicable, Value, metric
from cclbench.analyzers.view.kernel_times import kernel_speeds, longest_kernels
from cclbench.analyzers.view.rank_view import RankView

LEAST_WINDOWS: Final = 9
"""With fewer windows, a third has less than three."""


def slowest_rank_of_same_kernels(ranks: Mapping[int, Sequence[Value]]) -> Iterable[Value]:
    """Largest ratio of a rank; each rank's by category; over kernels that all ranks run."""
    times_by_rank = {
        rank: times for rank in sorted(ranks) if isinstance(times := ranks[rank][0].detail, dict)
    }
    speeds = kernel_speeds(times_by_rank)
    rows = [sum(number for number, _ in times.values()) for times in times_by_rank.values()]
    time = [sum(ns for _, ns in times.values()) for times in times_by_rank.values()]
    coverage = Coverage(speeds.rows, sum(rows), speeds.ns, sum(time))
    yield Value(value=max(speeds.ranks.values()), provenance="derived", coverage=coverage)
    for rank, ratio in speeds.ranks.items():
        yield Value(value=ratio, category=str(rank), provenance="derived")
    for rank, families in speeds.families.items():
        for family, ratio in families.items():
            yield Value(value=ratio, category=str(rank), stat=family, provenance="derived")


@metric(
    "balance.kernel_speed",
    definition="How much longer the same compute kernels (name and grid) take on a rank than on the median"
    " rank, over kernels that all ranks run and that are among each rank's 64 longest; the slowest rank's"
    " value, by rank (category) and by kernel family (stat). If all families are slower by about the same,"
    " the rank's device is slower (clocks, power, heat, other processes); if only some are, their work"
    " differs under the same name (experts, sequences). 1 with a high balance.load_imbalance means that the"
    " rank has more work.",
    formula="Σ n · own mean duration / Σ n · median over ranks of the mean duration",
    unit="ratio",
    better="lower",
    not_applicable="there is only one rank, or no compute kernel runs on all ranks",
    combine=slowest_rank_of_same_kernels,
    rank_rows=False,
)
def kernel_speed(rank: RankView) -> Value:
    times = rank.kernel_times
    return Value(value=float((times.ns.sum(axis=1) > 0).sum()), detail=longest_kernels(times))


@metric(
    "compute.drift",
    definition="How much longer the same compute kernels (name and grid) take in the last third of the"
    " windows than in the first. Above 1 the device gets slower: clocks fall with power or heat. Stat"
    " later_longer: share of the pairs of a late and an early window in which the late one's kernels take"
    " longer; near 1/2 there is no drift.",
    formula="Σ n · mean duration in the last third / Σ n · mean duration in the first, n of the last third",
    unit="ratio",
    better="lower",
    not_applicable=f"there are fewer than {LEAST_WINDOWS} windows, or the CPU is the device",
)
def drift(rank: RankView) -> Iterator[Value]:
    windows = len(rank.windows)
    if windows < LEAST_WINDOWS:
        raise NotApplicable(f"there are fewer than {LEAST_WINDOWS} windows")
    kernels = rank.kernel_times
    third = windows // 3
    first, last = slice(0, third), slice(windows - third, windows)
    both = (kernels.times[:, first].sum(axis=1) > 0) & (kernels.times[:, last].sum(axis=1) > 0)
    times, ns = kernels.times[both], kernels.ns[both]
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
