# SPDX-License-Identifier: Apache-2.0
"""Self-consistency checks of a run on a terminal."""

from __future__ import annotations

from rich.console import RenderableType
from rich.text import Text

from cclbench.ground.units import humanise
from cclbench.present.terminal.output import bullet_lines, grid_table
from cclbench.selfcheck.outcome import SelfcheckResult

_WORDS = {"holds": "holds", "broken": "does not hold", "not_applicable": "not applicable"}
_LISTED = 3


def selfcheck_page(result: SelfcheckResult, *, verbosity: int = 0) -> list[RenderableType]:
    """Number of checks that hold, a row for each, differences, and gains that are bounds; -v: every claim."""
    done = [outcome for outcome in result.outcomes if outcome.status != "not_applicable"]
    holding = sum(outcome.status == "holds" for outcome in done)
    rows = [
        {"check": outcome.check, "figures": outcome.compared or None, "outcome": _WORDS[outcome.status]}
        for outcome in result.outcomes
    ]
    parts: list[RenderableType] = [
        Text(f"{holding} of {len(done)} checks hold"),
        Text(),
        *grid_table(rows, ("check", "figures", "outcome")),
    ]
    more = None if verbosity > 0 else _LISTED
    broken = [outcome for outcome in result.outcomes if outcome.status == "broken"]
    lines = [
        f"{outcome.check}, {outcome.differing} differ: {'; '.join(outcome.differences[:more])}"
        for outcome in broken
    ]
    if verbosity > 0:
        others = [outcome for outcome in result.outcomes if outcome.status != "broken"]
        lines += [f"{outcome.check}: {outcome.reason or outcome.claim}" for outcome in others]
    lines += [
        f"{gain.finding} gains {humanise(gain.gain_s[0], 's')} to"
        f" {humanise(gain.gain_s[1], 's')}: {gain.because}"
        for gain in result.bounded_gains
    ]
    return [*parts, Text(), bullet_lines(lines)] if lines else parts
