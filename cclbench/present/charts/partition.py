# SPDX-License-Identifier: Apache-2.0
"""Step partition: for each run a stacked bar for the mean of the ranks, and one for each rank."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cclbench.comparison.subject import ComparisonSubject
from cclbench.ground.errors import UsageError
from cclbench.ground.units import humanise
from cclbench.present.charts.chart import (
    FULL_PX,
    Chart,
    Titles,
    blank_canvas,
    merge_alike,
    section,
    with_letter,
)
from cclbench.present.charts.palette import SLICES, StepSlice, light_colour
from cclbench.present.charts.svg import drawn_svg, house_style
from cclbench.present.partition import METRICS, PartitionBar, Seconds, bars_of, by_rank, extreme_bars
from cclbench.present.picture import check_picture, save_picture
from cclbench.record.metric_name import metric_name
from cclbench.record.rows import Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COMPUTE_ONLY: Final = metric_name("time.compute_only")

MOST_BARS: Final = 64
_READABLE: Final = 0.035
_BAR_PX: Final = (12, 19)
"""Smallest and largest height of a bar with the gap below it."""
_HEIGHT_PX: Final = 760
"""Target height for many bars, if the smallest height allows."""
_GAP: Final = 0.9
_TITLE_PX: Final = 58
"""Height of title and legend above the bars of a picture."""

Blocks = Sequence[tuple[int, Sequence[PartitionBar]]]
"""Each run's place in the page and its bars, the mean of its ranks first."""


@section("partition", place=10)
def partition_chart(runs: Sequence[ComparisonSubject]) -> Chart:
    """The bars of all runs on one axis; with many ranks those with the longest and shortest windows."""
    heading = "Where the time goes, rank by rank"
    caption = (
        "Exact partition of each rank's window, mean over its windows. Overlapped is compute during"
        " communication; exposed communication is divided into waiting for a later rank and transfer if"
        " collectives are matched across ranks."
    )
    blocks, missing = [], []
    for run in runs:
        bars, hidden = _bars_of(run, len(runs))
        if not bars:
            missing.append((run, f"no partition: {run.results.missing_reason(_COMPUTE_ONLY)}"))
            continue
        if hidden:
            missing.append((run, hidden))
        blocks.append((run.index, bars))
    label = "; ".join(_in_words(bars[0]) for _, bars in blocks)
    label = f"Partition: {label}"
    svg = drawn_svg(lambda: _draw_bars(blocks), name="partition", label=label) if blocks else None
    legend = tuple((part.colour, "▨" if part.hatch else "■", part.label) for part in _used_slices(blocks))
    return Chart("partition", heading, caption, svg, merge_alike(missing), wide=True, legend=legend)


def partition_picture(rows: Sequence[Row], *, title: str) -> Figure:
    """The bars of one run, with title and legend; `UsageError` if the rows have no partition."""
    bars, hidden = _chosen_bars(by_rank(rows), 1)
    if not bars:
        raise UsageError(
            "there is no step partition to plot", hint="it needs the figures of `--metric 'time.*'` on a rank"
        )
    return framed_picture([(0, bars)], title=title, note=hidden)


def plot_partition(rows: Sequence[Row], path: Path, *, title: str) -> None:
    """Write the picture as PNG, SVG or PDF by the file's suffix; `UsageError` for any other."""
    check_picture(path)
    with house_style():
        save_picture(lambda: partition_picture(rows, title=title), path)


def picture_of_runs(runs: Sequence[ComparisonSubject]) -> Figure:
    """The bars of several runs on one axis; `UsageError` if none has a partition."""
    blocks, notes = [], []
    for run in runs:
        bars, hidden = _bars_of(run, len(runs))
        blocks += [(run.index, bars)] if bars else []
        notes += [with_letter(run, hidden)] if hidden else []
    if not blocks:
        raise UsageError("there is no step partition to plot: none of the runs has one")
    return framed_picture(
        blocks, title=", ".join(with_letter(run, run.id) for run in runs), note="; ".join(notes)
    )


def framed_picture(blocks: Blocks, *, title: str, note: str) -> Figure:
    """The drawing with title, legend, and a note on ranks that are not drawn."""
    from matplotlib.patches import Patch

    with house_style():
        figure, _ = _draw_bars(blocks, top=_TITLE_PX)
        (axes,) = figure.axes
        handles = [Patch(label=part.label, **_fill_style(part)) for part in _used_slices(blocks)]
        axes.legend(
            handles=handles,
            loc="lower left",
            bbox_to_anchor=(0, 1),
            ncols=len(handles),
            fontsize=9,
            borderpad=0,
            borderaxespad=0.5,
            handlelength=1.2,
            handleheight=0.9,
            columnspacing=1.2,
        )
        axes.set_title(title, loc="left", fontweight="bold", pad=30)
        axes.set_xlabel(note)
    return figure


