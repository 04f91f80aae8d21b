# SPDX-License-Identifier: Apache-2.0
"""`cclbench explain`: what a metric is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from cclbench.cli.options import debug_option, format_options

if TYPE_CHECKING:
    from rich.console import RenderableType

    from cclbench.analyzers.metric import Metric

_COLUMNS = (
    "name",
    "definition",
    "formula",
    "unit",
    "better",
    "inputs",
    "combined",
    "not_applicable",
    "limits",
    "aliases",
    "version",
    "origin",
)
_UNITS = {"1": "a fraction, shown in %", "count": "a count"}
_BETTER = {"higher": "higher", "lower": "lower", None: "neither: it describes"}


@click.command()
@click.argument("patterns", metavar="[METRIC]...", nargs=-1)
@format_options
@debug_option
def explain(patterns: tuple[str, ...], form: str) -> None:
    """Explain a metric: definition, formula, unit, inputs, when it does not apply.

    METRIC is a name, an alias or a glob; without one, all metrics are explained.

    \b
    Examples:
      cclbench explain time.exposed_comm
      cclbench explain 'comm.*'
      cclbench explain load_imbalance_ratio --json
    """
    from cclbench.analyzers.metric import resolve
    from cclbench.cli.output import emit

    found = {metric.name: metric for metric, _ in resolve(patterns or ("*",))}
    rows = [explanation(metric) for metric in found.values()]
    emit(
        form,
        document={"schema": "explain.v1", "metrics": rows},
        rows=rows,
        columns=_COLUMNS,
        table=lambda: [part for row in rows for part in _paragraph(row)],
    )


def explanation(metric: Metric) -> dict[str, Any]:
    """A metric as a flat row."""
    from cclbench.analyzers.metric import METRICS

    row = {name: getattr(metric, name) for name in _COLUMNS if name != "origin"}
    return {
        **row,
        "inputs": list(metric.inputs),
        "aliases": list(metric.aliases),
        "origin": METRICS.origin(metric.name),
    }


def _paragraph(row: dict[str, Any]) -> list[RenderableType]:
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    lines = Table.grid(padding=(0, 2))
    lines.add_column(style="dim", no_wrap=True)
    lines.add_column(overflow="fold")
    for label, text in (
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
    ):
        if text is not None:
            lines.add_row(label, Text(text))
    return [Text(row["name"], "bold"), Padding(lines, (0, 0, 1, 2))]
