# SPDX-License-Identifier: Apache-2.0
"""Latencies of serving benchmarks: percentiles of one, or over the concurrency of several."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from cclbench.comparison.subject import ComparisonSubject
from cclbench.ground.units import humanise
from cclbench.present.charts.chart import (
    HALF_PX,
    Chart,
    Titles,
    blank_canvas,
    legend_entries,
    section,
    with_letter,
)
from cclbench.present.charts.palette import MARKERS, drawing_colour, marker_of
from cclbench.present.charts.svg import drawn_svg
from cclbench.source_summaries.summary import FigureTable, SourceSummary

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_PERCENTILES: Final = ("p50", "p90", "p99")
_LOADS: Final = ("TTFT p50", "TTFT p99", "TPOT p50")
_Drawn = tuple[ComparisonSubject, dict[Any, Any]]


@section("latency", place=26)
def latency_charts(runs: Sequence[ComparisonSubject]) -> Iterator[Chart]:
    """Percentiles of single benchmarks; of several, latencies over the concurrency."""
    benchmarks = [(run, summary) for run in runs for summary in run.summaries if summary.kind == "serving"]
    single = [(run, _table(summary, "latency")) for run, summary in benchmarks if _is_single(summary)]
    several = [(run, _table(summary, "load")) for run, summary in benchmarks if not _is_single(summary)]
    if single:
        yield _chart(
            "latency-percentiles",
            "Latencies of requests",
            "50th, 90th and 99th percentile of each latency, over the answered requests.",
            [(run, latencies) for run, table in single if (latencies := _percentiles(table))],
            by_load=False,
        )
    if several:
        yield _chart(
            "latency-load",
            "Latencies by concurrency",
            "Time to first token (TTFT) and time per output token (TPOT) over the requests at a time; a mark"
            " is one benchmark.",
            [(run, curves) for run, table in several if (curves := _curves(table))],
            by_load=True,
        )


def _is_single(summary: SourceSummary) -> bool:
    return len(_table(summary, "load").rows) == 1


def _table(summary: SourceSummary, subject: str) -> FigureTable:
    return next(table for table in summary.tables if table.subject == subject)


def _percentiles(table: FigureTable) -> dict[str, list[tuple[str, float]]]:
    """Statistics and seconds of each latency."""
    names = table.values_of("latency")
    columns = {stat: table.values_of(stat) for stat in _PERCENTILES}
    return {
        name: percentiles
        for place, name in enumerate(names)
        if (percentiles := [(stat, values[place]) for stat, values in columns.items() if values[place]])
    }


def _curves(table: FigureTable) -> dict[str, list[tuple[float, float]]]:
    """Concurrency and seconds of each latency of `_LOADS`."""
    loads = table.values_of("concurrency")
    return {
        name: points
        for name in _LOADS
        if (points := [pair for pair in zip(loads, table.values_of(name), strict=True) if all(pair)])
    }


def _chart(key: str, heading: str, caption: str, drawn: Sequence[_Drawn], *, by_load: bool) -> Chart:
    if not drawn:
        return Chart(key, heading, caption, None, ("the files state no latency, or not under which load",))
    draw = _draw_curves if by_load else _draw_percentiles
    names = list(dict.fromkeys(name for _, latencies in drawn for name in latencies))
    legend = legend_entries(run for run, _ in drawn)
    marks = names if by_load else _PERCENTILES
    legend += tuple(("ink", MARKERS[marker_of(place)], name) for place, name in enumerate(marks))
    return Chart(
        key,
        heading,
        caption,
        drawn_svg(lambda: draw(drawn, names), name=key, label=f"{heading}: {', '.join(names)}"),
        legend=legend,
    )


def _draw_percentiles(drawn: Sequence[_Drawn], names: Sequence[str]) -> tuple[Figure, Titles]:
    """A line from the lowest to the highest percentile of each latency, a row for each run."""
    height = 66 + 30 * len(names) + 14 * (len(drawn) - 1) * len(names)
    figure, axes = blank_canvas(HALF_PX, height, left=150, right=24, top=14, bottom=44)
    axes.set_xscale("log")
    titles: dict[str, str] = {}
    for number, (run, latencies) in enumerate(drawn):
        colour = drawing_colour(run.index if run.letter else 0)
        for row, name in enumerate(names):
            points = latencies.get(name, [])
            at = -row - 0.6 * (number - (len(drawn) - 1) / 2) / len(drawn)
            axes.plot(
                [value for _, value in points], [at] * len(points), color=colour, alpha=0.5, linewidth=3
            )
            for place, (stat, value) in enumerate(points):
                gid = f"stat-{number}-{row}-{place}"
                (mark,) = axes.plot(
                    [value],
                    [at],
                    marker=marker_of(_PERCENTILES.index(stat)),
                    color=colour,
                    markersize=7,
                    linestyle="none",
                )
                mark.set_gid(gid)
                titles[gid] = f"{with_letter(run, name)}, {stat}: {humanise(value, 's')}"
    axes.set_yticks([-row for row in range(len(names))], list(names))
    axes.set_ylim(-len(names) + 0.4, 0.6)
    axes.xaxis.set_major_formatter(lambda value, _: humanise(value, "s"))
    axes.minorticks_off()
    return figure, titles


def _draw_curves(drawn: Sequence[_Drawn], names: Sequence[str]) -> tuple[Figure, Titles]:
    from cclbench.present.charts.ticks import label_above, logarithmic_axis

    figure, axes = blank_canvas(HALF_PX, 330, left=78, right=14, top=24, bottom=46)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    titles: dict[str, str] = {}
    for number, (run, curves) in enumerate(drawn):
        for row, name in enumerate(names):
            colour = drawing_colour(run.index if run.letter else row)
            for place, (load, value) in enumerate(curves.get(name, [])):
                gid = f"load-{number}-{row}-{place}"
                (mark,) = axes.plot(
                    [load], [value], marker=marker_of(row), color=colour, markersize=5, linestyle="none"
                )
                mark.set_gid(gid)
                titles[gid] = f"{with_letter(run, name)} at concurrency {load:,.0f}: {humanise(value, 's')}"
    loads = sorted({load for _, curves in drawn for points in curves.values() for load, _ in points})
    axes.set_xticks(loads, [f"{load:,.0f}" for load in loads])
    logarithmic_axis(axes.yaxis)
    axes.minorticks_off()
    axes.yaxis.set_major_formatter(lambda value, _: humanise(value, "s"))
    axes.set_xlabel("requests at a time")
    label_above(axes, "latency")
    return figure, titles
