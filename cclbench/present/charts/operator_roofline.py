# SPDX-License-Identifier: Apache-2.0
"""Roofline of operators: a mark for each operator and shapes, with the peaks of their precisions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from cclbench.analyzers.view.operator_rows import OperatorRow
from cclbench.analyzers.view.operator_sums import DeviceRoof
from cclbench.ground.units import humanise
from cclbench.operator_table import OperatorTable
from cclbench.present.charts.chart import FULL_PX, Chart, Titles, blank_canvas, roofline_axes
from cclbench.present.charts.palette import MARKERS, colour_name, drawing_colour, light_colour, marker_of
from cclbench.present.charts.svg import drawn_svg

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_POINTS: Final = 150
_OTHER: Final = "other"


class OperatorPoint(NamedTuple):
    """An operator with its shapes: FLOP per byte, FLOP/s, and precision."""

    row: OperatorRow
    intensity: float
    rate: float
    precision: str


def operator_roofline(table: OperatorTable) -> Chart:
    """The rows of a table by shape that have FLOPs, limited to those with the most time."""
    heading = "Roofline of operators"
    caption = (
        "A mark is an operator with its shapes: FLOP/s over FLOP per byte, both by its cost model; its area"
        " is the time of all its calls. Left of a ridge it is bound by memory, right of it by the peak of its"
        " precision."
    )
    points = points_of(table)
    silent = sum(row.time_ns for row in table.rows) - sum(point.row.time_ns for point in points)
    share = silent / table.time_ns if table.time_ns else 0.0
    missing = []
    if silent:
        what = "without FLOPs (copies, collectives, operators without a cost model)"
        if len(points) == MOST_POINTS:
            what += f" or beyond {MOST_POINTS} marks"
        missing.append(f"operators {what}, {humanise(share, '1')} of the time, are not drawn")
    if not points:
        return Chart("operator-roofline", heading, caption, None, tuple(missing), wide=True)
    precisions = list(dict.fromkeys(point.precision for point in points))
    fastest = max(points, key=lambda point: point.rate)
    label = f"{heading}: {len(points)} marks, up to {humanise(fastest.rate, 'FLOP/s')}"
    svg = drawn_svg(
        lambda: _draw_roofline(points, precisions, table.roof), name="operator-roofline", label=label
    )
    legend = tuple(
        (colour_name(place), MARKERS[marker_of(place)], precision)
        for place, precision in enumerate(precisions)
    )
    return Chart("operator-roofline", heading, caption, svg, tuple(missing), wide=True, legend=legend)


def points_of(table: OperatorTable) -> list[OperatorPoint]:
    """The rows with FLOPs and bytes, most time first."""
    points = [
        OperatorPoint(row, row.flops / row.bytes, row.flops_per_s, row.precision or _OTHER)
        for row in table.rows
        if row.flops and row.bytes and row.flops_per_s
    ]
    return sorted(points, key=lambda point: -point.row.time_ns)[:MOST_POINTS]


def _draw_roofline(
    points: Sequence[OperatorPoint], precisions: Sequence[str], roof: DeviceRoof | None
) -> tuple[Figure, Titles]:
    figure, axes = blank_canvas(FULL_PX, 400, left=88, right=120, top=14, bottom=46)
    axes.set_xscale("log")
    axes.set_yscale("log")
    titles: dict[str, str] = {}
    longest = points[0].row.time_ns
    for n, point in enumerate(points):
        place = precisions.index(point.precision)
        (mark,) = axes.plot(
            [point.intensity],
            [point.rate],
            marker=marker_of(place),
            markersize=math.sqrt(16 + 420 * point.row.time_ns / longest),
            color=drawing_colour(place),
            alpha=0.6,
            markeredgewidth=0,
        )
        mark.set_gid(f"operator-{n}")
        titles[f"operator-{n}"] = _hover_text(point)
    if roof is not None:
        _draw_roofs(axes, roof, precisions, titles)
    roofline_axes(axes)
    axes.set_xlabel("FLOP per byte of compulsory traffic")
    return figure, titles


def _draw_roofs(axes: Axes, roof: DeviceRoof, precisions: Sequence[str], titles: dict[str, str]) -> None:
    """The memory bandwidth up to the rightmost ridge, and each precision's peak from its ridge on."""
    peaks = {word: roof.peaks[word] for word in precisions if word in roof.peaks}
    left, right = axes.get_xlim()
    ridges = [peak / roof.memory for peak in peaks.values()]
    right = max(right, *(3 * ridge for ridge in ridges)) if ridges else right
    last = max(ridges, default=right)
    (line,) = axes.plot(
        [left, last],
        [left * roof.memory, last * roof.memory],
        color=light_colour("ink"),
        linewidth=1.2,
        linestyle=(0, (5, 3)),
    )
    line.set_gid("memory")
    titles["memory"] = f"device memory: {humanise(roof.memory, 'B/s')}"
    for word, peak in peaks.items():
        colour = drawing_colour(precisions.index(word))
        (line,) = axes.plot([peak / roof.memory, right], [peak, peak], color=colour, linewidth=1.5)
        line.set_gid(f"peak-{word}")
        titles[f"peak-{word}"] = f"peak of {word}: {humanise(peak, 'FLOP/s')}, from the catalog"
        axes.annotate(
            f"{word} {humanise(peak, 'FLOP/s')}",
            (right, peak),
            (5, 0),
            textcoords="offset points",
            va="center",
            fontsize=10,
        )
    axes.set_xlim(left, right)


def _hover_text(point: OperatorPoint) -> str:
    row = point.row
    operator, shapes = row.operator_and_shapes
    calls = f"{row.calls:,} call{'s'[: row.calls != 1]}"
    lines = [
        operator,
        shapes,
        f"{humanise(row.time_s, 's')} in {calls}, {humanise(row.share, '1')} of the device time",
        f"{humanise(point.rate, 'FLOP/s')} at {point.intensity:.3g} FLOP/B",
    ]
    if row.roofline_share is not None and row.gap_s is not None:
        gap = humanise(row.gap_s, "s")
        lines.append(f"{humanise(row.roofline_share, '1')} of the roofline, bound by {row.bound}; gap {gap}")
    return "\n".join(filter(None, lines))
