# SPDX-License-Identifier: Apache-2.0
"""What a check of a run against itself found."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

Status = Literal["holds", "broken", "not_applicable"]
COLUMNS: Final = ("check", "status", "compared", "differing", "reason")


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """One check: of `compared` figures `differing` are not as they have to be, the first of them named."""

    check: str
    claim: str
    """What has to hold."""
    status: Status
    compared: int = 0
    differing: int = 0
    differences: list[str] = []
    reason: str | None = None
    """Why it is not applicable."""


class Hedged(msgspec.Struct, frozen=True, kw_only=True):
    """A gain of which only bounds are known, further apart than a hundredth of the step, and why."""

    finding: str
    gain_s: tuple[float, float]
    because: str


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """All checks of a SOURCE."""

    outcomes: list[Outcome]
    hedged: list[Hedged]
