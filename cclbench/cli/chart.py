# SPDX-License-Identifier: Apache-2.0
"""The step partition in characters: a stacked bar a rank, readable without colour."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from rich.text import Text

from cclbench.record.rows import Row
from cclbench.report.partition import PARTS, RankPartition, extremes, partitions
from cclbench.units import humanise

_MOST_RANKS: Final = 16
_BAR: Final = 34


def chart(rows: Sequence[Row], *, unicode: bool, every_rank: bool = False) -> Iterator[Text]:
    """Header, a line a rank, legend: 80 columns; nothing where no rank has all five parts.

    A bar's length is its rank's window over the longest; behind it the window and its shares in %.
    """
    ranks = partitions(rows)
    if not ranks:
        return
    shown = ranks if every_rank else extremes(ranks, _MOST_RANKS)
    name = max(len(f"rank {rank.rank}") for rank in shown)
    header = Text(f"{'':{name}}  {'':{_BAR}} {'window':>8}", "dim")
    for part in PARTS:
        header.append(f"{_glyph(part.metric, unicode):>5}", part.colour)
    header.append(" %", "dim")
    yield header
    longest = max(rank.step for rank in ranks)
    for rank in shown:
        line = Text(f"{f'rank {rank.rank}':{name}}  ")
        line.append_text(_bar(rank, longest, unicode))
        line.append(f" {humanise(rank.step, 's'):>8}")
        for seconds in rank.seconds:
            line.append(f"{_percent(seconds, rank.step):>5}")
        yield line
    if len(shown) < len(ranks):
        yield Text(
            f"{len(ranks) - len(shown)} ranks between the slowest and the fastest not shown (-v: all)", "dim"
        )
    legend = Text()
    for part in PARTS:
        legend.append(_glyph(part.metric, unicode), part.colour)
        legend.append(f" {part.label}   ")
    legend.rstrip()
    yield legend


def _glyph(metric: str, unicode: bool) -> str:
    part = next(part for part in PARTS if part.metric == metric)
    return part.glyph if unicode else part.plain


def _percent(seconds: float, step: float) -> str:
    percent = 100 * seconds / step if step else 0.0
    return "<1" if 0 < percent < 0.5 else f"{percent:.0f}"


def _bar(rank: RankPartition, longest: float, unicode: bool) -> Text:
    """Each part ends at the cell nearest to where it ends in time, so that errors do not add up."""
    bar, end, cells = Text(), 0.0, 0
    for part, seconds in zip(PARTS, rank.seconds, strict=True):
        end += seconds
        upto = round(_BAR * end / longest) if longest else 0
        bar.append(_glyph(part.metric, unicode) * (upto - cells), part.colour)
        cells = upto
    bar.append(" " * (_BAR - cells))
    return bar
