# SPDX-License-Identifier: Apache-2.0
"""A metric or a finding explained on a terminal."""

from __future__ import annotations

from typing import Any, Final

from rich.console import RenderableType
from rich.padding import Padding
from rich.text import Text

from cclbench.analyzers.metric import METRICS, Metric
from cclbench.findings.finding import FINDINGS, Detector
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


def of_finding(finding: Detector) -> dict[str, Any]:
    """A finding as a row."""
    told = {name: getattr(finding, name) for name in ("name", "title", "rule", "gain")}
    actions = {framework: list(listed) for framework, listed in finding.actions.items()}
    return told | {"actions": actions, "origin": FINDINGS.origin(finding.name)}


def paragraph_of_finding(row: dict[str, Any]) -> list[RenderableType]:
    """A finding's name, and what is known of it, a line a field."""
    fields = [("says", row["title"]), ("found by", row["rule"]), ("gain", row["gain"])]
    fields += [
        ("try" if framework == "any" else f"try with {framework}", action)
        for framework, listed in row["actions"].items()
        for action in listed
    ]
    lines = labelled(((label, Text(text)) for label, text in fields), "dim")
    return [Text(row["name"], "bold"), Padding(lines, (0, 0, 1, 2))]


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
