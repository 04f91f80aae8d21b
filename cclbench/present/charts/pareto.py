# SPDX-License-Identifier: Apache-2.0
"""Pareto fronts of serving benchmarks: throughput against latency, a drawing for each latency."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cclbench.comparison.serving_points import ServingPoint, ServingPoints, collected_points, serving_points
from cclbench.comparison.subject import ComparisonSubject
from cclbench.ground.errors import UsageError
from cclbench.ground.text import printable
from cclbench.ground.units import humanise
from cclbench.present.charts.chart import HALF_PX, Chart, Titles, blank_canvas, section
from cclbench.present.charts.palette import drawing_colour, light_colour, marker_of
from cclbench.present.charts.svg import drawn_svg, house_style
from cclbench.present.picture import save_picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

HEIGHT_PX: Final = 300
_FIGURES: Final = {
    "ttft": "time to first token",
    "tpot": "time per output token",
    "itl": "time between tokens",
    "e2e_latency": "end-to-end latency",
}
_STATS: Final = ("p99", "p90", "p50", "mean")
"""In order of preference: the first that two points have is drawn."""
_DECADE: Final = 10
"""Latencies that span less have a linear axis, on which round values are close enough for ticks."""
_HEADROOM: Final = 1.12
"""Height of the axis over its highest mark, above which its number stands."""
_CAPTION: Final = (
    "A mark is a benchmark; the line joins those that no other one beats in both throughput and latency."
    " The numbers on the line are the most requests at a time."
)


def points_of(runs: Iterable[ComparisonSubject]) -> ServingPoints:
    """The serving benchmarks of the runs."""
    return collected_points(
        serving_points(run.id, run.results.rows, run.card_field("workload.model.name")) for run in runs
    )


@section("pareto", place=55)
def pareto_charts(runs: Sequence[ComparisonSubject]) -> Iterator[Chart]:
    """A chart for each latency that at least two benchmarks state; none without serving benchmarks."""
    points = points_of(runs)
    for figure, latency in _drawn_latencies(points):
        heading = f"Throughput against {_FIGURES[figure]}"
        front = points.fronts[latency]
        summary = (
            f"{latency.partition(' ')[2]}, {len(front)} of {len(_with(points, latency))} points are best"
        )
        svg = drawn_svg(
            lambda latency=latency: _draw_panel(points, latency),  # type: ignore[misc]
            name=f"pareto-{figure}",
            label=f"{heading}: {summary}",
        )
        caption = f"{_CAPTION} Here: {summary}."
        yield Chart(f"pareto-{figure}", heading, caption, svg, tuple(map(printable, points.notes)))


def _drawn_latencies(points: ServingPoints) -> Iterator[tuple[str, str]]:
    for figure in _FIGURES:
        for stat in _STATS:
            latency = f"{figure} {stat}"
            if latency in points.fronts and len(_with(points, latency)) > 1:
                yield figure, latency
                break


def _with(points: ServingPoints, latency: str) -> list[int]:
    return [
        number
        for number, point in enumerate(points.points)
        if latency in point.latencies and points.throughput(point) is not None
    ]


def _draw_panel(points: ServingPoints, latency: str) -> tuple[Figure, Titles]:
    figure, axes = blank_canvas(HALF_PX, HEIGHT_PX, left=84, right=24, top=26, bottom=44)
    return figure, draw_points(axes, points, latency)


def draw_points(axes: Axes, points: ServingPoints, latency: str) -> Titles:
    """Draw the points that state a latency, and the front of each workload; returns hover texts."""
    from cclbench.present.charts.ticks import label_above, logarithmic_axis, quantity_axis

    titles: dict[str, str] = {}
    runs = list(dict.fromkeys(point.run for point in points.points))
    on_front = set(points.fronts[latency])
    for number in _with(points, latency):
        point = points.points[number]
        x, y = _place(points, point, latency)
        colour = drawing_colour(runs.index(point.run) % 6)
        (mark,) = axes.plot(
            [x],
            [y],
            marker=marker_of(runs.index(point.run)),
            markersize=7,
            color=colour,
            alpha=1.0 if number in on_front else 0.45,
            linestyle="none",
        )
        gid = f"point-{number}"
        mark.set_gid(gid)
        titles[gid] = f"{printable(point.name)}\n{humanise(y, '1/s')} tokens, {latency} {humanise(x, 's')}"
        if number in on_front and "max_concurrency" in point.load:
            axes.annotate(
                f"{point.load['max_concurrency']:g}",
                (x, y),
                (0, 6),
                textcoords="offset points",
                ha="center",
                fontsize=9,
                color=light_colour("muted"),
            )
    for workload in dict.fromkeys(points.points[number].workload for number in on_front):
        places = sorted(
            _place(points, points.points[number], latency)
            for number in on_front
            if points.points[number].workload == workload
        )
        axes.plot(*zip(*places, strict=True), color=light_colour("ink"), linewidth=1.0, zorder=1)
    drawn = [_place(points, points.points[number], latency) for number in _with(points, latency)]
    seconds, rates = zip(*drawn, strict=True)
    axes.margins(0.08)
    if max(seconds) > _DECADE * min(seconds) > 0:
        axes.set_xscale("log")
        logarithmic_axis(axes.xaxis)
        axes.xaxis.set_major_formatter(lambda seconds, _: humanise(seconds, "s"))
        axes.minorticks_off()
    else:
        quantity_axis(axes.xaxis, "s", 5)
    axes.set_ylim(0, _HEADROOM * max(rates) or 1)
    figure, stat = latency.split(" ")
    axes.set_xlabel(f"{_FIGURES[figure]}, {stat}")
    label_above(axes, f"output tokens/s {'per accelerator' if points.is_per_device else 'in all'}")
    return titles


def _place(points: ServingPoints, point: ServingPoint, latency: str) -> tuple[float, float]:
    return point.latencies[latency], points.throughput(point) or 0.0


def plot_points(points: ServingPoints, path: Path, *, title: str) -> None:
    """Draw all latencies as PNG, SVG or PDF; `UsageError` if fewer than two points state one."""
    drawn = [latency for _, latency in _drawn_latencies(points)]
    if not drawn:
        raise UsageError("fewer than two points state a latency", hint="pass results over several loads")

    def draw() -> Figure:
        from matplotlib.figure import Figure

        figure = Figure(figsize=(6.4, 3.6 * len(drawn) + 0.4), layout="constrained")
        for latency, (axes,) in zip(drawn, figure.subplots(len(drawn), 1, squeeze=False), strict=True):
            draw_points(axes, points, latency)
        figure.suptitle(printable(title), x=0.01, ha="left", fontweight="bold")
        return figure

    with house_style():
        save_picture(draw, path)
