# SPDX-License-Identifier: Apache-2.0
"""What the profiler costs: how long steps take without it and with it, one small JSON file a rank.

Only steps count, not what lies between two of them: there the profiler is started, stopped and written.
The first step is left out, which compiles and allocates.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec

from cclbench.ground.destination import write_whole

SCHEMA: Final = "cclbench.step-times.v1"
_LONGEST_S: Final = 1e9
_Word = Annotated[str, msgspec.Meta(pattern=r"^[a-z_]{1,40}$")]


class StepPhase(msgspec.Struct, frozen=True, omit_defaults=True):
    """Steps in a row: their number, their seconds together, and each one's where they can be told apart."""

    steps: Annotated[int, msgspec.Meta(ge=1, le=1 << 40)]
    seconds: Annotated[float, msgspec.Meta(gt=0, le=_LONGEST_S)]
    each: list[Annotated[float, msgspec.Meta(ge=0, le=_LONGEST_S)]] = []

    @classmethod
    def of_seconds(cls, each: Sequence[float]) -> StepPhase:
        """Of the seconds of each step."""
        return cls(len(each), sum(each), list(each))

    @property
    def mean_s(self) -> float:
        """Seconds of a step."""
        return self.seconds / self.steps


class StepTimes(msgspec.Struct, frozen=True, kw_only=True):
    """One rank's steps; `records` is what the profiler recorded beside times: shapes, stacks, ..."""

    schema: Literal["cclbench.step-times.v1"] = SCHEMA
    rank: Annotated[int, msgspec.Meta(ge=0, lt=1 << 31)]
    profiler: Annotated[str, msgspec.Meta(pattern=r"^[a-z.]{1,40}$")]
    records: Annotated[list[_Word], msgspec.Meta(max_length=16)] = []
    unprofiled: StepPhase
    profiled: StepPhase

    @property
    def relative_overhead(self) -> float:
        """By which fraction a profiled step is longer than an unprofiled one; below 0 where it is shorter."""
        return self.profiled.mean_s / self.unprofiled.mean_s - 1


def write_step_times(times: StepTimes, folder: Path) -> None:
    """`rank{R}_step_times.json` in the folder."""
    text = msgspec.json.format(msgspec.json.encode(times), indent=1).decode()
    write_whole(text + "\n", folder / f"rank{times.rank}_step_times.json")
