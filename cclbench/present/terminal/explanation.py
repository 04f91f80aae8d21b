# SPDX-License-Identifier: Apache-2.0
"""A metric explained on a terminal."""

from __future__ import annotations

from typing import Any, Final

from rich.console import RenderableType
from rich.padding import Padding
from rich.text import Text

from cclbench.analyzers.metric import METRICS, Metric
from cclbench.present.terminal.output import labelled

COLUMNS: Final = (
    *("name", "definition", "formula", "unit", "better", "inputs", "combined", "not_applicable", "limits"),
    *("aliases", "version", "origin"),
)
_UNITS: Final = {"1": "a fraction, shown in %", "count": "a count"}
_BETTER: Final = {"higher": "higher", "lower": "lower", None: "neither: it describes"}


def explanation(metric: Metric) -> dict[str, Any]:
    """A metric as a row of `COLUMNS`."""
    return {name: getattr(metric, name) for name in COLUMNS[:-1]} | {"origin": METRICS.origin(metric.name)}


def paragraph(row: dict[str, Any]) -> list[RenderableType]:
    """A metric's name, and what `cclbench explain` knows of it, a line a field."""
    fields = (
        ("definition", row["definition"]),
        ("formula", row["formula"]),
        ("unit", _UNITS.get(row["unit"], row["unit"])),
        ("better", _BETTER[row["better"]]),
        ("inputs", ", ".join(row["inputs"])),
        ("over ranks", row["combined"]),
        ("not applicable", row["not_applicable"]),
        ("limits", row["limits"]),
        ("aliases", ", ".join(row["aliases"]) or "none"),
        ("version", f"{row['version']}, from {row['origin']}"),
    )
    lines = labelled(((label, Text(text)) for label, text in fields if text is not None), "dim")
    return [Text(row["name"], "bold"), Padding(lines, (0, 0, 1, 2))]
