# SPDX-License-Identifier: Apache-2.0
"""Results of the checks of a run against itself."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

Status = Literal["holds", "broken", "not_applicable"]
COLUMNS: Final = ("check", "status", "compared", "differing", "reason")


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """One check: `differing` of the `compared` figures are not as expected; `differences` lists the first."""

    check: str
    claim: str
    """The statement that is checked."""
    status: Status
    compared: int = 0
    differing: int = 0
    differences: list[str] = []
    reason: str | None = None
    """Why the check does not apply."""


class BoundedGain(msgspec.Struct, frozen=True, kw_only=True):
    """A gain whose bounds are more than 1 % of the step apart, and the reason."""

    finding: str
    gain_s: tuple[float, float]
    because: str


class SelfcheckResult(msgspec.Struct, frozen=True, kw_only=True):
    """Results of all checks of a SOURCE."""

    outcomes: list[Outcome]
    bounded_gains: list[BoundedGain]
