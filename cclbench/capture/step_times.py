# SPDX-License-Identifier: Apache-2.0
"""The overhead of the profiler: step times without and with it, in one small JSON file per rank.

Only steps are timed, not the time between two of them, in which the profiler starts, stops and writes.  The
first step, which compiles and allocates, is left out, and so are those that follow it and are longer than all
later ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec

from cclbench.ground.destination import write_whole

SCHEMA: Final = "cclbench.step-times.v1"
_LONGEST_S: Final = 1e9
_COLD: Final = 0.1
_LEAST: Final = 2
_Word = Annotated[str, msgspec.Meta(pattern=r"^[a-z_]{1,40}$")]


class StepPhase(msgspec.Struct, frozen=True, omit_defaults=True):
    """Consecutive steps: their number, their total seconds, and the seconds of each, if known."""

    steps: Annotated[int, msgspec.Meta(ge=1, le=1 << 40)]
    seconds: Annotated[float, msgspec.Meta(gt=0, le=_LONGEST_S)]
    each: list[Annotated[float, msgspec.Meta(ge=0, le=_LONGEST_S)]] = []

    @classmethod
    def from_seconds(cls, each: Sequence[float]) -> StepPhase:
        """From the seconds of each step."""
        return cls(len(each), sum(each), list(each))

    def without_cold_steps(self) -> StepPhase:
        """Without leading steps that are longer than each later one by more than `_COLD`, which compile,
        allocate and load; at least `_LEAST` steps are left.
        """
        cold = 0
        while len(self.each) - cold > _LEAST and self.each[cold] > (1 + _COLD) * max(self.each[cold + 1 :]):
            cold += 1
        return StepPhase.from_seconds(self.each[cold:]) if cold else self

    @property
    def mean_s(self) -> float:
        """Mean seconds per step."""
        return self.seconds / self.steps


class StepTimes(msgspec.Struct, frozen=True, kw_only=True):
    """One rank's steps; `records` is what the profiler recorded besides times: shapes, stacks, ..."""

    schema: Literal["cclbench.step-times.v1"] = SCHEMA
    rank: Annotated[int, msgspec.Meta(ge=0, lt=1 << 31)]
    profiler: Annotated[str, msgspec.Meta(pattern=r"^[a-z.]{1,40}$")]
    records: Annotated[list[_Word], msgspec.Meta(max_length=16)] = []
    unprofiled: StepPhase
    profiled: StepPhase

    @property
    def relative_overhead(self) -> float:
        """Relative increase of the step time by the profiler; negative if profiled steps are shorter."""
        return self.profiled.mean_s / self.unprofiled.without_cold_steps().mean_s - 1


def write_step_times(times: StepTimes, folder: Path) -> None:
    """Write `rank{R}_step_times.json` into the folder."""
    text = msgspec.json.format(msgspec.json.encode(times), indent=1).decode()
    write_whole(text + "\n", folder / f"rank{times.rank}_step_times.json")
