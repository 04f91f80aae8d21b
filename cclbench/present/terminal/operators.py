# SPDX-License-Identifier: Apache-2.0
"""Operators and their costs on a terminal."""

from __future__ import annotations

from typing import Final

from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from cclbench.ground.text import printable, shorten_middle
from cclbench.ground.units import humanise
from cclbench.operator_table import OperatorRow, OperatorTable
from cclbench.present.operators import costless_lines, linked_shares
from cclbench.present.terminal.output import titled_bullets

SHOWN: Final = 20
"""Rows of a table by default."""
_NAME: Final = 200


def operators_page(found: OperatorTable) -> list[RenderableType]:
    """A row for each key, and operators without a cost."""
    ranks, windows = len(found.ranks), found.windows
    whole = "the whole trace" if found.window == "trace" else f"{windows:,} step{'s'[: windows != 1]}"
    told = [
        f"{found.run}: {ranks:,} rank{'s'[: ranks != 1]}, {whole}, {humanise(found.time_s, 's')} of device"
        " time",
        linked_shares(found),
    ]
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1, 0, 0))
    table.add_column("row", justify="right", no_wrap=True)
    table.add_column(found.by, overflow="fold", min_width=16)
    for heading in ("calls", "time", "share", "FLOP/s", "B/s", "roofline", "gap"):
        table.add_column(heading, justify="right", no_wrap=True)
    for number, row in enumerate(found.rows, start=1):
        table.add_row(
            f"{number}",
            Text(shorten_middle(printable(row.key), _NAME)),
            f"{row.calls:,}",
            humanise(row.time_s, "s"),
            humanise(row.share, "1"),
            "" if not row.flops_per_s else humanise(row.flops_per_s, "FLOP/s").removesuffix("FLOP/s").strip(),
            "" if not row.bytes_per_s else humanise(row.bytes_per_s, "B/s").removesuffix("B/s").strip(),
            _roofline_words(row),
            "" if row.gap_s is None else humanise(row.gap_s, "s"),
        )
    parts: list[RenderableType] = [*(Text(printable(line)) for line in told), Text(), table]
    if len(found.rows) < found.all_rows:
        parts += [Text(f"{found.all_rows - len(found.rows):,} more rows: -v, --top or --json")]
    if any(row.bound != "unknown" for row in found.rows):
        parts += [Text("roofline: roofline time over time; C: bound by compute, M: by memory")]
    if any(row.mark for row in found.rows):
        parts += [
            Text("*: faster than the memory, as a cache may explain; !: above the roofline (see Notes)")
        ]
    lacking = list(costless_lines(found))
    return [
        *parts,
        *titled_bullets("Without FLOPs and bytes", lacking),
        *titled_bullets("Notes", list(found.notes)),
    ]


def _roofline_words(row: OperatorRow) -> str:
    """`86% M`: roofline time over time and what bounds it; `121% *` where all works are faster than that."""
    mark = {"cache": " *", "above": " !", None: ""}[row.mark]
    if row.roofline_share is None:
        return "" if row.marked_share is None else humanise(row.marked_share, "1") + mark
    bound = "" if row.bound == "unknown" else f" {row.bound[0].upper()}"
    return humanise(row.roofline_share, "1") + bound + mark
