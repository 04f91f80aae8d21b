# SPDX-License-Identifier: Apache-2.0
"""Memory over time as a picture file: panels for each device by category, module and call site."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cclbench.analyzers.view.allocator import History
from cclbench.analyzers.view.memory_owners import GROUPING_WORDS, history_heading, known_groupings
from cclbench.ground.errors import UsageError
from cclbench.ground.text import printable
from cclbench.present.charts.memory import draw_memory, legend_of
from cclbench.present.charts.palette import light_colour
from cclbench.present.charts.svg import house_style
from cclbench.present.memory import NOTHING, memory_curves
from cclbench.present.picture import check_picture, save_picture

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_PANELS: Final = 8
_WIDTH_IN, _PANEL_IN, _LINE_IN = 11.0, 3.0, 0.19


def plot_memory(histories: Sequence[History], path: Path, *, title: str) -> None:
    """Draw the devices with the highest peaks as PNG, SVG or PDF; `UsageError` if there are none."""
    check_picture(path)
    recorded = sorted(
        (history for history in histories if history.has_changes), key=lambda history: -history.peak_allocated
    )
    if not recorded:
        raise UsageError("there is no history of allocations to plot", hint=NOTHING)
    with house_style():
        save_picture(lambda: _memory_picture(recorded, title), path)


def _memory_picture(histories: Sequence[History], title: str) -> Figure:
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    panels = [
        (history, memory_curves(history, grouping))
        for history in histories
        for grouping in known_groupings(history) or ["call_site"]
    ][:MOST_PANELS]
    drawn = [shown for _, shown in panels]
    legends = [list(legend_of(shown)) for shown in drawn]
    heights = [_PANEL_IN + _LINE_IN * len(legend) for legend in legends]
    figure = Figure(figsize=(_WIDTH_IN, sum(heights) + 0.4), layout="constrained")
    rows = figure.subplots(len(panels), 1, squeeze=False, height_ratios=heights)
    for (history, shown), legend, (axes,) in zip(panels, legends, rows, strict=True):
        draw_memory(axes, shown)
        by = f" by {GROUPING_WORDS[shown.grouping]}" if len(shown.layers) > 1 else ""
        axes.set_title(f"{printable(history_heading(history, histories))}{by}", loc="left")
        handles = [
            Line2D([], [], color=light_colour(colour), linestyle=(0, (4, 2)), label=label)
            if label == "reserved"
            else Patch(facecolor=light_colour(colour), label=label)
            for colour, _, label in legend
        ]
        axes.legend(handles=handles, loc="upper left", bbox_to_anchor=(0, -0.16), ncols=1, fontsize=8)
    figure.suptitle(printable(title), x=0.01, ha="left", fontweight="bold")
    return figure
