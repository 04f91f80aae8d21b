# SPDX-License-Identifier: Apache-2.0
"""Memory over time as a picture file: a panel for each device, with a legend of its call sites."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cclbench.analyzers.view.allocator import History
from cclbench.ground.errors import UsageError
from cclbench.ground.text import printable
from cclbench.present.charts.memory import draw_memory, legend_of
from cclbench.present.charts.palette import light_colour
from cclbench.present.charts.svg import house_style
from cclbench.present.memory import NOTHING, history_heading, memory_curves
from cclbench.present.picture import check_picture, save_picture

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_PANELS: Final = 8
_WIDTH_IN, _PANEL_IN, _LINE_IN = 11.0, 3.0, 0.19


def plot_memory(found: Sequence[History], path: Path, *, title: str) -> None:
    """Draw the devices with the highest peaks as PNG, SVG or PDF; `UsageError` if there are none."""
    check_picture(path)
    recorded = sorted((one for one in found if one.has_changes), key=lambda one: -one.peak_allocated)
    if not recorded:
        raise UsageError("there is no history of allocations to plot", hint=NOTHING)
    with house_style():
        save_picture(lambda: _memory_picture(recorded[:MOST_PANELS], title), path)


def _memory_picture(found: Sequence[History], title: str) -> Figure:
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    drawn = [memory_curves(history) for history in found]
    legends = [list(legend_of(shown)) for shown in drawn]
    heights = [_PANEL_IN + _LINE_IN * len(legend) for legend in legends]
    figure = Figure(figsize=(_WIDTH_IN, sum(heights) + 0.4), layout="constrained")
    panels = figure.subplots(len(found), 1, squeeze=False, height_ratios=heights)
    for history, shown, legend, (axes,) in zip(found, drawn, legends, panels, strict=True):
        draw_memory(axes, shown)
        axes.set_title(printable(history_heading(history, found)), loc="left")
        handles = [
            Line2D([], [], color=light_colour(colour), linestyle=(0, (4, 2)), label=label)
            if label == "reserved"
            else Patch(facecolor=light_colour(colour), label=label)
            for colour, _, label in legend
        ]
        axes.legend(handles=handles, loc="upper left", bbox_to_anchor=(0, -0.16), ncols=1, fontsize=8)
    figure.suptitle(printable(title), x=0.01, ha="left", fontweight="bold")
    return figure
