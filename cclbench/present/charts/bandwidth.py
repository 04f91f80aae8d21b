# SPDX-License-Identifier: Apache-2.0
"""Bus bandwidth over message size, with the links' rate as a roofline."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from cclbench.comparison.subject import ComparisonSubject
from cclbench.ground.units import BINARY_UNITS, humanise
from cclbench.present.charts.chart import (
    HALF_PX,
    Chart,
    Titles,
    blank_canvas,
    merge_alike,
    section,
    with_letter,
)
from cclbench.present.charts.palette import MARKERS, colour_name, drawing_colour, light_colour, marker_of
from cclbench.present.charts.svg import drawn_svg
from cclbench.record.metric_name import metric_name
from cclbench.record.rows import Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_BUSBW: Final = metric_name("comm.busbw")
_BANDWIDTH_UTILIZATION: Final = metric_name("comm.bandwidth_utilization")

_BUCKET: Final = re.compile(r"(\d{1,4})([KMGTPE]iB|B)-(\d{1,4})([KMGTPE]iB|B)")
_TICKS: Final = 6


@dataclass(frozen=True, slots=True)
class BandwidthPoint:
    """One kind of collective in one group, for sizes from `low` to `high` bytes, and its row."""

    kind: str
    group: str
    low: float
    high: float
    row: Row

    @property
    def middle_size(self) -> float:
        """Geometric mean of `low` and `high`, bytes."""
        return math.sqrt(self.low * self.high)


@dataclass(frozen=True, slots=True)
class LinkRoof:
    """Rate of the links of these groups, bytes/s, and its provenance."""

    rate: float
    groups: tuple[str, ...]
    provenance: str | None


@section("bandwidth", place=30)
def bandwidth_chart(runs: Sequence[ComparisonSubject]) -> Chart:
    """The collectives of all runs by size; runs without sizes or link rates are listed as missing."""
    heading = "Bandwidth over message size"
    caption = (
        "Bus bandwidth (comm.busbw) of each kind of collective in each process group, by payload size; a bar"
        " spans the sizes. The dashed line is the links' rate in the catalog: only in-network reduction can"
        " exceed it."
    )
    points_by_run, roofs, missing = [], [], []
    for run in runs:
        points = list(points_of(run))
        if not points:
            has_bandwidth = run.results.value(_BUSBW) is not None or run.results.parts(_BUSBW)[0]
            why = (
                "the trace states no collective's size"
                if has_bandwidth
                else run.results.missing_reason(_BUSBW)
            )
            missing.append((run, f"no bandwidth: {why}"))
            continue
        points_by_run.append((run, points))
        run_roofs = roofs_of(run)
        roofs += [(run, roof) for roof in run_roofs]
        if not run_roofs:
            missing.append((run, f"no roofline: {run.results.missing_reason(_BANDWIDTH_UTILIZATION)}"))
    kinds = sorted({point.kind for _, points in points_by_run for point in points})
    label = "; ".join(
        with_letter(run, f"up to {humanise(max(p.row.number for p in points), 'B/s')}")
        for run, points in points_by_run
    )
    label = f"Bus bandwidth: {label}"
    svg = (
        drawn_svg(lambda: _draw_bandwidth(points_by_run, roofs, kinds), name="bandwidth", label=label)
        if points_by_run
        else None
    )
    alone = len(runs) == 1
    legend = [
        (colour_name(place) if alone else "ink", MARKERS[marker_of(place)], kind)
        for place, kind in enumerate(kinds)
    ]
    legend += [(colour_name(run.index), "▬", run.letter) for run, _ in points_by_run if run.letter]
    return Chart("bandwidth", heading, caption, svg, merge_alike(missing), legend=tuple(legend))


def points_of(run: ComparisonSubject) -> Iterator[BandwidthPoint]:
    """The rows of `comm.busbw` for one size, kind and group."""
    for row in run.results.parts(_BUSBW, most=2000)[0]:
        sizes = _BUCKET.fullmatch(row.category or "")
        if sizes and row.stat is None and row.collective and row.number > 0:
            low, high = (int(sizes[i]) * BINARY_UNITS[sizes[i + 1]] for i in (1, 3))
            yield BandwidthPoint(row.collective, row.group or "", low, high, row)


def roofs_of(run: ComparisonSubject) -> list[LinkRoof]:
    """The links' rate of each group, bus bandwidth / bandwidth utilization; equal rates once."""
    shares = {
        (row.collective, row.group): row
        for row in run.results.parts(_BANDWIDTH_UTILIZATION, most=2000)[0]
        if row.group and row.category is None and row.stat is None and row.value
    }
    rates: dict[str, tuple[float, str | None]] = {}
    for row in run.results.parts(_BUSBW, most=2000)[0]:
        share = shares.get((row.collective, row.group or ""))
        if share and row.group and row.category is None and row.stat is None:
            rates[row.group] = (row.number / share.number, share.reason)
    by_rate: dict[str, list[str]] = {}
    for group, (rate, _) in rates.items():
        by_rate.setdefault(f"{rate:.4g}", []).append(group)
    firsts = ((rates[groups[0]], groups) for groups in by_rate.values())
    return [LinkRoof(rate, tuple(groups), reason) for (rate, reason), groups in firsts]


