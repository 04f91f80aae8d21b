# SPDX-License-Identifier: Apache-2.0
"""The step partition as data and as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from matplotlib.colors import to_hex
from msgspec.structs import replace
from typed import figures

from cclbench.errors import UsageError
from cclbench.record.rows import Row
from cclbench.report.partition import (
    PARTS,
    RankPartition,
    draw_partition,
    extremes,
    partitions,
    plot_partition,
)
from cclbench.report.picture import check_picture


def rows_of(rank: int | None, *seconds: float, **other: Any) -> list[Row]:
    """A row a part."""
    return figures(
        {"metric": part.metric, "value": value, "rank": rank, **other}
        for part, value in zip(PARTS, seconds, strict=True)
    )


def test_partitions_are_the_ranks_own_rows() -> None:
    rows = [
        *rows_of(None, 9, 9, 9, 9, 9),
        *rows_of(1, 4, 1, 2, 0, 3),
        *rows_of(0, 1, 1, 1, 1, 1),
        *rows_of(0, 7, 7, 7, 7, 7, step=3),
        *rows_of(0, 8, 8, 8, 8, 8, stat="p50"),
    ]
    assert partitions(rows) == [RankPartition(0, (1, 1, 1, 1, 1)), RankPartition(1, (4, 1, 2, 0, 3))]
    assert partitions(rows)[1].step == 10


def test_a_rank_that_lacks_a_part_has_no_partition() -> None:
    rows = rows_of(0, 1, 1, 1, 1, 1)[:4]
    assert partitions(rows) == []
    without = replace(rows_of(0, 1, 1, 1, 1, 1)[4], status="not_applicable", value=None)
    assert partitions([*rows, without]) == []


def test_extremes() -> None:
    ranks = [
        RankPartition(rank, (float(length), 0, 0, 0, 0)) for rank, length in enumerate((5, 1, 4, 2, 3, 9))
    ]
    assert extremes(ranks, 6) == ranks
    assert [r.rank for r in extremes(ranks, 4)] == [0, 1, 3, 5]
    assert [r.rank for r in extremes(ranks, 3)] == [0, 1, 5]


def test_the_picture_stacks_the_parts_in_ms() -> None:
    ranks = [RankPartition(0, (0.004, 0.001, 0.002, 0.0, 0.003)), RankPartition(5, (0.001, 0, 0, 0, 0.004))]
    (axes,) = draw_partition(ranks, title="tiny").axes
    bars = [[(bar.get_x(), bar.get_width()) for bar in part] for part in axes.containers]
    starts, widths = zip(*(part[0] for part in bars), strict=True)
    assert starts == pytest.approx((0, 4, 5, 7, 7))
    assert widths == pytest.approx((4, 1, 2, 0, 3))
    assert [label.get_text() for label in axes.get_yticklabels()] == ["rank 0", "rank 5"]
    assert axes.get_title(loc="left") == "tiny"
    assert axes.get_xlabel() == "ms"
    legend = axes.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == [part.label for part in PARTS]
    assert [to_hex(part[0].get_facecolor()).upper() for part in axes.containers] == [p.colour for p in PARTS]
    assert [bool(part[0].get_hatch()) for part in axes.containers] == [False] * 4 + [True]


def test_shares_are_written_where_there_is_room() -> None:
    (axes,) = draw_partition([RankPartition(0, (0.050, 0.010, 0.020, 0.001, 0.019))], title="t").axes
    words = [text.get_text() for text in axes.texts if text.get_text()]
    assert words == ["50%", "10%", "20%", "19%", "100 ms"]


def test_many_ranks_are_cut_to_the_extremes() -> None:
    ranks = [RankPartition(rank, (1.0 + rank, 0, 0, 0, 0)) for rank in range(100)]
    (axes,) = draw_partition(ranks, title="t").axes
    assert len(axes.get_yticklabels()) == 32
    assert "68 ranks between" in axes.get_xlabel()


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
