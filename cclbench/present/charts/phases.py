# SPDX-License-Identifier: Apache-2.0
"""The phases of a step as one stacked bar."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from cclbench.comparison.subject import ComparisonSubject
from cclbench.ground.schema import PHASES
from cclbench.ground.units import humanise
from cclbench.present.charts.chart import FULL_PX, Chart, Titles, blank_canvas
from cclbench.present.charts.palette import light_colour
from cclbench.present.charts.svg import drawn_svg
from cclbench.record.metric_name import metric_name

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_METRIC: Final = metric_name("time.phase")
_COLOURS: Final = {
    "forward": ("compute", "on-dark"),
    "loss": ("copy", "on-copy"),
    "backward": ("transfer", "on-dark"),
    "optimizer": ("overlapped", "on-dark"),
    "data": ("unmatched", "on-dark"),
    "prefill": ("compute", "on-dark"),
    "decode": ("transfer", "on-dark"),
    "mixed": ("wait", "on-pale"),
    "other": ("idle", "on-pale"),
}
"""Names of the colour of each phase and of the ink on it."""
_READABLE: Final = 0.05


def phase_charts(run: ComparisonSubject) -> Iterator[Chart]:
    """The bar of a single run; none if it has fewer than two phases."""
    phases = phases_of(run)
    if len(phases) < 2:
        return
    label = ", ".join(f"{phase} {humanise(seconds, 's')}" for phase, seconds in phases)
    yield Chart(
        "phases",
        "Phases",
        "Busy time of a step by the phase that launched it (time.phase), mean over ranks and steps.",
        drawn_svg(lambda: _draw_phases(phases), name="phases", label=f"Phases: {label}"),
        wide=True,
        legend=tuple((_COLOURS[phase][0], "■", phase) for phase, _ in phases),
    )


def phases_of(run: ComparisonSubject) -> list[tuple[str, float]]:
    """Seconds of each phase, in the order of `PHASES`."""
    rows, _ = run.results.parts(_METRIC)
    seconds = {row.category: row.number for row in rows if row.category and row.stat is None}
    return [(phase, seconds[phase]) for phase in PHASES if seconds.get(phase)]


def _draw_phases(phases: Sequence[tuple[str, float]]) -> tuple[Figure, Titles]:
    from cclbench.present.charts.ticks import quantity_axis

    figure, axes = blank_canvas(FULL_PX, 64, left=16, right=36, top=2, bottom=26)
    total, left = sum(seconds for _, seconds in phases), 0.0
    titles: dict[str, str] = {}
    for phase, seconds in phases:
        name, on = _COLOURS[phase]
        (bar,) = axes.barh(0, seconds, left=left, height=1, color=light_colour(name))
        bar.set_gid(f"phase-{phase}")
        share = humanise(seconds / total, "1")
        titles[f"phase-{phase}"] = f"{phase}: {humanise(seconds, 's')}, {share} of the busy time\n{_METRIC}"
        if seconds > _READABLE * total:
            middle = left + seconds / 2
            axes.text(middle, 0, share, ha="center", va="center", fontsize=10, color=light_colour(on))
        left += seconds
    axes.set_xlim(0, total)
    axes.set_ylim(-0.5, 0.5)
    axes.set_yticks([])
    quantity_axis(axes.xaxis, "s", 10)
    axes.grid(visible=False)
    axes.spines["left"].set_visible(False)
    return figure, titles
