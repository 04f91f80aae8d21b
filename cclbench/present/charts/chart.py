# SPDX-License-Identifier: Apache-2.0
"""A chart for a page: what it shows, the drawing, or why there is none; and the registry of sections.

Runs are called by letter, colour and mark, in their order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from markupsafe import Markup

from cclbench.analyzers.declared_names import check_declared_names
from cclbench.comparison.subject import ComparisonSubject
from cclbench.ground.errors import CclbenchError
from cclbench.ground.registry import Registry, told_to_people
from cclbench.ground.units import humanise
from cclbench.present.charts.palette import MARKERS, colour_name, marker_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

HALF_PX: Final = 540
FULL_PX: Final = 1104
_PX_AN_INCH: Final = 72
_FEW_DECADES: Final = 300
"""Below this ratio of an axis' ends fewer than two powers of ten may lie between them."""
"""An SVG of matplotlib counts points: a point becomes a pixel of the page."""

Draw = TypeVar("Draw", bound="Callable[[Sequence[ComparisonSubject]], Chart | Iterable[Chart]]")
Titles = Mapping[str, str | Sequence[str]]
"""Hover text of the mark with that gid; of its single marks in turn where there are several."""


@dataclass(frozen=True, slots=True)
class Chart:
    """One chart: its place in the page, its heading, what is drawn, the SVG, and what is missing and why."""

    key: str
    heading: str
    caption: str
    svg: Markup | None
    missing: tuple[str, ...] = ()
    wide: bool = False
    legend: tuple[tuple[str, str, str], ...] = ()
    """(name of the colour, mark, label)."""


@dataclass(frozen=True, slots=True)
class ChartSection:
    """What draws one chart or several of the page's runs; charts stand in the order of `place`."""

    place: int
    charts: Callable[[Sequence[ComparisonSubject]], Iterable[Chart]]


SECTIONS: Final[Registry[ChartSection]] = Registry(
    "section", home="cclbench.present.charts", group="cclbench.sections", check=check_declared_names
)


def section(name: str, *, place: int) -> Callable[[Draw], Draw]:
    """Register the function, from a page's runs to a `Chart` or several, as a section of every page.

        @section("mine", place=50)
        def mine(runs: Sequence[ComparisonSubject]) -> Chart:
            return Chart("mine", "Mine", "What it shows.", svg, missing=("run A: has no steps",))

    A section says of a run that it has nothing to show for why (`Chart.missing`); one that raises is shown
    as failed, and the page stays whole.
    """

    def register(draw: Draw) -> Draw:
        def drawn_charts(runs: Sequence[ComparisonSubject]) -> list[Chart]:
            try:
                with told_to_people():
                    drawn = draw(runs)
                return [drawn] if isinstance(drawn, Chart) else list(drawn)
            except CclbenchError:
                raise
            except Exception as error:  # noqa: BLE001  (a stranger's section may raise anything)
                why = f"failed, a defect of {draw.__module__}: {type(error).__name__}: {error}"
                return [Chart(name, name, "", None, (why,))]

        SECTIONS.add(name, ChartSection(place, drawn_charts), origin=draw.__module__)
        return draw

    return register


def charts_of(runs: Sequence[ComparisonSubject]) -> list[Chart]:
    """The charts of a page, in the order of their places."""
    sections = sorted(map(SECTIONS.get, SECTIONS), key=lambda one: one.place)
    return [chart for one in sections for chart in one.charts(runs)]


def legend_entries(subjects: Iterable[ComparisonSubject]) -> tuple[tuple[str, str, str], ...]:
    """Colour, mark and letter of each, as `Chart.legend`; nothing of one that stands alone."""
    return tuple(
        (colour_name(s.place_among), MARKERS[marker_of(s.place_among)], s.letter)
        for s in subjects
        if s.letter
    )


def with_letter(subject: ComparisonSubject, text: str) -> str:
    """`A: text`, without a letter where it stands alone."""
    return f"{subject.letter}: {text}" if subject.letter else text


def merge_alike(told: Iterable[tuple[ComparisonSubject, str]]) -> tuple[str, ...]:
    """`A, B: text`: what several runs say alike, once."""
    by_text: dict[str, list[str]] = {}
    for subject, text in told:
        by_text.setdefault(text, []).append(subject.letter)
    return tuple(
        f"{', '.join(letters)}: {text}" if any(letters) else text for text, letters in by_text.items()
    )


def blank_canvas(
    width: int, height: int, *, left: int, right: int, top: int, bottom: int
) -> tuple[Figure, Axes]:
    """A figure of that many pixels with one pair of axes, margins in pixels."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width / _PX_AN_INCH, height / _PX_AN_INCH))
    axes = figure.add_axes(
        (left / width, bottom / height, (width - left - right) / width, (height - top - bottom) / height)
    )
    return figure, axes


def roofline_axes(axes: Axes) -> None:
    """Logarithmic axes of FLOP per byte and FLOP/s, with ticks at 1, 2 and 5 where powers of ten are few."""
    from matplotlib.ticker import LogLocator

    for axis, limits in ((axes.xaxis, axes.get_xlim()), (axes.yaxis, axes.get_ylim())):
        if limits[1] < _FEW_DECADES * limits[0]:
            axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.xaxis.set_major_formatter(lambda v, _: f"{v:g}")
    axes.yaxis.set_major_formatter(lambda v, _: humanise(v, "FLOP/s"))
    axes.minorticks_off()
