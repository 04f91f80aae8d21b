# SPDX-License-Identifier: Apache-2.0
"""Step times with and without the profiler, where the capture timed both."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from cclbench.record.manifest import Manifest

NOTABLE: Final = 0.01
"""Least relative overhead that counts as more than chance."""


class StepMeans(msgspec.Struct, frozen=True, kw_only=True):
    """A rank's facts of the reader `step_times`; times in seconds."""

    rank: int
    records: list[str]
    unprofiled_steps: int
    unprofiled_step_s: float
    unprofiled_most_s: float | None = None
    profiled_steps: int
    profiled_step_s: float
    profiled_least_s: float | None = None

    @property
    def relative_overhead(self) -> float:
        """Profiled over unprofiled step time, minus 1."""
        return self.profiled_step_s / self.unprofiled_step_s - 1

    @property
    def is_apart(self) -> bool | None:
        """Whether each profiled step is longer than any unprofiled one; None without single steps' times."""
        if self.unprofiled_most_s is None or self.profiled_least_s is None:
            return None
        return self.profiled_least_s > self.unprofiled_most_s


def step_means(record: Manifest) -> list[StepMeans]:
    """Step times of the ranks that have them, ordered by overhead."""
    files = [file.facts for file in record.evidence if file.reader == "step_times"]
    return sorted(
        (msgspec.convert(facts, StepMeans) for facts in files), key=lambda means: means.relative_overhead
    )


def middle_rank(ranks: Sequence[StepMeans]) -> StepMeans:
    """The rank of median overhead; the lower of two."""
    return ranks[(len(ranks) - 1) // 2]


def profiler_s(record: Manifest) -> float:
    """Profiler overhead of a step on the median rank, s; 0 where it is unknown or less than `NOTABLE` of the
    step, and where the CPU is the device."""
    ranks = step_means(record)
    if not ranks or record.is_on_host:
        return 0.0
    middle = middle_rank(ranks)
    is_notable = middle.relative_overhead >= NOTABLE
    return middle.profiled_step_s - middle.unprofiled_step_s if is_notable else 0.0
