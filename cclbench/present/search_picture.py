# SPDX-License-Identifier: Apache-2.0
"""Scenarios by cost and step time, with the Pareto front."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cclbench.ground.errors import UsageError
from cclbench.present.charts.palette import light_colour
from cclbench.replay.search import SearchResult

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw_front(search: SearchResult, *, title: str) -> Figure:
    """Modelled step times with bounds over cost, else over devices; the Pareto front as a line.

    Marks are hollow, as for all modelled figures.  `UsageError` if no scenario has a cost or devices.
    """
    from matplotlib.figure import Figure

    if not search.front:
        raise UsageError("the scenarios have no cost to plot over", hint="add `cost:` to the space")
    costs = search.priced_by == "cost"
    figure = Figure(figsize=(7, 4.2), layout="constrained")
    axes = figure.add_subplot()
    for trials, colour, label in (
        (search.ranked, "muted", "replayed scenarios, with their bounds"),
        (search.front, "accent", f"none is both faster and {'cheaper' if costs else 'of fewer devices'}"),
    ):
        cost = [trial.cost or 0.0 if costs else trial.devices or 0 for trial in trials]
        step = [trial.ranked_ns / 1e6 for trial in trials]
        axes.vlines(
            cost,
            [trial.low_ns / 1e6 for trial in trials],
            [trial.high_ns / 1e6 for trial in trials],
            color=light_colour(colour),
            alpha=0.5,
        )
        axes.scatter(cost, step, label=label, facecolors="none", edgecolors=light_colour(colour))
    axes.step(
        [trial.cost or 0.0 if costs else trial.devices or 0 for trial in search.front],
        [trial.ranked_ns / 1e6 for trial in search.front],
        where="post",
        color=light_colour("accent"),
    )
    if costs:
        axes.set_xlabel("cost" if search.unit == "1" else f"cost, {search.unit}")
    else:
        axes.set_xlabel("devices")
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.set_ylabel("modelled step, ms")
    axes.set_title(title, loc="left", fontsize=10)
    axes.grid(visible=True, color="black", alpha=0.10, linewidth=0.6)
    axes.legend(frameon=False)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    return figure
