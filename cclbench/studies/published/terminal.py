# SPDX-License-Identifier: Apache-2.0
"""Published results brought into the store, on a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from cclbench.ground.text import printable
from cclbench.present.terminal.output import grid_table
from cclbench.studies.published import Imported


def imported_page(found: Imported, flags: Sequence[Mapping[str, Any]]) -> list[RenderableType]:
    """How many runs and numbers came in, and what is known to be wrong with them."""
    runs = found.runs
    numbers, flagged, missing = (
        sum(getattr(run, name) for run in runs) for name in ("numbers", "flagged", "no_number")
    )
    new, cards = sum(run.new for run in runs), sum(run.card for run in runs)
    lines = [
        f"{len(runs):,} runs of {found.file}: {new:,} new, {len(runs) - new:,} as they were;"
        f" {cards:,} have a workload card",
        f"{numbers:,} published numbers, {flagged:,} of them flagged; {missing:,} more stand for no data",
    ]
    for column, values in found.unknown_columns.items():
        lines.append(f"left out: {values:,} numbers of {column}, which answers no metric here")
    known = [{"values": flag["values"], "what is known": flag["words"]} for flag in flags]
    told = [Text(printable(line)) for line in lines]
    return [*told, Text(), *grid_table(known, ("values", "what is known"))] if known else list(told)
