# SPDX-License-Identifier: Apache-2.0
"""Readers on a terminal: in a list, or one explained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from cclbench.formats import READERS
from cclbench.present.terminal.output import grid_table, named_fields


def reader_row(name: str) -> dict[str, Any]:
    """A reader as a row."""
    reader = READERS.get(name)
    return {
        "name": reader.name,
        "reads": reader.reads,
        "formats": reader.description,
        "extensions": list(reader.extensions),
        "versions": reader.versions,
        "capture": reader.capture,
        "tested": reader.tested,
        "origin": READERS.origin(name),
    }


def readers_table(rows: Sequence[Mapping[str, Any]]) -> list[RenderableType]:
    """Name, formats, and the kinds of evidence that each reader was tested on; plug-ins that did not load."""
    shown = [{**row, "tested": _evidence_kinds(row["tested"])} if "tested" in row else row for row in rows]
    hint = Text("cclbench explain NAME shows versions, how to capture, and what was tested", "dim")
    return [*grid_table(shown, ("name", "formats", "tested")), hint]


def _evidence_kinds(tested: str) -> str:
    """The kinds in `KIND: what; KIND: what`, each once: `real, documentation`."""
    kinds = [kind for kind, colon, _ in (part.partition(": ") for part in tested.split("; ")) if colon]
    return ", ".join(dict.fromkeys(kinds)) or tested


def reader_paragraph(row: Mapping[str, Any]) -> list[RenderableType]:
    """A reader's name and what it states, a line for each field."""
    fields = (
        ("reader", row["formats"]),
        ("files", " ".join(row["extensions"])),
        ("versions", row["versions"]),
        ("capture", row["capture"]),
        ("tested", row["tested"]),
        ("from", row["origin"]),
    )
    return named_fields(row["name"], fields)
