# SPDX-License-Identifier: Apache-2.0
"""Measured and modelled times of collectives over sizes, with the model's band; a panel for each sweep."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from cclbench.ground.errors import UsageError
from cclbench.ground.units import size_text
from cclbench.hardware.deviation import Deviation
from cclbench.present.charts.palette import light_colour

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_PANELS: Final = 24

_WIDTH_IN, _HEIGHT_IN = 4.3, 3.5
_LEGEND_IN: Final = 0.95
_MOST_COLUMNS: Final = 3
_MOST_SIZE_TICKS: Final = 6
# Points outside the band differ in colour and in shape.
_LINE: Final[dict[str, Any]] = {"color": light_colour("compute"), "linewidth": 1.6, "zorder": 2}
_BAND: Final[dict[str, Any]] = {"color": light_colour("compute"), "alpha": 0.18, "linewidth": 0, "zorder": 1}
_MARK: Final[dict[str, Any]] = {"linestyle": "none"}
_DOT: Final = _MARK | {"marker": "o", "markersize": 4, "color": light_colour("ink"), "zorder": 3}
_CROSS: Final = _MARK | {
    "marker": "x",
    "markersize": 6,
    "markeredgewidth": 1.8,
    "color": light_colour("transfer"),
    "zorder": 4,
}


@dataclass(frozen=True, slots=True)
class SweepPanel:
    """One sweep: its heading (one or more lines) and its deviations by ascending size."""

    heading: str
    deviations: Sequence[Deviation]


def draw_model(panels: Sequence[SweepPanel], *, title: str) -> Figure:
    """Time over size, both logarithmic: line and band are the model, marks are measured.

    `UsageError` for no panel or more than `MOST_PANELS`.
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure

    if not 0 < len(panels) <= MOST_PANELS:
        room = f"a picture has room for 1 to {MOST_PANELS} sweeps, not for {len(panels)}"
        raise UsageError(room, hint="plot fewer")
    columns = min(len(panels), _MOST_COLUMNS)
    lines = -(-len(panels) // columns)
    # A single panel is as wide as the legend.
    width = 7.0 if columns == 1 else columns * _WIDTH_IN
    with mpl.rc_context({"font.size": 9}):
        figure = Figure(figsize=(width, lines * _HEIGHT_IN + _LEGEND_IN), layout="constrained")
        for place, panel in enumerate(panels):
            axes = figure.add_subplot(lines, columns, place + 1)
            _draw_panel(axes, panel)
            _label_axes(axes, panel)
            if place % columns == 0:
                axes.set_ylabel("time of one collective")
            if place + columns >= len(panels):
                axes.set_xlabel("size S")
        figure.suptitle(title, x=0.01, ha="left", fontweight="bold")
        _add_legend(figure, panels)
    return figure


def _draw_panel(axes: Axes, panel: SweepPanel) -> None:
    sizes = [deviation.size for deviation in panel.deviations]
    low, high = ([getattr(deviation, edge) for deviation in panel.deviations] for edge in ("low_s", "high_s"))
    axes.fill_between(sizes, low, high, **_BAND)
    axes.plot(sizes, [deviation.predicted_s for deviation in panel.deviations], **_LINE)
    for within, style in ((True, _DOT), (False, _CROSS)):
        points = [deviation for deviation in panel.deviations if deviation.is_within_band == within]
        if points:
            axes.plot(
                [deviation.size for deviation in points],
                [deviation.measured_s for deviation in points],
                **style,
            )


def _label_axes(axes: Axes, panel: SweepPanel) -> None:
    from matplotlib.ticker import LogLocator, NullFormatter

    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.xaxis.set_major_locator(LogLocator(base=2, numticks=_MOST_SIZE_TICKS))
    axes.xaxis.set_major_formatter(lambda size, _: size_text(size))
    axes.xaxis.minorticks_off()
    axes.yaxis.set_major_formatter(_time_text)
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_title(panel.heading, fontsize=9, loc="left")
    axes.grid(visible=True, color="black", alpha=0.10, linewidth=0.6)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def _time_text(seconds: float, _: object) -> str:
    for factor, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if seconds >= 0.999 * factor:
            return f"{seconds / factor:g} {unit}"
    return f"{seconds / 1e-9:g} ns"


def _add_legend(figure: Figure, panels: Sequence[SweepPanel]) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles: list[Any] = [Line2D([], [], label="model", **_LINE), Patch(label="its band", **_BAND)]
    marks = {deviation.is_within_band for panel in panels for deviation in panel.deviations}
    if True in marks:
        handles.append(Line2D([], [], label="measured, within", **_DOT))
    if False in marks:
        handles.append(Line2D([], [], label="measured, outside", **_CROSS))
    figure.legend(handles=handles, loc="outside lower left", ncols=len(handles), frameon=False)
