# SPDX-License-Identifier: Apache-2.0
"""Ticks of charts, laid out by matplotlib's rules, with one unit and equal digits along an axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.ticker import FixedFormatter, LogLocator, MaxNLocator, ScalarFormatter

from cclbench.ground.units import scale_of
from cclbench.present.charts.palette import light_colour

_MOST: Final = 7
_FEW_DECADES: Final = 300
"""Below this ratio of an axis' limits fewer than two powers of ten may lie between them."""
_ONE_DECADE: Final = 10


class QuantityFormatter(ScalarFormatter):
    """Ticks in one unit for the largest of them: `17.50 ms`, `18.00 ms`, as many digits as they need."""

    def __init__(self, unit: str, *, size: float = 1.0, signed: bool = False) -> None:
        """`size`: how much of the unit an axis' 1 is; `signed`: a plus before what is more than 0."""
        super().__init__(useOffset=False)
        self.set_scientific(False)
        self._unit, self._size, self._signed = unit, size, signed

    def format_ticks(self, values: Any) -> list[str]:
        """The labels of an axis' ticks."""
        if not len(values):
            return []
        factor, symbol = scale_of(self._size * max(map(abs, values)), self._unit)
        labels = super().format_ticks([self._size * value / factor for value in values])
        signs = ["+" if self._signed and value > 0 else "" for value in values]
        return [f"{sign}{label} {symbol}" for sign, label in zip(signs, labels, strict=True)]


def quantity_axis(axis: Axis, unit: str, most: int = _MOST) -> None:
    """At most that many ticks at round values of a linear axis, with their unit."""
    axis.set_major_locator(MaxNLocator(most, steps=[1, 2, 2.5, 5, 10]))
    axis.set_major_formatter(QuantityFormatter(unit))


def logarithmic_axis(axis: Axis) -> None:
    """Ticks at powers of ten; over few decades at 1, 2 and 5, within one so that a ratio of 1.7 has one."""
    low, high = axis.get_view_interval()
    if high < _ONE_DECADE * low:
        axis.set_major_locator(LogLocator(subs=(1.0, 1.5, 2.0, 3.0, 5.0, 7.0)))
    elif high < _FEW_DECADES * low:
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))


def label_above(axes: Axes, words: str) -> None:
    """The label of the y axis above it: beside it, phones' larger tick labels would cover it."""
    axes.set_title(words, loc="left", fontsize="medium", color=light_colour("muted"), pad=6)


def index_axis(axis: Axis, labels: Sequence[str], most: int) -> None:
    """Whole places on an axis of places from 0, evenly spaced, each with its label."""
    places = MaxNLocator(most, integer=True).tick_values(0, max(len(labels) - 1, 1))
    shown = [int(place) for place in places if 0 <= place < len(labels)]
    axis.set_ticks(shown)
    axis.set_major_formatter(FixedFormatter([labels[place] for place in shown]))
