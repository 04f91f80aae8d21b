# SPDX-License-Identifier: Apache-2.0
"""The timeline as a picture: lanes of each rank for compute, communication and copies, on one time axis."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from cclbench.ground.intervals import Intervals
from cclbench.ground.units import humanise
from cclbench.present.charts.palette import light_colour
from cclbench.present.timeline import CollectiveInstance, StepTimeline, set_segments

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from cclbench.record.run import Run

_MEANINGS: Final = {
    "compute": "compute",
    "graphs": "CUDA graphs, unknown inside",
    "wait": "wait for a later rank",
    "transfer": "transfer",
    "unmatched": "communication, not matched",
    "copy": "copy",
}
"""Meaning of each set, by its name in `RankLanes` and in the palette."""
_DASHED: Final[dict[str, Any]] = {
    "color": light_colour("on-pale"),
    "linewidth": 0.8,
    "linestyle": (0, (3, 2)),
    "zorder": 1.5,
}
_CELLS: Final = 1600
"""Cells of the axis, about one a pixel."""
_WIDTH_IN: Final = 11.0
_LANE_IN: Final = 0.17
_FILLED: Final = 0.84
"""Share of a rank's height that its lanes fill."""
_LETTER: Final = 1 / 200
"""Width of a label's letter as a share of the axis."""


def title_of(run: Run, shown: StepTimeline) -> str:
    """The run and step, and whether process groups are inferred."""
    window = "the whole trace" if shown.step is None else f"step {shown.step}"
    return f"{run.id}: {window}{', process groups inferred' if run.inference_note else ''}"


def draw_timeline(shown: StepTimeline, *, title: str) -> Figure:
    """Lanes of all ranks; lines where the last rank of a collective arrives; a mark for the longest wait."""
    import matplotlib as mpl
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    ranks, drawn = len(shown.lanes), _lane_contents(shown)
    with mpl.rc_context({"font.size": 9}):
        layout = ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.1)
        inches = len(drawn) * _LANE_IN / _FILLED * max(ranks, 2)
        figure = Figure(figsize=(_WIDTH_IN, 1.75 + inches), layout=layout)
        axes = figure.add_subplot()
        for place, lanes in enumerate(shown.lanes):
            for number, lane in enumerate(drawn):
                low, high = _lane_edges(place, number, len(drawn))
                for what in lane:
                    _draw_strip(axes, shown, getattr(lanes, what), (low, high), what)
        _label_axes(axes, shown)
        _draw_labels(axes, shown)
        _mark_latest(axes, shown)
        _add_legend(figure, axes, shown)
        for text, points, weight in ((title, 60, "bold"), (longest_wait_words(shown), 44, "normal")):
            axes.annotate(
                text,
                (0, 1),
                (0, points),
                xycoords="axes fraction",
                textcoords="offset points",
                fontweight=weight,
            )
    return figure


def _lane_contents(shown: StepTimeline) -> list[tuple[str, ...]]:
    """The sets in each lane of a rank, from the top; copies only if any rank has them."""
    copies = [("copy",)] if any(len(lanes.copy) for lanes in shown.lanes) else []
    return [("compute", "graphs"), ("wait", "unmatched", "transfer"), *copies]


def _lane_edges(place: int, number: int, lanes: int) -> tuple[float, float]:
    """Upper and lower edge of a lane of the rank at this place, on an axis that points down."""
    upper = place - _FILLED / 2 + number * _FILLED / lanes
    return upper + 0.01, upper + _FILLED / lanes - 0.01


def longest_wait_words(shown: StepTimeline) -> str:
    """The longest wait in a sentence, or why it is unknown."""
    if not shown.instances:
        if not any(len(lanes.unmatched) for lanes in shown.lanes):
            graphs = any(len(lanes.graphs) for lanes in shown.lanes)
            return f"no communication runs {'outside of CUDA graphs' if graphs else 'here'}"
        return "no collective is matched across ranks here: waiting and transfer cannot be separated"
    worst = shown.instances[0]
    what = _instance_words(worst, " of")
    return (
        f"longest wait: {humanise(worst.longest_wait_ns / 1e9, 's')} of rank {worst.waiting_rank} "
        f"for rank {worst.last_rank}, in {'an' if what[0] in 'aeio' else 'a'} {what}"
    )


def _instance_words(instance: CollectiveInstance, preposition: str = "") -> str:
    size = "" if instance.bytes is None else f"{preposition} {humanise(instance.bytes, 'B')}"
    return f"{instance.kind}{size}" + (f" ({instance.dimension})" if instance.dimension else "")


def _milliseconds_at(shown: StepTimeline, at: Any) -> Any:
    return (at - shown.origin_ns) / 1e6


def _draw_strip(axes: Axes, shown: StepTimeline, s: Intervals, edges: tuple[float, float], what: str) -> None:
    """Draw one set as rectangles, paler where a cell is partly covered."""
    from matplotlib.collections import PolyCollection
    from matplotlib.colors import to_rgb

    starts, ends, share = set_segments(s, shown.begin_ns, shown.end_ns, _CELLS)
    if not len(starts):
        return
    left, right = _milliseconds_at(shown, starts), _milliseconds_at(shown, ends)
    low, high = (np.full(len(left), edge) for edge in edges)
    outline = [left, low, left, high, right, high, right, low]
    corners: Any = np.stack(outline, axis=1).reshape(-1, 4, 2)
    # Blended with white rather than translucent, so that layers beneath do not show through.
    colours = 1 - share[:, None] * (1 - np.array(to_rgb(light_colour(what))))
    axes.add_collection(PolyCollection(corners, facecolors=colours, linewidths=0, zorder=2), autolim=False)
    if what == "wait":
        wide = right - left > 4 * (shown.end_ns - shown.begin_ns) / 1e6 / _CELLS
        hatched = PolyCollection(
            corners[wide],
            facecolors="none",
            edgecolors=light_colour("wait-hatch"),
            linewidths=0,
            hatch="////",
            zorder=2,
        )
        axes.add_collection(hatched, autolim=False)


