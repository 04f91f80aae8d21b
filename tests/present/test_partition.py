# SPDX-License-Identifier: Apache-2.0
"""The step's partition, the model's picture, and memory of programs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from helpers.typed import figures
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from msgspec.structs import replace

from cclbench.ground.errors import UsageError
from cclbench.hardware.deviation import Deviation
from cclbench.present.charts.palette import SLICES, light_colour
from cclbench.present.charts.partition import framed_picture, plot_partition
from cclbench.present.model_picture import MOST_PANELS, SweepPanel, draw_model
from cclbench.present.partition import PartitionBar, bars_of, by_rank, extreme_bars
from cclbench.present.picture import save_picture
from cclbench.record.rows import Row


def rows_of(rank: int | None, *seconds: float, **other: Any) -> list[Row]:
    """A row a part."""
    return figures(
        {"metric": part.metric, "value": value, "rank": rank, **other}
        for part, value in zip(SLICES, seconds, strict=True)
    )


def bar(name: str, *seconds: float) -> PartitionBar:
    """A bar of the five parts."""
    return PartitionBar(name, tuple(zip(SLICES, seconds, strict=True)))


def partitions(rows: list[Row]) -> list[PartitionBar]:
    return bars_of(by_rank(rows), finer=lambda _: False)


def drawn(*bars: PartitionBar) -> Axes:
    (axes,) = framed_picture([(0, bars)], title="tiny", note="").axes
    return axes


def test_partitions_are_the_ranks_own_rows() -> None:
    rows = [*rows_of(None, 9, 9, 9, 9, 9), *rows_of(1, 4, 1, 2, 0, 3), *rows_of(0, 1, 1, 1, 1, 1)]
    rows += [*rows_of(0, 7, 7, 7, 7, 7, step=3), *rows_of(0, 8, 8, 8, 8, 8, stat="p50")]
    assert partitions(rows) == [bar("rank 0", 1, 1, 1, 1, 1), bar("rank 1", 4, 1, 2, 0, 3)]
    assert partitions(rows)[1].total_seconds == 10


def test_a_rank_that_lacks_a_part_has_no_partition() -> None:
    rows = rows_of(0, 1, 1, 1, 1, 1)[:4]
    assert partitions(rows) == []
    without = replace(rows_of(0, 1, 1, 1, 1, 1)[4], status="not_applicable", value=None)
    assert partitions([*rows, without]) == []


def test_graphs_are_told_apart_from_the_rest_of_compute() -> None:
    """Also where another rank ran none."""
    graphs = figures([{"metric": "time.graph_only", "value": 3.0, "rank": 1}])
    rows = [*rows_of(0, 5, 0, 0, 0, 1), *rows_of(1, 4, 0, 0, 0, 2), *graphs]
    of_graphs = [bar.slices[:2] for bar in bars_of(by_rank(rows), finer=lambda _: True)]
    assert [[(one.metric, seconds) for one, seconds in slices] for slices in of_graphs] == [
        [("time.compute_only", 5), ("time.graph_only", 0)],
        [("time.compute_only", 1), ("time.graph_only", 3)],
    ]
    without = bars_of(by_rank(rows_of(0, 5, 0, 0, 0, 1)), finer=lambda _: True)
    assert [one.metric for one, _ in without[0].slices][:2] == ["time.compute_only", "time.overlapped"]


def test_extremes() -> None:
    bars = [bar(str(rank), float(length), 0, 0, 0, 0) for rank, length in enumerate((5, 1, 4, 2, 3, 9))]
    assert extreme_bars(bars, 6) == bars
    assert [one.name for one in extreme_bars(bars, 4)] == ["0", "1", "3", "5"]
    assert [one.name for one in extreme_bars(bars, 3)] == ["0", "1", "5"]


def test_the_picture_stacks_the_parts() -> None:
    axes = drawn(bar("rank 0", 0.004, 0.001, 0.002, 0.0, 0.003), bar("rank 5", 0.001, 0, 0, 0, 0.004))
    parts = axes.patches[: len(SLICES)]
    assert [part.get_x() for part in parts] == pytest.approx((0, 0.004, 0.005, 0.007, 0.007))
    assert [part.get_width() for part in parts] == pytest.approx((0.004, 0.001, 0.002, 0, 0.003))
    assert [label.get_text() for label in axes.get_yticklabels()] == ["rank 0", "rank 5"]
    assert axes.get_title(loc="left") == "tiny"
    assert axes.xaxis.get_major_formatter().format_ticks([0.002, 0.0025]) == ["2.0 ms", "2.5 ms"]
    legend = axes.get_legend()
    assert [text.get_text() for text in legend.get_texts()] == [part.label for part in SLICES]
    assert [to_hex(part.get_facecolor()) for part in parts] == [light_colour(part.colour) for part in SLICES]
    assert [bool(part.get_hatch()) for part in parts] == [False] * 4 + [True]
    # shares are written where there is room
    axes = drawn(bar("rank 0", 0.050, 0.010, 0.020, 0.001, 0.019))
    words = [text.get_text() for text in axes.texts if text.get_text()]
    assert words == ["50%", "10%", "20%", "19%", "100 ms"]


def test_many_ranks_are_cut_to_the_extremes(tmp_path: Path) -> None:
    rows = [row for rank in range(100) for row in rows_of(rank, 1.0 + rank, 0, 0, 0, 0)]
    plot_partition(rows, tmp_path / "a.svg", title="t")
    texts = (tmp_path / "a.svg").read_text()
    assert "36 ranks between" in texts
    assert "mean of 100 ranks" in texts
    named = [rank for rank in range(100) if f">rank {rank}<" in texts]
    assert named == [*range(32), *range(68, 100)]


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
