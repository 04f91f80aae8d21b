# SPDX-License-Identifier: Apache-2.0
"""The step partition in characters: a stacked bar a rank, readable without colour."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from rich.text import Text

from cclbench.present.charts.palette import SLICES, light
from cclbench.present.partition import Bar, bars_of, by_rank, extremes
from cclbench.record.rows import Row
from cclbench.units import humanise

_MOST_RANKS: Final = 16
_BAR: Final = 34


def chart(rows: Sequence[Row], *, unicode: bool, every_rank: bool = False) -> Iterator[Text]:
    """Header, a line a rank, legend: 80 columns; nothing where no rank has all five parts.

    A bar's length is its rank's window over the longest; behind it the window and its shares in %.
    """
    ranks = bars_of(by_rank(rows), finer=False)
    if not ranks:
        return
    shown = ranks if every_rank else extremes(ranks, _MOST_RANKS)
    name = max(len(rank.name) for rank in shown)
    header = Text(f"{'':{name}}  {'':{_BAR}} {'window':>8}", "dim")
    for part in SLICES:
        header.append(f"{part.glyphs[not unicode]:>5}", light(part.colour))
    header.append(" %", "dim")
    yield header
    longest = max(rank.seconds for rank in ranks)
    for rank in shown:
        line = Text(f"{rank.name:{name}}  ")
        line.append_text(_bar(rank, longest, unicode))
        line.append(f" {humanise(rank.seconds, 's'):>8}")
        for _, seconds in rank.slices:
            line.append(f"{_percent(seconds, rank.seconds):>5}")
        yield line
    if len(shown) < len(ranks):
        yield Text(
            f"{len(ranks) - len(shown)} ranks between the slowest and the fastest not shown (-v: all)", "dim"
        )
    legend = Text()
    for part in SLICES:
        legend.append(part.glyphs[not unicode], light(part.colour)).append(f" {part.short}   ")
    legend.rstrip()
    yield legend


def _percent(seconds: float, step: float) -> str:
    percent = 100 * seconds / step if step else 0.0
    return "<1" if 0 < percent < 0.5 else f"{percent:.0f}"


def _bar(rank: Bar, longest: float, unicode: bool) -> Text:
    """Each part ends at the cell nearest to where it ends in time, so that errors do not add up."""
    bar, end, cells = Text(), 0.0, 0
    for part, seconds in rank.slices:
        end += seconds
        upto = round(_BAR * end / longest) if longest else 0
        bar.append(part.glyphs[not unicode] * (upto - cells), light(part.colour))
        cells = upto
    bar.append(" " * (_BAR - cells))
    return bar
