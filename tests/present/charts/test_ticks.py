# SPDX-License-Identifier: Apache-2.0
"""Ticks: round, evenly spaced, in one unit and with equal digits."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure

from cclbench.present.charts.ticks import QuantityFormatter, index_axis, logarithmic_axis, quantity_axis


def labels_of(low: float, high: float, unit: str) -> list[str]:
    axes = Figure().add_subplot()
    axes.set_xlim(low, high)
    quantity_axis(axes.xaxis, unit)
    places = axes.xaxis.get_major_locator()()
    return axes.xaxis.get_major_formatter().format_ticks(places)


@pytest.mark.parametrize(
    ("low", "high", "unit", "first"),
    [
        (0.0170, 0.0188, "s", ["17.0 ms", "17.5 ms", "18.0 ms", "18.5 ms"]),
        (0.0, 2.1e9, "B", ["0.0 GB", "0.5 GB", "1.0 GB", "1.5 GB", "2.0 GB"]),
        (0.032, 0.036, "1", ["3.2 %", "3.3 %", "3.4 %", "3.5 %", "3.6 %"]),
        (0.0, 12.0, "requests", ["0 requests", "2 requests", "4 requests"]),
    ],
)
def test_ticks_differ_by_the_same_amount(low: float, high: float, unit: str, first: list[str]) -> None:
    shown = labels_of(low, high, unit)
    assert [label for label in shown if label in first] == first
    numbers = [float(label.split()[0]) for label in shown]
    steps = {round(b - a, 9) for a, b in pairwise(numbers)}
    assert len(steps) == 1


@given(st.floats(1e-9, 1e15), st.floats(2, 1e6))
def test_a_logarithmic_axis_has_ticks_within_its_limits(low: float, ratio: float) -> None:
    axes = Figure().add_subplot()
    axes.set_yscale("log")
    axes.set_ylim(low, low * ratio)
    logarithmic_axis(axes.yaxis)
    within = [tick for tick in axes.yaxis.get_major_locator()() if low <= tick <= low * ratio]
    assert 1 <= len(within) <= 12


def test_changes_have_a_sign_and_their_own_size() -> None:
    ticks = QuantityFormatter("s", size=1e-9, signed=True)
    axes = Figure().add_subplot()
    axes.xaxis.set_major_formatter(ticks)
    assert ticks.format_ticks([-5e6, 0.0, 5e6, 1e7]) == ["−5 ms", "0 ms", "+5 ms", "+10 ms"]
    assert ticks.format_ticks([]) == []


def test_no_step_is_left_out_between_two_labelled_ones() -> None:
    axes = Figure().add_subplot()
    index_axis(axes.xaxis, [str(step) for step in range(3, 15)], 16)
    axes.set_xlim(-0.5, 11.5)
    shown = axes.xaxis.get_major_formatter().format_ticks(axes.get_xticks())
    assert shown == [str(step) for step in range(3, 15)]
    index_axis(axes.xaxis, [str(step) for step in range(100)], 6)
    assert [round(x) for x in axes.get_xticks()] == [0, 20, 40, 60, 80]