def _bars_of(run: ComparisonSubject, runs: int) -> tuple[list[PartitionBar], str]:
    """The bars of one of several runs, labelled with its letter."""
    return _chosen_bars(
        {metric: run.results.ranks(metric) for metric in METRICS}, runs, partial(with_letter, run)
    )


def _chosen_bars(
    by_metric: Seconds, runs: int, titled: Callable[[str], str] = str
) -> tuple[list[PartitionBar], str]:
    """The mean of the ranks, then as many ranks as fit; and a note on those that are not drawn."""
    ranks = bars_of(by_metric, finer=lambda _: True)
    if not ranks:
        return [], ""
    number = len(ranks)
    by_slice = zip(*(bar.slices for bar in ranks), strict=True)
    mean = tuple((column[0][0], sum(seconds for _, seconds in column) / number) for column in by_slice)
    most = max(MOST_BARS // runs, 8) // 2 * 2
    shown = [PartitionBar(f"mean of {number} ranks", mean), *extreme_bars(ranks, most)]
    if number == 1:
        shown = [PartitionBar("one rank", mean)]
    present = {part for bar in ranks for part, seconds in bar.slices if seconds > 0}
    bars = [
        PartitionBar(titled(bar.name), tuple(pair for pair in bar.slices if pair[0] in present))
        for bar in shown
    ]
    hidden = number - most
    return (
        bars,
        f"{hidden} ranks between the longest and the shortest window are not drawn" if hidden > 0 else "",
    )


def _in_words(bar: PartitionBar) -> str:
    return f"{bar.name}: " + ", ".join(
        f"{part.label} {humanise(seconds, 's')}" for part, seconds in bar.slices
    )


def _used_slices(blocks: Blocks) -> list[StepSlice]:
    """The slices in any bar, in the order of `SLICES`."""
    used = {part for _, bars in blocks for bar in bars for part, _ in bar.slices}
    return [part for parent in SLICES for part in (parent, *parent.finer) if part in used]


def _draw_bars(blocks: Blocks, *, top: int = 4) -> tuple[Figure, Titles]:
    from cclbench.present.charts.ticks import quantity_axis

    places, at = [], 0.0
    for run, bars in blocks:
        for index, bar in enumerate(bars):
            places.append((run, bar, at, index == 0))
            at += 1.25 if index == 0 and len(bars) > 1 else 1
        at += _GAP
    at -= _GAP
    bar_px = min(max(_HEIGHT_PX / at, _BAR_PX[0]), _BAR_PX[1])
    figure, axes = blank_canvas(FULL_PX, int(bar_px * at) + 44 + top, left=136, right=84, top=top, bottom=36)
    longest = max(bar.total_seconds for _, bar, _, _ in places) or 1.0
    titles: dict[str, str] = {}
    for run, bar, place, mean in places:
        _stack_slices(axes, run, bar, place, longest, titles)
        axes.annotate(
            humanise(bar.total_seconds, "s"),
            (bar.total_seconds, place),
            (6, 0),
            textcoords="offset points",
            va="center",
            fontsize=min(11, bar_px - 2),
            fontweight="bold" if mean else "normal",
        )
    axes.set_yticks([place for _, _, place, _ in places], [bar.name for _, bar, _, _ in places])
    for tick, (_, _, _, mean) in zip(axes.get_yticklabels(), places, strict=True):
        tick.set_fontweight("bold" if mean else "normal")
        tick.set_fontsize(min(11, bar_px - 2))
    axes.set_ylim(at - 0.4, -0.6)
    axes.set_xlim(0, longest)
    quantity_axis(axes.xaxis, "s", 10)
    axes.tick_params(axis="y", length=0, labelcolor=light_colour("ink"))
    axes.grid(visible=False, axis="y")
    axes.spines["left"].set_visible(False)
    return figure, titles


def _fill_style(part: StepSlice) -> dict[str, Any]:
    hatch = {"hatch": part.hatch[0], "edgecolor": light_colour(part.hatch[1])} if part.hatch else {}
    return {"facecolor": light_colour(part.colour), **hatch}


def _stack_slices(
    axes: Axes, run: int, bar: PartitionBar, place: float, longest: float, titles: dict[str, str]
) -> None:
    from matplotlib.patches import Rectangle

    left = 0.0
    for index, (part, seconds) in enumerate(bar.slices):
        gid = f"bar-{run}-{place:g}-{index}"
        # `barh` would fit the axes to each one anew.
        axes.add_artist(Rectangle((left, place - 0.4), seconds, 0.8, gid=gid, **_fill_style(part)))
        share = seconds / bar.total_seconds if bar.total_seconds else 0.0
        titles[gid] = (
            f"{bar.name}: {part.label} {humanise(seconds, 's')}, {humanise(share, '1')} of"
            f" {humanise(bar.total_seconds, 's')}\n{part.metric}, measured"
        )
        if seconds > _READABLE * longest:
            axes.text(
                left + seconds / 2,
                place,
                f"{share:.0%}",
                ha="center",
                va="center",
                fontsize=10,
                color=light_colour(part.ink),
            )
        left += seconds
