# SPDX-License-Identifier: Apache-2.0
"""How long steps take under the profiler and without it, where the capture timed both."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from cclbench.record.manifest import Manifest


class StepMeans(msgspec.Struct, frozen=True, kw_only=True):
    """What the reader `step_times` tells of a rank's steps, in seconds."""

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
        """By which fraction a profiled step is longer."""
        return self.profiled_step_s / self.unprofiled_step_s - 1

    @property
    def is_apart(self) -> bool | None:
        """Whether each profiled step is longer than any other; None where single ones are not told."""
        if self.unprofiled_most_s is None or self.profiled_least_s is None:
            return None
        return self.profiled_least_s > self.unprofiled_most_s


def step_means(record: Manifest) -> list[StepMeans]:
    """Those of the ranks that have them, by their overhead."""
    files = [file.facts for file in record.evidence if file.reader == "step_times"]
    return sorted(
        (msgspec.convert(facts, StepMeans) for facts in files), key=lambda one: one.relative_overhead
    )


def middle_rank(ranks: Sequence[StepMeans]) -> StepMeans:
    """The middle one of ranks by their overhead, of two the lower."""
    return ranks[(len(ranks) - 1) // 2]


def profiler_s(record: Manifest) -> float:
    """How much longer a step is under the profiler, on the middle one of the ranks, in s; 0 where unknown."""
    ranks = step_means(record)
    if not ranks:
        return 0.0
    own = middle_rank(ranks)
    return max(own.profiled_step_s - own.unprofiled_step_s, 0.0)
