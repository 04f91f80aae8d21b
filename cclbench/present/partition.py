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

METRICS: Final = tuple(step_slice.metric for part in SLICES for step_slice in (part, *part.finer))


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
    seconds: dict[str, dict[int, float]] = {metric: {} for metric in METRICS}
    for row in rows:
        if row.metric in seconds and row.rank is not None and row.has_value and not row.narrowed:
            seconds[row.metric] |= {row.rank: row.number} if row.provenance != "modelled" else {}
    return seconds


def bars_of(seconds: Seconds, *, finer: Callable[[StepSlice], bool]) -> list[PartitionBar]:
    """A bar for each rank that has all five parts, by rank.

    A part for which `finer` returns true is replaced by its finer slices if all these ranks have them; if one
    of them is the rest of the part, it is enough that any rank has the others.
    """
    ranks = sorted(set.intersection(*(set(seconds[part.metric]) for part in SLICES)))
    slices = [
        (step_slice, part)
        for part in SLICES
        for step_slice in (part.finer if finer(part) and _is_divided(part, seconds, ranks) else [part])
    ]
    return [
        PartitionBar(
            f"rank {rank}",
            tuple(
                (step_slice, _slice_seconds(step_slice, part, seconds, rank)) for step_slice, part in slices
            ),
        )
        for rank in ranks
    ]


def _is_divided(part: StepSlice, seconds: Seconds, ranks: Sequence[int]) -> bool:
    finer_seconds = [
        seconds[step_slice.metric] for step_slice in part.finer if step_slice.metric != part.metric
    ]
    if len(finer_seconds) < len(part.finer):
        return any(rank in rank_seconds for rank_seconds in finer_seconds for rank in ranks)
    return bool(finer_seconds) and all(set(ranks) <= set(rank_seconds) for rank_seconds in finer_seconds)


def _slice_seconds(step_slice: StepSlice, part: StepSlice, seconds: Seconds, rank: int) -> float:
    """A rank's time in a slice of `part`; a slice with the metric of `part` is the rest of it."""
    rank_seconds = seconds[step_slice.metric].get(rank, 0.0)
    if step_slice is part or step_slice.metric != part.metric:
        return rank_seconds
    return max(
        rank_seconds
        - sum(seconds[finer.metric].get(rank, 0.0) for finer in part.finer if finer is not step_slice),
        0.0,
    )


def extreme_bars(bars: Sequence[PartitionBar], most: int) -> list[PartitionBar]:
    """At most `most` bars: all, or the longest and the shortest, in their order."""
    if len(bars) <= most:
        return list(bars)
    longest_first = sorted(bars, key=lambda bar: -bar.total_seconds)
    short = most // 2
    kept = {bar.name for bar in (*longest_first[: most - short], *longest_first[-short:])}
    return [bar for bar in bars if bar.name in kept]
