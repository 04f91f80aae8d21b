# SPDX-License-Identifier: Apache-2.0
"""Step partition as data: a bar for each rank, of slices in the order of `SLICES`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from cclbench.present.charts.palette import SLICES, StepSlice
from cclbench.record.rows import Row

Seconds = Mapping[str, Mapping[int, float]]
"""Metric → rank → seconds, mean over the rank's windows."""

METRICS: Final = tuple(one.metric for whole in SLICES for one in (whole, *whole.finer))


@dataclass(frozen=True, slots=True)
class PartitionBar:
    """One bar: its name, and its slices with their seconds."""

    name: str
    slices: tuple[tuple[StepSlice, float], ...]

    @property
    def total_seconds(self) -> float:
        """The whole window, the sum of its slices."""
        return sum(seconds for _, seconds in self.slices)


def by_rank(rows: Sequence[Row]) -> Seconds:
    """Each rank's partition in the rows, without modelled figures."""
    found: dict[str, dict[int, float]] = {metric: {} for metric in METRICS}
    for row in rows:
        if row.metric in found and row.rank is not None and row.has_value and not row.narrowed:
            found[row.metric] |= {row.rank: row.number} if row.provenance != "modelled" else {}
    return found


def bars_of(found: Seconds, *, finer: Callable[[StepSlice], bool]) -> list[PartitionBar]:
    """A bar for each rank that has all five parts, by rank.

    A part for which `finer` returns true is replaced by its finer slices if all these ranks have them; if one
    of them is the rest of the part, it is enough that any rank has the others.
    """
    ranks = sorted(set.intersection(*(set(found[one.metric]) for one in SLICES)))
    chosen = [
        (one, whole)
        for whole in SLICES
        for one in (whole.finer if finer(whole) and _is_divided(whole, found, ranks) else [whole])
    ]
    return [
        PartitionBar(
            f"rank {rank}", tuple((one, _slice_seconds(one, whole, found, rank)) for one, whole in chosen)
        )
        for rank in ranks
    ]


def _is_divided(whole: StepSlice, found: Seconds, ranks: Sequence[int]) -> bool:
    told = [found[one.metric] for one in whole.finer if one.metric != whole.metric]
    if len(told) < len(whole.finer):
        return any(rank in own for own in told for rank in ranks)
    return bool(told) and all(set(ranks) <= set(own) for own in told)


def _slice_seconds(one: StepSlice, whole: StepSlice, found: Seconds, rank: int) -> float:
    """A rank's time in a slice of `whole`; a slice with the metric of `whole` is the rest of it."""
    own = found[one.metric].get(rank, 0.0)
    if one is whole or one.metric != whole.metric:
        return own
    return max(own - sum(found[part.metric].get(rank, 0.0) for part in whole.finer if part is not one), 0.0)


def extreme_bars(bars: Sequence[PartitionBar], most: int) -> list[PartitionBar]:
    """At most `most` bars: all, or the longest and the shortest, in their order."""
    if len(bars) <= most:
        return list(bars)
    longest_first = sorted(bars, key=lambda bar: -bar.total_seconds)
    short = most // 2
    kept = {bar.name for bar in (*longest_first[: most - short], *longest_first[-short:])}
    return [bar for bar in bars if bar.name in kept]
