# SPDX-License-Identifier: Apache-2.0
"""Frequent kernel sequences on a terminal."""

from __future__ import annotations

from typing import Final

from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from cclbench.ground.text import printable, shorten_middle
from cclbench.ground.units import humanise
from cclbench.kernel_sequences import FrequentSequences
from cclbench.present.terminal.output import titled_bullets

_NAME: Final = 38
"""Most characters of a kernel's name."""


def sequences_page(sequences: FrequentSequences) -> list[RenderableType]:
    """A row for each sequence, with a line for each kernel, and notes."""
    ranks, windows = len(sequences.ranks), sequences.windows
    span = "the whole trace" if sequences.window == "trace" else f"{windows:,} step{'s'[: windows != 1]}"
    head = [
        f"{sequences.run}: {ranks:,} rank{'s'[: ranks != 1]}, {span}, {sequences.kernels:,} kernels that take"
        f" {humanise(sequences.kernel_time_s, 's')}",
        f"{len(sequences.rows):,} of {sequences.distinct:,} sequences of {sequences.length} kernels on a"
        " stream, by time",
    ]
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for heading in ("time", "share", "count", "gaps"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("kernels", overflow="fold")
    for row in sequences.rows:
        names = (shorten_middle(printable(name), _NAME) for name in row.kernels)
        table.add_row(
            humanise(row.time_s, "s"),
            humanise(row.share, "1"),
            f"{row.count:,}",
            humanise(row.gap_s, "s"),
            Text("\n".join(names)),
        )
    parts: list[RenderableType] = [Text(printable(line)) for line in head]
    if sequences.rows:
        parts += [Text(), table]
    return [*parts, *titled_bullets("Notes", list(sequences.notes))]
