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
    done = [one for one in result.outcomes if one.status != "not_applicable"]
    holding = sum(one.status == "holds" for one in done)
    rows = [
        {"check": one.check, "figures": one.compared or None, "outcome": _WORDS[one.status]}
        for one in result.outcomes
    ]
    parts: list[RenderableType] = [
        Text(f"{holding} of {len(done)} checks hold"),
        Text(),
        *grid_table(rows, ("check", "figures", "outcome")),
    ]
    more = None if verbosity > 0 else _LISTED
    broken = [one for one in result.outcomes if one.status == "broken"]
    said = [f"{one.check}, {one.differing} differ: {'; '.join(one.differences[:more])}" for one in broken]
    if verbosity > 0:
        others = [one for one in result.outcomes if one.status != "broken"]
        said += [f"{one.check}: {one.reason or one.claim}" for one in others]
    said += [
        f"{one.finding} gains {humanise(one.gain_s[0], 's')} to {humanise(one.gain_s[1], 's')}: {one.because}"
        for one in result.bounded_gains
    ]
    return [*parts, Text(), bullet_lines(said)] if said else parts
