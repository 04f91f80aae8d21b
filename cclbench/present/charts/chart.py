# SPDX-License-Identifier: Apache-2.0
"""A chart for a page: what it shows in words, the drawing, or why there is none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from markupsafe import Markup

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

HALF_PX: Final = 540
FULL_PX: Final = 1104
_PX_AN_INCH: Final = 72
"""An SVG of matplotlib counts points: a point becomes a pixel of the page."""

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


def canvas(width: int, height: int, *, left: int, right: int, top: int, bottom: int) -> tuple[Figure, Axes]:
    """A figure of that many pixels with one pair of axes, margins in pixels."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width / _PX_AN_INCH, height / _PX_AN_INCH))
    axes = figure.add_axes(
        (left / width, bottom / height, (width - left - right) / width, (height - top - bottom) / height)
    )
    return figure, axes
