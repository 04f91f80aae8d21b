# SPDX-License-Identifier: Apache-2.0
"""Measured against modelled, as a picture."""

from __future__ import annotations

from pathlib import Path

import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from cclbench.ground.errors import UsageError
from cclbench.hardware.deviation import Deviation
from cclbench.present.model_picture import MOST_PANELS, SweepPanel, draw_model
from cclbench.present.picture import save_picture

# Measured 1.0 within 0.5 to 2; measured 9 outside 1 to 4.
TWO = (Deviation(1024, 1.0, 1.1, 0.5, 2.0), Deviation(2**20, 9.0, 2.0, 1.0, 4.0))


def legend(figure: Figure) -> list[str]:
    """What the legend explains."""
    (found,) = figure.legends
    return [text.get_text() for text in found.get_texts()]


def marked(axes: Axes, marker: str) -> list[tuple[float, float]]:
    """Points drawn with that mark."""
    lines = [line for line in axes.lines if line.get_marker() == marker]
    return [(float(x), float(y)) for line in lines for x, y in zip(*line.get_data(), strict=True)]


def test_what_lies_outside_the_band_has_a_mark_of_its_own() -> None:
    """A dot within, a cross outside: told apart without colours."""
    figure = draw_model([SweepPanel("a", TWO)], title="t")
    (axes,) = figure.axes
    assert marked(axes, "o") == [(1024, 1.0)]
    assert marked(axes, "x") == [(2**20, 9.0)]
    assert legend(figure) == ["model", "its band", "measured, within", "measured, outside"]
    (line,) = (line for line in axes.lines if line.get_linestyle() == "-")
    assert list(line.get_ydata()) == [1.1, 2.0]  # type: ignore[call-overload]
    (band,) = axes.collections
    corners = {(float(x), float(y)) for x, y in band.get_paths()[0].vertices}
    assert {(1024.0, 0.5), (1024.0, 2.0), (2.0**20, 1.0), (2.0**20, 4.0)} <= corners


def test_both_axes_are_logarithmic_and_labelled() -> None:
    """Outer panels carry the labels: of four in rows of three, the first and the last of its column."""
    figure = draw_model([SweepPanel(str(n), TWO[:1]) for n in range(4)], title="t")
    assert {(axes.get_xscale(), axes.get_yscale()) for axes in figure.axes} == {("log", "log")}
    assert [axes.get_xlabel() for axes in figure.axes] == ["", "size S", "size S", "size S"]
    assert [bool(axes.get_ylabel()) for axes in figure.axes] == [True, False, False, True]
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["0", "1", "2", "3"]
    assert legend(figure) == ["model", "its band", "measured, within"]


@pytest.mark.parametrize("suffix", [".png", ".svg", ".pdf"])
def test_the_same_deviations_give_the_same_file(tmp_path: Path, suffix: str) -> None:
    """No dates, no random ids; a heading is no mathematics."""
    for name in ("a", "b"):
        save_picture(lambda: draw_model([SweepPanel("x_{1}", TWO)], title="t"), tmp_path / f"{name}{suffix}")
    first, second = ((tmp_path / f"{name}{suffix}").read_bytes() for name in ("a", "b"))
    assert first == second
    assert len(first) > 1000


def test_no_picture_of_nothing_or_of_too_much(tmp_path: Path) -> None:
    """And of no format we know."""
    for count in (0, MOST_PANELS + 1):
        with pytest.raises(UsageError, match="room for"):
            draw_model([SweepPanel("a", TWO)] * count, title="t")
    with pytest.raises(UsageError, match="unsupported picture format"):
        save_picture(lambda: draw_model([SweepPanel("a", TWO)], title="t"), tmp_path / "a.bmp")