def _label_axes(axes: Axes, shown: StepTimeline) -> None:
    ranks = len(shown.lanes)
    axes.set_yticks(range(ranks), [f"rank {lanes.rank}" for lanes in shown.lanes])
    axes.set_ylim(ranks - 0.5, -0.5)
    axes.set_xlim(_milliseconds_at(shown, shown.begin_ns), _milliseconds_at(shown, shown.end_ns))
    start = "the trace's first work" if shown.step is None else f"the start of step {shown.step}"
    more = f" ({shown.hidden} ranks with intermediate waits are not shown)"
    axes.set_xlabel(f"ms from {start}" + more * bool(shown.hidden))
    axes.tick_params(axis="y", length=0)
    axes.xaxis.grid(visible=True, color="black", alpha=0.10, linewidth=0.6)
    axes.set_axisbelow(True)
    for place in range(1, ranks):
        axes.axhline(place - 0.5, color="black", alpha=0.18, linewidth=0.5, zorder=1)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)


def labelled_instances(shown: StepTimeline) -> list[tuple[CollectiveInstance, str]]:
    """The longest collectives whose labels fit above the axis without overlap, with their labels."""
    span = shown.end_ns - shown.begin_ns
    extents: list[tuple[float, float]] = []
    chosen = []
    for instance in sorted(shown.instances, key=lambda m: (-m.busy_ns, m.last_arrival_ns)):
        name = _instance_words(instance)
        middle = (instance.last_arrival_ns - shown.begin_ns) / span
        half = len(name) * _LETTER / 2
        left, right = middle - half, middle + half
        if left < 0 or right > 1 or any(left < b and a < right for a, b in extents):
            continue
        extents.append((left, right))
        chosen.append((instance, name))
    return chosen


def _draw_labels(axes: Axes, shown: StepTimeline) -> None:
    """A line from each label down to its ranks, dashed on these, where the last of them arrives."""
    places = {lanes.rank: place for place, lanes in enumerate(shown.lanes)}
    for instance, name in labelled_instances(shown):
        at = _milliseconds_at(shown, instance.last_arrival_ns)
        rank_places = [places[rank] for rank in instance.ranks if rank in places]
        axes.plot(
            [at, at], [-0.5, max(rank_places) + 0.5], color="black", alpha=0.25, linewidth=0.6, zorder=1.5
        )
        low, high = ([place + end for place in rank_places] for end in (-0.45, 0.45))
        axes.vlines([at] * len(rank_places), low, high, **_DASHED)
        axes.annotate(
            name, (at, -0.5), (0, 4), textcoords="offset points", ha="center", va="bottom", fontsize=7
        )


def _mark_latest(axes: Axes, shown: StepTimeline) -> None:
    """A triangle where the rank of the longest wait arrives."""
    if not shown.instances:
        return
    worst = shown.instances[0]
    for place, lanes in enumerate(shown.lanes):
        if lanes.rank == worst.last_rank:
            at = _milliseconds_at(shown, worst.last_arrival_ns)
            middle = sum(_lane_edges(place, 1, len(_lane_contents(shown)))) / 2
            axes.plot(at, middle, **_arrow_style(), clip_on=False, zorder=5)


def _arrow_style() -> dict[str, Any]:
    """A triangle whose tip is the marked point."""
    from matplotlib.path import Path as Outline

    tip = Outline([(-1.0, -0.6), (-1.0, 0.6), (0.0, 0.0), (-1.0, -0.6)], closed=True)
    return {"marker": tip, "markersize": 13, "color": "black", "markeredgewidth": 0.0, "linestyle": "none"}


def _add_legend(figure: Figure, axes: Axes, shown: StepTimeline) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch
    from matplotlib.transforms import ScaledTranslation

    drawn_sets = {what for what in _MEANINGS for lanes in shown.lanes if len(getattr(lanes, what))}
    handles: list[Any] = [
        Patch(
            facecolor=light_colour(what),
            edgecolor=light_colour("wait-hatch") if what == "wait" else "none",
            linewidth=0,
            hatch="////" if what == "wait" else None,
            label=meaning,
        )
        for what, meaning in _MEANINGS.items()
        if what in drawn_sets
    ]
    if shown.instances:
        dashed = Line2D([], [], label="last rank of a labelled collective arrives", **_DASHED)
        last = Line2D([], [], **_arrow_style(), label="the rank waited for longest")
        handles += [dashed, last]
    axes.legend(
        handles=handles,
        loc="lower left",
        bbox_to_anchor=(0, 1.0),
        bbox_transform=axes.transAxes + ScaledTranslation(0, 22 / 72, figure.dpi_scale_trans),
        ncols=len(handles),
        frameon=False,
        borderpad=0,
        borderaxespad=0,
        handlelength=1.4,
        handleheight=0.9,
        columnspacing=1.6,
    )
