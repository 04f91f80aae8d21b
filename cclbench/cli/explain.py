# SPDX-License-Identifier: Apache-2.0
"""`cclbench explain`: what a metric, a finding or a view is."""

from __future__ import annotations

import click

from cclbench.cli import options


@click.command()
@click.argument("patterns", metavar="[NAME]...", nargs=-1)
@options.form
def explain(patterns: tuple[str, ...], form: str) -> None:
    """Explain a metric, a finding or a view: definition, formula, columns, limits.

    NAME is that of a metric, an alias or a glob, of a finding, of a view of `cclbench sql`, or a word of the
    field such as hfu, bubble or 'tail latency', which may mean several metrics; without one, all metrics are
    explained.

    \b
    Examples:
      cclbench explain time.exposed_comm
      cclbench explain 'comm.*'
      cclbench explain load_imbalance_ratio --json
      cclbench explain host_bound
      cclbench explain busy
      cclbench explain bubble
    """
    from cclbench.present.terminal.explanation import (
        COLUMNS,
        explanations,
        paragraph,
        paragraph_of_finding,
        view_paragraph,
    )
    from cclbench.present.terminal.output import emit

    found = explanations(patterns)
    further = {"findings": found.findings, "views": found.views}
    columns = {
        "findings": ("title", "rule", "gain", "actions"),
        "views": ("columns", "example", "reads"),
    }
    emit(
        form,
        document={
            "schema": "explain.v1",
            "metrics": found.metrics,
            **{name: rows for name, rows in further.items() if rows},
        },
        rows=[*found.metrics, *found.findings, *found.views],
        columns=(*COLUMNS, *(column for name, rows in further.items() if rows for column in columns[name])),
        table=lambda: [
            *(part for row in found.metrics for part in paragraph(row)),
            *(part for row in found.findings for part in paragraph_of_finding(row)),
            *(part for row in found.views for part in view_paragraph(row)),
        ],
    )
