# SPDX-License-Identifier: Apache-2.0
"""The outcome of an import on a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from cclbench.ground.text import printable
from cclbench.present.terminal.output import grid_table
from cclbench.studies.published import Imported


def imported_page(imported: Imported, flags: Sequence[Mapping[str, Any]]) -> list[RenderableType]:
    """Number of imported runs and numbers, and their known defects."""
    runs = imported.runs
    numbers, flagged, missing = (
        sum(getattr(run, name) for run in runs) for name in ("numbers", "flagged", "no_number")
    )
    new, cards = sum(run.new for run in runs), sum(run.card for run in runs)
    lines = [
        *imported.remarks,
        f"{len(runs):,} runs from {imported.file}: {new:,} new, {len(runs) - new:,} unchanged;"
        f" {cards:,} have a workload card",
        f"{numbers:,} published numbers, {flagged:,} of them flagged; {missing:,} more mean no data",
    ]
    for column, values in imported.unknown_columns.items():
        lines.append(f"left out: {values:,} numbers of {column}, which has no corresponding metric")
    defects = [{"values": flag["values"], "known defect": flag["words"]} for flag in flags]
    texts = [Text(printable(line)) for line in lines]
    return [*texts, Text(), *grid_table(defects, ("values", "known defect"))] if defects else list(texts)
