# SPDX-License-Identifier: Apache-2.0
"""Outcome of a replay: the mean step, its critical path, and bounds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from cclbench.replay.critical_path import Path
from cclbench.replay.scenario import Scenario

DECISIVE: Final = 0.01
"""Bounds that differ by at most this share of the step give a value, their midpoint."""

HOST_BOUND: Final = 0.5
"""Share of device work in the critical path below which the host bounds a step."""


@dataclass(frozen=True, slots=True)
class ReplayedStep:
    """A replay's mean step, ns, and its critical path."""

    step_ns: float
    path: Path

    @property
    def device_share(self) -> float:
        """Share of the critical path in kernels, copies and communication; the rest is the host's, or latency
        of its calls."""
        device_ns = sum(self.path.places[place] for place in ("compute", "copy", "communication"))
        return device_ns / max(self.path.length_ns, 1)

    @property
    def is_host_bound(self) -> bool:
        """Whether the host, and latencies of its calls, are most of the critical path."""
        return self.device_share < HOST_BOUND

    @property
    def host_notes(self) -> tuple[str, ...]:
        """That the host bounds the step, if it does."""
        what = f"the host bounds the step (device work is {self.device_share:.0%} of the critical path)"
        return (f"{what}: faster kernels hardly shorten it",) if self.is_host_bound else ()


@dataclass(frozen=True, slots=True)
class Predicted:
    """Outcome of a scenario: expected (None where only bounds are known), low, high, and their basis.

    `idle`: why the settings do not affect the run; there is no outcome then.
    """

    scenario: Scenario
    expected: ReplayedStep | None
    low_ns: float
    high_ns: float
    path: Path
    basis: tuple[str, ...]
    idle: str | None = None

    @property
    def step_ns(self) -> float | None:
        """The expected step, or the midpoint of bounds that nearly agree."""
        if self.idle is not None:
            return None
        if self.expected is not None:
            return self.expected.step_ns
        agree = self.high_ns - self.low_ns <= DECISIVE * self.high_ns
        return (self.low_ns + self.high_ns) / 2 if agree else None
