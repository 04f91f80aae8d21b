# SPDX-License-Identifier: Apache-2.0
"""Bus bandwidth over message size of benchmarks of collectives, with the band of the cost model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from cclbench.comparison.subject import ComparisonSubject
from cclbench.ground.units import humanise, size_text
from cclbench.present.charts.chart import (
    HALF_PX,
    Chart,
    Titles,
    blank_canvas,
    legend_entries,
    section,
    with_letter,
)
from cclbench.present.charts.palette import drawing_colour, light_colour, marker_of
from cclbench.present.charts.svg import drawn_svg
from cclbench.source_summaries.summary import FigureTable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_CHARTS: Final = 6
"""Most sweeps of a run that are drawn."""
_TICKS: Final = 6
_CAPTION: Final = (
    "Bus bandwidth by message size, from the benchmark's times: filled marks out of place, hollow ones in"
    " place. The band is where the cost model expects it in four of five cases, from the catalog's figures of"
    " the machine."
)
_Sweep = tuple[ComparisonSubject, FigureTable]


@section("sweep", place=25)
def sweep_charts(runs: Sequence[ComparisonSubject]) -> Iterator[Chart]:
    """A chart for each sweep of a run; sweeps of several runs of one collective share a chart."""
    for place, (title, sweeps) in enumerate(_sweeps_by_chart(runs).items()):
        key = f"sweep-{place}"
        missing = tuple(
            with_letter(run, "no band: the cost model has no price, or the machine is not known")
            for run, table in sweeps
            if not any(table.values_of("model"))
        )
        heading = f"Bus bandwidth of {title}"
        best = "; ".join(
            with_letter(run, f"up to {humanise(max(_known_rates(table)), 'B/s')}") for run, table in sweeps
        )
        svg = drawn_svg(lambda: _draw_sweeps(sweeps), name=key, label=f"{heading}: {best}")  # noqa: B023
        legend = legend_entries(run for run, _ in sweeps)
        yield Chart(key, heading, _CAPTION, svg, missing, legend=legend)


def _sweeps_by_chart(runs: Sequence[ComparisonSubject]) -> dict[str, list[_Sweep]]:
    """Sweeps with any bandwidth by title of their chart; of several runs by collective."""
    sweeps: dict[str, list[_Sweep]] = {}
    for run in runs:
        tables = [table for summary in run.summaries if summary.kind == "sweep" for table in summary.tables]
        for table in [table for table in tables if _known_rates(table)][:MOST_CHARTS]:
            sweeps.setdefault(table.subject if len(runs) > 1 else table.title, []).append((run, table))
    return sweeps


def _known_rates(table: FigureTable) -> list[float]:
    return [rate for name in ("busbw", "busbw in place") for rate in table.values_of(name) if rate]


def _draw_sweeps(sweeps: Sequence[_Sweep]) -> tuple[Figure, Titles]:
    figure, axes = blank_canvas(HALF_PX, 330, left=78, right=14, top=24, bottom=46)
    axes.set_xscale("log", base=2)
    titles: dict[str, str] = {}
    for number, (run, table) in enumerate(sweeps):
        colour = drawing_colour(run.index if run.letter else 0)
        titles |= _draw_band(axes, run, table, colour, f"band-{number}")
        for column, face in (("busbw", colour), ("busbw in place", "none")):
            titles |= _draw_curve(
                axes, run, table, column, colour, face, f"curve-{number}-{face != colour:d}"
            )
    _label_axes(axes, [size for _, table in sweeps for size in table.values_of("size") if size])
    return figure, titles


def _draw_band(
    axes: Axes, run: ComparisonSubject, table: FigureTable, colour: str, gid: str
) -> dict[str, str]:
    """The model's 80 % band, and its expected bandwidth as a dashed line."""
    columns = ("size", "model low", "model high", "model")
    rows = [row for row in zip(*map(table.values_of, columns), strict=True) if None not in row]
    if not rows:
        return {}
    sizes, low, high, expected = zip(*rows, strict=True)
    axes.fill_between(sizes, low, high, color=colour, alpha=0.14, linewidth=0).set_gid(gid)
    axes.plot(sizes, expected, color=light_colour("muted"), linewidth=1.1, linestyle=(0, (5, 3)))
    return {gid: f"{with_letter(run, table.title)}: where the model expects four of five measurements"}


def _draw_curve(
    axes: Axes, run: ComparisonSubject, table: FigureTable, column: str, colour: str, face: str, gid: str
) -> dict[str, str]:
    """One placement of a sweep as a line, with a mark for each size."""
    points = [
        (size, rate)
        for size, rate in zip(table.values_of("size"), table.values_of(column), strict=True)
        if size and rate
    ]
    if not points:
        return {}
    axes.plot(*zip(*points, strict=True), color=colour, linewidth=1.0, alpha=0.6)
    titles = {}
    for place, (size, rate) in enumerate(points):
        (mark,) = axes.plot(
            [size],
            [rate],
            marker=marker_of(run.index if run.letter else 0),
            markersize=5,
            color=face,
            markeredgecolor=colour,
            linestyle="none",
        )
        mark.set_gid(f"{gid}-{place}")
        titles[f"{gid}-{place}"] = f"{with_letter(run, column)} at {size_text(size)}: {humanise(rate, 'B/s')}"
    return titles


def _label_axes(axes: Axes, sizes: Sequence[float]) -> None:
    from cclbench.present.charts.ticks import label_above

    first, last = (round(size).bit_length() - 1 for size in (min(sizes), max(sizes)))
    powers = range(first, last + 1, -(-(last - first) // _TICKS) or 1)
    axes.set_xticks([2.0**power for power in powers], [size_text(2**power) for power in powers])
    axes.minorticks_off()
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(lambda value, _: humanise(value, "B/s"))
    axes.set_xlabel("message size")
    label_above(axes, "bus bandwidth")
