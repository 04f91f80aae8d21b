# SPDX-License-Identifier: Apache-2.0
"""A chart for a page: heading, drawing, or the reason for its absence; and the registry of sections.

Runs are identified by letter, colour and mark, in their order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from markupsafe import Markup

from cclbench.analyzers.declared_names import check_declared_names
from cclbench.comparison.subject import ComparisonSubject
from cclbench.ground.errors import CclbenchError
from cclbench.ground.registry import Registry, stdout_to_stderr
from cclbench.ground.units import humanise
from cclbench.present.charts.palette import MARKERS, colour_name, marker_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

HALF_PX: Final = 540
FULL_PX: Final = 1104
_PX_AN_INCH: Final = 72
"""matplotlib's SVG is in points: a point becomes a pixel of the page."""
FAILED: Final = "failed"
"""Begin of what a section says in place of its charts if it raises."""

Draw = TypeVar("Draw", bound="Callable[[Sequence[ComparisonSubject]], Chart | Iterable[Chart]]")
Titles = Mapping[str, str | Sequence[str]]
"""Hover text by gid of a mark; a sequence for a group of marks, one text each."""


@dataclass(frozen=True, slots=True)
class Chart:
    """One chart: its key in the page, heading, caption, SVG, and what is missing and why."""

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
    """Draws one or several charts of the page's runs; charts are ordered by `place`."""

    place: int
    charts: Callable[[Sequence[ComparisonSubject]], Iterable[Chart]]


SECTIONS: Final[Registry[ChartSection]] = Registry(
    "section", home="cclbench.present.charts", group="cclbench.sections", check=check_declared_names
)


def section(name: str, *, place: int) -> Callable[[Draw], Draw]:
    """Register a function from a page's runs to one or several `Chart`s as a section of every page.

        @section("mine", place=50)
        def mine(runs: Sequence[ComparisonSubject]) -> Chart:
            return Chart("mine", "Mine", "What it shows.", svg, missing=("run A: has no steps",))

    A section lists runs for which it has nothing to show, with the reason, in `Chart.missing`.  One that
    raises is shown as failed; the rest of the page is unaffected.
    """

    def register(draw: Draw) -> Draw:
        def drawn_charts(runs: Sequence[ComparisonSubject]) -> list[Chart]:
            try:
                with stdout_to_stderr():
                    drawn = draw(runs)
                return [drawn] if isinstance(drawn, Chart) else list(drawn)
            except CclbenchError:
                raise
            except Exception as error:  # noqa: BLE001  (a stranger's section may raise anything)
                why = f"{FAILED}, a defect of {draw.__module__}: {type(error).__name__}: {error}"
                return [Chart(name, name, "", None, (why,))]

        SECTIONS.add(name, ChartSection(place, drawn_charts), origin=draw.__module__)
        return draw

    return register


def charts_of(runs: Sequence[ComparisonSubject]) -> list[Chart]:
    """The charts of a page, ordered by `place`."""
    sections = sorted(map(SECTIONS.get, SECTIONS), key=lambda entry: entry.place)
    return [chart for entry in sections for chart in entry.charts(runs)]


def legend_entries(subjects: Iterable[ComparisonSubject]) -> tuple[tuple[str, str, str], ...]:
    """Colour, mark and letter of each run, as `Chart.legend`; none for a single run."""
    return tuple((colour_name(s.index), MARKERS[marker_of(s.index)], s.letter) for s in subjects if s.letter)


def with_letter(subject: ComparisonSubject, text: str) -> str:
    """`A: text`, without the letter for a single run."""
    return f"{subject.letter}: {text}" if subject.letter else text


def merge_alike(notes: Iterable[tuple[ComparisonSubject, str]]) -> tuple[str, ...]:
    """`A, B: text`: equal texts of several runs, once."""
    by_text: dict[str, list[str]] = {}
    for subject, text in notes:
        by_text.setdefault(text, []).append(subject.letter)
    return tuple(
        f"{', '.join(letters)}: {text}" if any(letters) else text for text, letters in by_text.items()
    )


def blank_canvas(
    width: int, height: int, *, left: int, right: int, top: int, bottom: int
) -> tuple[Figure, Axes]:
    """A figure with one pair of axes; size and margins in pixels."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width / _PX_AN_INCH, height / _PX_AN_INCH))
    axes = figure.add_axes(
        (left / width, bottom / height, (width - left - right) / width, (height - top - bottom) / height)
    )
    return figure, axes


def roofline_axes(axes: Axes) -> None:
    """Logarithmic axes of FLOP per byte and FLOP/s."""
    from cclbench.present.charts.ticks import logarithmic_axis

    for axis in (axes.xaxis, axes.yaxis):
        logarithmic_axis(axis)
    axes.xaxis.set_major_formatter(lambda v, _: f"{v:g}")
    axes.yaxis.set_major_formatter(lambda v, _: humanise(v, "FLOP/s"))
    axes.minorticks_off()
