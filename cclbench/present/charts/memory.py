# SPDX-License-Identifier: Apache-2.0
"""Memory over time: allocated bytes by call site, and reserved bytes; one drawing for each device."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from cclbench.analyzers.view.allocator import History
from cclbench.analyzers.view.histories import run_histories
from cclbench.analyzers.view.memory_owners import GROUPING_WORDS, history_heading, known_groupings
from cclbench.comparison.subject import ComparisonSubject
from cclbench.ground.text import printable
from cclbench.ground.units import humanise
from cclbench.present.charts.chart import (
    FULL_PX,
    Chart,
    Titles,
    blank_canvas,
    merge_alike,
    section,
    with_letter,
)
from cclbench.present.charts.palette import SUBJECTS, light_colour
from cclbench.present.charts.svg import drawn_svg
from cclbench.present.memory import MemoryCurves, memory_curves, peak_rows
from cclbench.record.metric_name import metric_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_PEAK_ALLOCATED: Final = metric_name("memory.peak_allocated")

MOST_DEVICES: Final = 4
"""Most devices on a page: those with the highest peaks."""
HEIGHT_PX: Final = 250
_LABEL: Final = 110
"""Most characters of a call site in a legend."""
_CAPTION: Final = (
    "Bytes allocated by the program (filled) and reserved by the framework's allocator (dashed), over the"
    " whole recording; the mark is the peak."
)
_CATEGORY_COLOURS: Final = {
    "unknown": "idle",
    "parameters": "compute",
    "optimizer states": "graphs",
    "gradients": "overlapped",
    "inputs": "ink",
    "communication": "transfer",
    "activations": "copy",
    "autograd detail": "unmatched",
    "workspace": "idle-host",
}
_OWNERS: Final = (
    " Colours are categories, or the modules or call sites with the most bytes at the peak. A snapshot counts"
    " requested bytes: the gap to the dashed line is free, cached, or lost to rounding."
)


@section("memory", place=60)
def memory_charts(runs: Sequence[ComparisonSubject]) -> Iterator[Chart]:
    """The devices with the highest peaks of each run; runs without any are listed with the reason."""
    missing = []
    for run in runs:
        ranks = run.results.ranks(_PEAK_ALLOCATED)
        highest = sorted(ranks, key=lambda rank: -ranks[rank])[:MOST_DEVICES]
        histories = [history for history in run_histories(run.stored, highest) if history.has_changes]
        histories.sort(key=lambda history: -history.peak_allocated)
        most = max(MOST_DEVICES // len(runs), 1)
        if not histories:
            missing.append((run, f"no memory: {run.results.missing_reason(_PEAK_ALLOCATED)}"))
        for place, history in enumerate(histories[:most]):
            title = with_letter(run, f"Memory of {printable(history_heading(history, histories))}")
            groupings = known_groupings(history) if place == 0 else []
            for grouping in groupings or ["call_site"]:
                yield _memory_chart(history, title, f"memory-{run.index}-{place}", grouping)
        if len(histories) > most:
            missing.append((run, f"only those of {len(histories)} devices with the highest peaks are drawn"))
    if missing:
        yield Chart("memory", "Memory over time", _CAPTION, None, merge_alike(missing), wide=True)


def _memory_chart(history: History, title: str, key: str, grouping: str) -> Chart:
    shown = memory_curves(history, grouping)
    if len(shown.layers) > 1:
        key, title = f"{key}-{grouping}", f"{title} by {GROUPING_WORDS[grouping]}"
    unused = history.reserved_unused
    fragmented = "" if unused is None else f", {humanise(unused, 'B')} of the reserved bytes unused then"
    peak_words = f"peak {humanise(shown.peak, 'B')}{fragmented}"
    caption = _CAPTION + (_OWNERS if peak_rows(history) else "") + f" Here: {peak_words}."
    svg = drawn_svg(lambda: _draw_history(shown), name=key, label=f"{title}: {peak_words}")
    remarks = tuple(filter(None, [history.qualifier_words]))
    return Chart(key, title, caption, svg, remarks, wide=True, legend=tuple(legend_of(shown)))


def legend_of(shown: MemoryCurves) -> Iterator[tuple[str, str, str]]:
    """Colour, mark and label of the drawn layers, as `Chart.legend`."""
    for (colour, label), layer in zip(_legend_layers(shown), shown.layers, strict=True):
        if layer.bytes.any():
            yield colour, "■", label
    if shown.reserved is not None:
        yield "ink", "╌", "reserved"


def _legend_layers(shown: MemoryCurves) -> list[tuple[str, str]]:
    """Colour and label of each layer: grey if it is none of the grouping."""
    if shown.grouping == "category":
        return [(_CATEGORY_COLOURS[layer.label], layer.label) for layer in shown.layers]
    last = len(shown.layers) - 1
    if not last:
        return [("compute", shown.layers[0].label)]
    entries = []
    for place, layer in enumerate(shown.layers):
        colour = "idle" if place == 0 else "idle-host" if place == last else SUBJECTS[place - 1]
        label = printable(layer.label)
        entries.append((colour, label if len(label) <= _LABEL else f"{label[:_LABEL]}…"))
    return entries


def _draw_history(shown: MemoryCurves) -> tuple[Figure, Titles]:
    figure, axes = blank_canvas(FULL_PX, HEIGHT_PX, left=84, right=30, top=12, bottom=40)
    return figure, draw_memory(axes, shown)


def draw_memory(axes: Axes, shown: MemoryCurves) -> Titles:
    """Draw the curves; returns the hover texts of the layers."""
    import numpy as np

    from cclbench.present.charts.ticks import quantity_axis

    titles: dict[str, str] = {}
    below = np.zeros(len(shown.at), np.int64)
    for place, ((colour, label), layer) in enumerate(zip(_legend_layers(shown), shown.layers, strict=True)):
        if not layer.bytes.any():
            continue
        area = axes.fill_between(
            shown.at, below, below + layer.bytes, step="post", facecolor=light_colour(colour), linewidth=0
        )
        gid = f"layer-{place}"
        area.set_gid(gid)
        at_peak = layer.bytes[int(np.argmax(shown.allocated))]
        titles[gid] = f"{label}\n{humanise(int(at_peak), 'B')} at the peak"
        below = below + layer.bytes
    if shown.reserved is not None:
        axes.step(
            shown.at,
            shown.reserved,
            where="post",
            color=light_colour("ink"),
            linewidth=1.2,
            linestyle=(0, (4, 2)),
        )
    highest = max(shown.peak, 0 if shown.reserved is None else int(shown.reserved.max()), 1)
    begin, end = float(shown.at[0]), float(shown.at[-1])
    end = end if end > begin else begin + 1.0
    late = shown.peak_at > (begin + end) / 2
    axes.plot(
        [shown.peak_at], [shown.peak], marker="v", markersize=7, color=light_colour("ink"), clip_on=False
    )
    axes.annotate(
        f"peak {humanise(shown.peak, 'B')}",
        (shown.peak_at, 1.17 * highest),
        (-8 if late else 8, 0),
        textcoords="offset points",
        ha="right" if late else "left",
        va="top",
        fontweight="bold",
        color=light_colour("ink"),
    )
    axes.vlines([shown.peak_at], 0, 1.17 * highest, color=light_colour("ink"), linewidth=0.7)
    axes.set_ylim(0, 1.17 * highest)
    axes.set_xlim(begin, end)
    quantity_axis(axes.yaxis, "B")
    if shown.timed:
        quantity_axis(axes.xaxis, "s", 10)
    axes.set_xlabel("since the first event" if shown.timed else "allocator events")
    return titles
