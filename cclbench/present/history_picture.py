# SPDX-License-Identifier: Apache-2.0
"""Histories as a picture: each run's value over time, levels, and changes of level."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from cclbench.comparison.history import FigureHistory
from cclbench.ground.errors import UsageError
from cclbench.ground.units import humanise
from cclbench.present.charts.palette import light_colour

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_COLOURS: Final = {"regression": "worse", "improvement": "better"}


def draw_history(histories: Sequence[FigureHistory]) -> Figure:
    """A panel for each figure; `UsageError` if no run has a value."""
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter

    if not any(history.valued for history in histories):
        raise UsageError("no run has a value to plot")
    figure = Figure(figsize=(8, 0.8 + 2.8 * len(histories)), layout="constrained")
    panels = figure.subplots(len(histories), 1, sharex=True, squeeze=False)[:, 0]
    for axes, history in zip(panels, histories, strict=True):
        valued = history.valued
        dates = [point.date for point in valued]
        axes.plot(dates, [point.value for point in valued], "o", color=light_colour("compute"), markersize=4)
        outliers = history.levels.outliers
        axes.plot(
            [dates[at] for at in outliers],
            [valued[at].value for at in outliers],
            "o",
            markerfacecolor="white",
            color=light_colour("compute"),
            markersize=4,
        )
        bounds = [0, *history.levels.changes, len(valued)]
        for (begin, end), mean in zip(pairwise(bounds), history.levels.means, strict=False):
            line = {begin: mean, end - 1: mean}
            if (drift := history.levels.drift) is not None:
                line = {begin: drift.begin, drift.first: drift.begin, end - 1: drift.end}
            days = [dates[at] for at in line]
            axes.plot(days, [*line.values()], color=light_colour("ink"), linewidth=1.2)
        for change in history.changes:
            colour = light_colour(_COLOURS.get(change.verdict, "muted"))
            axes.axvline(dates[change.first], color=colour, linewidth=1, linestyle="--")
            size = f" {100 * (change.after / change.before - 1):+.1f} %" if history.levels.logarithmic else ""
            axes.annotate(
                f"{change.verdict}{size}",
                (dates[change.first], 1),
                xycoords=("data", "axes fraction"),
                xytext=(3, -3),
                textcoords="offset points",
                va="top",
                fontsize=8,
                color=colour,
            )
        axes.set_title(history.figure, loc="left", fontsize=10)
        axes.yaxis.set_major_formatter(
            FuncFormatter(lambda value, _, unit=history.unit: humanise(value, unit))
        )
        axes.margins(y=0.2)
        axes.grid(visible=True, color="black", alpha=0.10, linewidth=0.6)
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
    locator: Any = AutoDateLocator()  # type: ignore[no-untyped-call]
    panels[-1].xaxis.set_major_locator(locator)
    panels[-1].xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]
    return figure
