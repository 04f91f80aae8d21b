# SPDX-License-Identifier: Apache-2.0
"""Step partition as a stacked bar for each rank, readable without colour."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from rich.text import Text

from cclbench.ground.units import humanise
from cclbench.present.charts.palette import SLICES, StepSlice, light_colour
from cclbench.present.partition import PartitionBar, bars_of, by_rank, extreme_bars
from cclbench.record.metric_name import metric_name, metric_names
from cclbench.record.rows import Row

MOST_RANKS: Final = 16
_WIDTH: Final = 80
_COLUMN: Final = 5
_STEP: Final = metric_name("time.step")
_LEFT_OUT: Final = metric_names("time.overlapped", "time.exposed_comm", "time.exposed_copy")
"""Parts that many runs do not have."""
_FINER: Final = tuple(part for parent in SLICES for part in parent.finer)


def bar_chart(
    rows: Sequence[Row], *, unicode: bool, most: int = MOST_RANKS, every_rank: bool = False
) -> Iterator[Text]:
    """Header, a line for each rank, legend, 80 columns; nothing if no rank has all five parts.

    A bar's length is its rank's window over the longest, followed by the window and its shares in %.  Waiting
    and transfer are separate if all ranks have them; parts that no rank has are left out.
    A last line explains a step time that is none of the bars'.
    """
    ranks = bars_of(by_rank(rows), finer=_is_drawn)
    if not ranks:
        return
    shown = ranks if every_rank else extreme_bars(ranks, most)
    parts = _column_parts(ranks)
    name = max(len(rank.name) for rank in shown)
    width = _WIDTH - name - 2 - 9 - _COLUMN * len(parts) - 2
    step = next((row for row in rows if row.metric == _STEP and row.rank is None and not row.narrowed), None)
    is_capture = step is not None and step.window == "trace"
    header = Text(f"{'':{name}}  {'':{width}} {'capture' if is_capture else 'step':>8}", "dim")
    for part in parts:
        header.append(f"{part.glyphs[not unicode]:>{_COLUMN}}", light_colour(part.colour))
    header.append(" %", "dim")
    yield header
    longest = max(rank.total_seconds for rank in ranks)
    for rank in shown:
        line = Text(f"{rank.name:{name}}  ")
        line.append_text(_rank_bar(rank, longest, width, unicode))
        line.append(f" {humanise(rank.total_seconds, 's'):>8}")
        for part, seconds in rank.slices:
            if part in parts:
                line.append(f"{_percent_words(seconds, rank.total_seconds):>{_COLUMN}}")
        yield line
    if len(shown) < len(ranks):
        left_out = len(ranks) - len(shown)
        yield Text(f"{left_out} ranks between the longest and the shortest window not shown (-v: all)", "dim")
    legend = Text()
    for part in parts:
        legend.append(part.glyphs[not unicode], light_colour(part.colour)).append(f" {part.short}   ")
    legend.rstrip()
    yield legend
    if step is not None and step.has_value:
        mean, of_run = humanise(longest, "s"), humanise(step.number, "s")
        if mean != of_run:
            yield Text(
                f"Bars: means of each rank. time.step, {of_run}: mean of each step's slowest rank.", "dim"
            )


def _is_drawn(part: StepSlice) -> bool:
    """Whether a terminal draws the finer slices of a part."""
    return all(finer.short for finer in part.finer)


def _column_parts(ranks: Sequence[PartitionBar]) -> list[StepSlice]:
    """The parts with a column, without those of `_LEFT_OUT` and finer ones that are 0 on all ranks."""
    slices = [rank.slices for rank in ranks]
    return [
        part
        for place, (part, _) in enumerate(slices[0])
        if (part not in _FINER and part.metric not in _LEFT_OUT) or any(row[place][1] for row in slices)
    ]


def _percent_words(seconds: float, step: float) -> str:
    percent = 100 * seconds / step if step else 0.0
    return "<1" if 0 < percent < 0.5 else f"{percent:.0f}"


def _rank_bar(rank: PartitionBar, longest: float, width: int, unicode: bool) -> Text:
    """A bar; each part ends at the cell nearest to its end in time, so that errors do not accumulate."""
    bar, end, cells = Text(), 0.0, 0
    for part, seconds in rank.slices:
        end += seconds
        upto = round(width * end / longest) if longest else 0
        bar.append(part.glyphs[not unicode] * (upto - cells), light_colour(part.colour))
        cells = upto
    bar.append(" " * (width - cells))
    return bar
