# SPDX-License-Identifier: Apache-2.0
"""Stragglers on a terminal: the result, then a line for each rank with its lateness over steps as a strip."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import numpy as np
from rich import box
from rich.table import Table
from rich.text import Text

from cclbench.analyzers.view.lateness import Float
from cclbench.ground.text import printable
from cclbench.ground.units import humanise
from cclbench.present.terminal import QUIET, VERBOSE
from cclbench.present.terminal.output import titled_bullets
from cclbench.stragglers import RunStragglers, Stragglers

if TYPE_CHECKING:
    from rich.console import RenderableType

MOST_RANKS: Final = 12
"""Most ranks listed, unless verbose."""
_STRIP: Final = 22
"""Characters of a strip; with more steps, the maximum of each block is shown."""
_NOTICED: Final = 1.005
"""Smallest reported slowdown."""
_LEGEND: Final = (
    "a step: how much later the rank is than others of its role, by its own work;\n"
    "latest: number of steps in which it is the latest"
)
_LEVELS: Final = (" ▁▂▃▄▅▆▇█", " .:-=+*#@")
"""Levels of lateness from none to the run's maximum, in Unicode and ASCII."""


def stragglers_page(stragglers: Stragglers, *, verbosity: int, unicode: bool) -> list[RenderableType]:
    """Each run, then common stragglers of several runs."""
    parts: list[RenderableType] = []
    for run in stragglers.runs:
        parts += [Text()] if parts else []
        parts += _run_parts(run, verbosity, unicode)
    if stragglers.words is not None:
        parts += [Text(), Text(printable(stragglers.words), "bold")]
    return parts


def _run_parts(run: RunStragglers, verbosity: int, unicode: bool) -> Iterator[RenderableType]:
    steps, ranks = len(run.steps), len(run.ranks)
    yield Text(printable(f"{run.run}: {ranks:,} ranks, {steps:,} step{'s'[: steps != 1]}"))
    yield Text(printable(run.words), "bold")
    if run.slowdown is not None:
        yield Text(_slowdown_words(run.slowdown))
    if verbosity > QUIET:
        yield Text()
        yield _rank_table(run, verbosity, unicode)
        yield Text(_LEGEND, "dim")
        yield from titled_bullets("Notes", list(run.notes))


def _slowdown_words(ratio: float) -> str:
    if ratio < _NOTICED:
        return f"A replay without stragglers has no shorter step ({humanise(ratio, 'ratio')})."
    return f"Without stragglers the step would be {humanise(ratio, 'ratio')} faster, by replay."


def _rank_table(run: RunStragglers, verbosity: int, unicode: bool) -> Table:
    """The latest ranks first; the highest level of strips is the run's maximum."""
    shown = run.ranks if verbosity >= VERBOSE else run.ranks[:MOST_RANKS]
    of_rank = dict(zip(sorted(rank.rank for rank in run.ranks), run.late_s, strict=True))
    most = float(run.late_s.max(initial=0.0))
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for heading in ("rank", "a step", "most", "latest"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("steps", no_wrap=True)
    table.add_column("longer in", no_wrap=True)
    for rank in shown:
        table.add_row(
            str(rank.rank),
            humanise(rank.mean_s, "s"),
            humanise(rank.max_s, "s"),
            str(rank.latest),
            _lateness_strip(of_rank[rank.rank], most, unicode),
            rank.cause or "",
        )
    if more := len(run.ranks) - len(shown):
        table.caption = f"{more} less late ranks are not shown (-v: all)"
    return table


def _lateness_strip(late: Float, most: float, unicode: bool) -> str:
    levels = _LEVELS[not unicode]
    blocks = np.array_split(late, min(_STRIP, len(late)))
    heights = [block.max() / most if most else 0.0 for block in blocks]
    return "".join(levels[int(np.ceil(height * (len(levels) - 1)))] for height in heights)
