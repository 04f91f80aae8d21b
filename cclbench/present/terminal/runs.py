# SPDX-License-Identifier: Apache-2.0
"""Runs of a store and cards of a folder on a terminal, one line each if names fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from rich.console import RenderableType
from rich.table import Column, Table
from rich.text import Text

from cclbench.ground.text import cut_text, printable, shorten_middle
from cclbench.ground.units import humanise
from cclbench.present.terminal.output import grid_table, titled_bullets

if TYPE_CHECKING:
    from cclbench.record.inventory import Verification

_MAKERS: Final = ("NVIDIA ", "AMD Instinct ", "AMD ", "Google ")
"""Prefixes of device names that are left out."""
_DEVICE: Final = 24
_WIDTH: Final = 80
_MOST_FILES: Final = 10


def runs_table(rows: Sequence[Mapping[str, Any]]) -> list[RenderableType]:
    """Run, date of ingestion, ranks and devices, steps and step time; then unreadable runs."""
    table = Table.grid(
        Column(overflow="fold"),
        Column(no_wrap=True),
        Column(overflow="fold"),
        Column(justify="right", no_wrap=True),
        Column(justify="right", no_wrap=True),
        padding=(0, 2, 0, 0),
    )
    table.add_row(*(Text(head, "bold") for head in ("run", "date", "ranks", "steps", "step")))
    readable = [row for row in rows if "problem" not in row]
    for row in readable:
        step = "" if row["step_s"] is None else humanise(row["step_s"], "s")
        table.add_row(
            Text(cut_text(row["run"])),
            row["date"] or "",
            Text(_rank_words(row)),
            str(row["steps"] or ""),
            step,
        )
    problems = [
        Text(f"{cut_text(row['run'])}: {cut_text(row['problem'])}") for row in rows if "problem" in row
    ]
    if not rows:
        return [Text("no runs yet: create one with `cclbench run SOURCE`")]
    return [*([table] if readable else []), *problems]


def changes_page(
    verifications: Sequence[Verification], rows: Sequence[Mapping[str, Any]], *, verbose: bool
) -> list[RenderableType]:
    """A row for each run, then its first changed files; all of them if `verbose`."""
    parts = grid_table(rows, list(rows[0]))
    for run in verifications:
        lines = [f"{change.path}: {change.what}" for change in run.changes]
        more = 0 if verbose else len(lines) - _MOST_FILES
        shown = [*lines[:_MOST_FILES], f"and {more:,} more: -v and --json show them"] if more > 0 else lines
        parts += titled_bullets(run.run, shown)
    return parts


def _rank_words(row: Mapping[str, Any]) -> str:
    """`8 × H100 80GB HBM3`; the publisher for published figures."""
    if row["published"]:
        return printable(f"published: {row['published']}")
    if not row["ranks"]:
        return "no trace"
    device = printable(row["devices"] or "")
    for maker in _MAKERS:
        device = device.removeprefix(maker)
    return f"{row['ranks']} × {shorten_middle(device, _DEVICE)}"


def cards_table(rows: Sequence[Mapping[str, Any]]) -> list[RenderableType]:
    """Id, validity, and as much of the description as fits."""
    if not rows:
        return [Text("no cards in workload_cards/: create one with `cclbench card new TRACES -o CARD`")]
    room = _WIDTH - 2 - sum(max(len(str(row[key])) + 2 for row in rows) for key in ("id", "valid"))
    table = Table.grid(Column(overflow="fold"), Column(no_wrap=True), Column(), padding=(0, 2, 0, 0))
    table.add_row(*(Text(head, "bold") for head in ("card", "valid", "description")))
    for row in rows:
        about = cut_text(row["description"] or "")
        description = about if len(about) <= room else f"{about[: room - 1]}…"
        table.add_row(
            Text(cut_text(row["id"] or row["path"])), Text(cut_text(row["valid"])), Text(description)
        )
    return [table]
