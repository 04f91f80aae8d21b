# SPDX-License-Identifier: Apache-2.0
"""The step partition as data and as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from helpers.typed import figures
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from msgspec.structs import replace

from cclbench.ground.errors import UsageError
from cclbench.present.charts.palette import SLICES, light_colour
from cclbench.present.charts.partition import framed_picture, plot_partition
from cclbench.present.partition import PartitionBar, bars_of, by_rank, extreme_bars
from cclbench.present.picture import check_picture
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
    rows = [
        *rows_of(None, 9, 9, 9, 9, 9),
        *rows_of(1, 4, 1, 2, 0, 3),
        *rows_of(0, 1, 1, 1, 1, 1),
        *rows_of(0, 7, 7, 7, 7, 7, step=3),
        *rows_of(0, 8, 8, 8, 8, 8, stat="p50"),
    ]
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
    parts = [container[0] for container in axes.containers[: len(SLICES)]]
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


def test_the_same_rows_give_the_same_file(tmp_path: Path) -> None:
    rows = rows_of(0, 0.004, 0.001, 0.002, 0.0, 0.003)
    for suffix in (".svg", ".png", ".pdf"):
        first, second = tmp_path / f"a{suffix}", tmp_path / f"b{suffix}"
        for path in (first, second):
            plot_partition(rows, path, title="tiny")
        assert first.read_bytes() == second.read_bytes()


def test_what_cannot_be_plotted(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"use \.png, \.svg, \.pdf"):
        check_picture(Path("step.gif"))
    with pytest.raises(UsageError, match="no step partition"):
        plot_partition([], tmp_path / "x.png", title="t")
    assert list(tmp_path.iterdir()) == []