def _draw_bandwidth(
    points_by_run: Sequence[tuple[ComparisonSubject, Sequence[BandwidthPoint]]],
    roofs: Sequence[tuple[ComparisonSubject, LinkRoof]],
    kinds: Sequence[str],
) -> tuple[Figure, Titles]:
    figure, axes = blank_canvas(HALF_PX, 330, left=78, right=14, top=24, bottom=46)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    titles: dict[str, str] = {}
    for run, points in points_by_run:
        for n, point in enumerate(points):
            gid = f"point-{run.index}-{n}"
            _draw_point(axes, run, point, kinds).set_gid(gid)
            titles[gid] = _hover_text(run, point)
    for n, (run, roof) in enumerate(roofs):
        colour = drawing_colour(run.index) if run.letter else light_colour("ink")
        line = axes.axhline(roof.rate, color=colour, linewidth=1.3, linestyle=(0, (5, 3)))
        line.set_gid(f"roof-{n}")
        titles[f"roof-{n}"] = (
            f"{with_letter(run, 'links')}: {humanise(roof.rate, 'B/s')} by the catalog, for group"
            f" {', '.join(roof.groups[:8])}\n{roof.provenance or 'comm.busbw / comm.bandwidth_utilization'}"
        )
        axes.annotate(
            f"{with_letter(run, 'links')} {humanise(roof.rate, 'B/s')}",
            (0.01, roof.rate),
            (0, 4),
            xycoords=axes.get_yaxis_transform(),
            textcoords="offset points",
            fontsize=10,
            color=light_colour("muted"),
        )
    _label_axes(axes, points_by_run)
    return figure, titles


def _draw_point(axes: Axes, run: ComparisonSubject, point: BandwidthPoint, kinds: Sequence[str]) -> Any:
    colour = drawing_colour(run.index if run.letter else kinds.index(point.kind))
    shown = point.row.provenance in ("measured", "derived")
    axes.plot(
        [point.low, point.high],
        [point.row.number] * 2,
        color=colour,
        alpha=0.5,
        linewidth=1.4,
        linestyle="-" if shown else ":",
    )
    (mark,) = axes.plot(
        [point.middle_size],
        [point.row.number],
        marker=marker_of(kinds.index(point.kind)),
        markersize=7,
        color=colour if shown else "none",
        markeredgecolor=colour,
        linestyle="none",
    )
    return mark


def _hover_text(run: ComparisonSubject, point: BandwidthPoint) -> str:
    row = point.row
    rate = humanise(row.number, "B/s")
    text = f"{with_letter(run, point.kind)} in group {point.group}, {row.category}: {rate}"
    return "\n".join(filter(None, [text, f"comm.busbw, {row.provenance}", row.reason]))


def _label_axes(
    axes: Axes, points_by_run: Sequence[tuple[ComparisonSubject, Sequence[BandwidthPoint]]]
) -> None:
    from cclbench.present.charts.ticks import label_above, logarithmic_axis

    low = min(point.low for _, points in points_by_run for point in points)
    high = max(point.high for _, points in points_by_run for point in points)
    first, last = max(0, round(low).bit_length() - 1), round(high).bit_length() - 1
    stride = -(-(last - first) // _TICKS) or 1
    powers = range(first, last + 1, stride)
    units = tuple(BINARY_UNITS)
    axes.set_xticks([2**p for p in powers], [f"{2 ** (p % 10)} {units[p // 10]}" for p in powers])
    axes.minorticks_off()
    axes.yaxis.set_major_formatter(lambda v, _: humanise(v, "B/s"))
    bottom, top = axes.get_ylim()
    axes.set_ylim(bottom / 1.3, top * 1.6)
    logarithmic_axis(axes.yaxis)
    axes.set_xlabel("payload size")
    label_above(axes, "bus bandwidth")
