# SPDX-License-Identifier: Apache-2.0
"""Waterfall of the difference of two step times: each part begins where the previous one ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cclbench.comparison.comparison import PARTS, PartChange, Versus
from cclbench.ground.units import humanise
from cclbench.present.charts.chart import HALF_PX, Chart, Titles, blank_canvas
from cclbench.present.charts.palette import light_colour
from cclbench.present.charts.svg import drawn_svg

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_ROW_PX: Final = 30


def waterfall_chart(versus: Versus) -> Chart:
    """How much longer or shorter the other's step is than the base's, by part and in total."""
    heading = f"Where {versus.other} differs from {versus.base}"
    caption = (
        f"Step time of {versus.other} minus that of {versus.base}, by part of the step (time.step_parts);"
        " the parts sum exactly to the difference. Right is longer, left is shorter."
    )
    key = f"waterfall-{versus.other}"
    if not versus.changes or versus.change_ns is None:
        why = f"{versus.base} or {versus.other} has no partition of its step"
        return Chart(key, heading, caption, None, (why,))
    parts = ", ".join(f"{PARTS[change.part]} {signed_time(change.change_ns)}" for change in versus.changes)
    label = (
        f"Waterfall from {versus.base} to {versus.other}: {parts}; in total {signed_time(versus.change_ns)}."
    )
    return Chart(key, heading, caption, drawn_svg(lambda: _draw_waterfall(versus), name=key, label=label))


def signed_time(ns: int) -> str:
    """`+1.20 ms`, `−3.00 µs`, `0`."""
    return f"{'+' if ns > 0 else '−'}{humanise(abs(ns) / 1e9, 's')}" if ns else "0"


def _draw_waterfall(versus: Versus) -> tuple[Figure, Titles]:
    from matplotlib.ticker import MaxNLocator

    from cclbench.present.charts.ticks import QuantityFormatter

    changes = [change for change in versus.changes if change.before_s or change.after_s or change.change_ns]
    height = 44 + _ROW_PX * (len(changes) + 1)
    figure, axes = blank_canvas(HALF_PX, height, left=128, right=38, top=6, bottom=38)
    titles: dict[str, str] = {}
    at, edges = 0, [0]
    for row, change in enumerate(changes):
        _draw_bar(axes, row, at, change.change_ns, f"part-{change.part}")
        titles[f"part-{change.part}"] = _hover_text(versus, change)
        at += change.change_ns
        edges.append(at)
        axes.plot([at, at], [row + 0.36, row + 0.64], color=light_colour("muted"), linewidth=0.8)
    _draw_bar(axes, len(changes), 0, at, "part-total")
    titles["part-total"] = (
        f"time.step of {versus.other} minus that of {versus.base}: {at:+,} ns, the sum of the parts above"
    )
    span = max(edges) - min(edges) or 1
    axes.set_xlim(min(edges) - 0.2 * span, max(edges) + 0.2 * span)
    axes.axvline(0, color=light_colour("muted"), linewidth=0.8)
    for row, ns in enumerate([*(change.change_ns for change in changes), at]):
        begin = edges[row] if row < len(changes) else 0
        right = max(begin, begin + ns)
        axes.annotate(
            signed_time(ns),
            (right, row),
            (5, 0),
            textcoords="offset points",
            va="center",
            fontweight="bold" if row == len(changes) else "normal",
            color=light_colour("ink") if ns else light_colour("muted"),
        )
    names = [PARTS[change.part] for change in changes]
    axes.set_yticks(range(len(changes) + 1), [*names, f"{versus.other} − {versus.base}"])
    axes.set_ylim(len(changes) + 0.6, -0.6)
    axes.axhline(len(changes) - 0.5, color=light_colour("line"), linewidth=1)
    axes.tick_params(axis="y", length=0, labelcolor=light_colour("ink"))
    axes.grid(visible=False, axis="y")
    axes.spines["left"].set_visible(False)
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.xaxis.set_major_formatter(QuantityFormatter("s", size=1e-9, signed=True))
    return figure, titles


def _draw_bar(axes: Axes, row: int, begin: int, ns: int, gid: str) -> None:
    (bar,) = axes.barh(row, ns, left=begin, height=0.66, color=light_colour("worse" if ns > 0 else "better"))
    bar.set_gid(gid)


def _hover_text(versus: Versus, change: PartChange) -> str:
    return (
        f"{PARTS[change.part]}: {versus.base} {humanise(change.before_s, 's')}, {versus.other}"
        f" {humanise(change.after_s, 's')}; {change.change_ns:+,} ns\nderived from time.step_parts"
    )
