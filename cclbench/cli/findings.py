# SPDX-License-Identifier: Apache-2.0
"""What a run was found to be, as a person reads it on a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from cclbench.problem import bounded
from cclbench.record.manifest import Manifest
from cclbench.record.rows import Row
from cclbench.report.findings import facts, scope_of, summary


def findings(record: Manifest, rows: Sequence[Row], window: str | None, *, verbose: bool = False) -> Table:
    """A line a fact: label and text, wrapped; without a window, what was ingested."""
    found = summary(record, scope_of(rows), window)
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for label, text in facts(record, found, verbose):
        table.add_row(label, Text(bounded(text)))
    return table
