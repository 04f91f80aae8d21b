# SPDX-License-Identifier: Apache-2.0
"""The step partition as a stacked bar a rank, readable without colour."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from rich.text import Text

from cclbench.present.charts.palette import SLICES, Slice, light
from cclbench.present.partition import Bar, bars_of, by_rank, extremes
from cclbench.record.rows import Row
from cclbench.units import humanise

MOST_RANKS: Final = 16
_WIDTH: Final = 80
_COLUMN: Final = 5
_FINER: Final = tuple(one for whole in SLICES for one in whole.finer)


def chart(
    rows: Sequence[Row], *, unicode: bool, most: int = MOST_RANKS, every_rank: bool = False
) -> Iterator[Text]:
    """Header, a line a rank, legend, 80 columns; nothing where no rank has all five parts.

    A bar's length is its rank's window over the longest; behind it the window and its shares in %.  Waiting
    and transfer are told apart where all ranks tell them; a finer part that no rank has is left out.
    """
    ranks = bars_of(by_rank(rows), finer=_drawn)
    if not ranks:
        return
    shown = ranks if every_rank else extremes(ranks, most)
    parts = _parts(ranks)
    name = max(len(rank.name) for rank in shown)
    width = _WIDTH - name - 2 - 9 - _COLUMN * len(parts) - 2
    header = Text(f"{'':{name}}  {'':{width}} {'window':>8}", "dim")
    for part in parts:
        header.append(f"{part.glyphs[not unicode]:>{_COLUMN}}", light(part.colour))
    header.append(" %", "dim")
    yield header
    longest = max(rank.seconds for rank in ranks)
    for rank in shown:
        line = Text(f"{rank.name:{name}}  ")
        line.append_text(_bar(rank, longest, width, unicode))
        line.append(f" {humanise(rank.seconds, 's'):>8}")
        for part, seconds in rank.slices:
            if part in parts:
                line.append(f"{_percent(seconds, rank.seconds):>{_COLUMN}}")
        yield line
    if len(shown) < len(ranks):
        left_out = len(ranks) - len(shown)
        yield Text(f"{left_out} ranks between the longest and the shortest window not shown (-v: all)", "dim")
    legend = Text()
    for part in parts:
        legend.append(part.glyphs[not unicode], light(part.colour)).append(f" {part.short}   ")
    legend.rstrip()
    yield legend


def _drawn(whole: Slice) -> bool:
    """Whether a terminal draws what a part consists of."""
    return all(one.short for one in whole.finer)


def _parts(ranks: Sequence[Bar]) -> list[Slice]:
    """The parts that stand in columns, without finer ones that no rank has any of."""
    slices = [rank.slices for rank in ranks]
    return [
        part
        for place, (part, _) in enumerate(slices[0])
        if part not in _FINER or any(own[place][1] for own in slices)
    ]


def _percent(seconds: float, step: float) -> str:
    percent = 100 * seconds / step if step else 0.0
    return "<1" if 0 < percent < 0.5 else f"{percent:.0f}"


def _bar(rank: Bar, longest: float, width: int, unicode: bool) -> Text:
    """Each part ends at the cell nearest to where it ends in time, so that errors do not add up."""
    bar, end, cells = Text(), 0.0, 0
    for part, seconds in rank.slices:
        end += seconds
        upto = round(width * end / longest) if longest else 0
        bar.append(part.glyphs[not unicode] * (upto - cells), light(part.colour))
        cells = upto
    bar.append(" " * (width - cells))
    return bar
