# SPDX-License-Identifier: Apache-2.0
"""The metrics of a run on the terminal."""

from __future__ import annotations

from cclbench.present.terminal.figures import metrics_lines
from cclbench.record.rows import Row


def moved(value: float, category: str | None = None) -> Row:
    """A row of what copies move."""
    return Row(
        metric="memory.copy_bandwidth",
        value=value,
        unit="B/s",
        status="ok",
        provenance="measured",
        window="steps",
        version=1,
        category=category,
    )


def test_directions_of_copies_stand_before_the_whole_that_hides_them() -> None:
    rows = [moved(58.7e9), moved(27.7e9, "h2d"), moved(1e12, "d2d")]
    assert [str(line).split() for line in metrics_lines(rows)][1:] == [
        ["memory.copy_bandwidth"],
        ["d2d", "1.00", "TB/s"],
        ["h2d", "27.7", "GB/s"],
        ["all", "58.7", "GB/s"],
    ]
    alone = [str(line).split() for line in metrics_lines([moved(58.7e9)])]
    assert alone[1:] == [["memory.copy_bandwidth", "58.7", "GB/s"]]
