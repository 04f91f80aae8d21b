# SPDX-License-Identifier: Apache-2.0
"""`cclbench explain`: what a metric is."""

from __future__ import annotations

import click

from cclbench.cli import options


@click.command()
@click.argument("patterns", metavar="[METRIC]...", nargs=-1)
@options.form
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
    from cclbench.present.terminal.explanation import COLUMNS, explanation, paragraph
    from cclbench.present.terminal.output import emit

    found = {metric.name: metric for metric, _ in resolve(patterns or ("*",))}
    rows = [explanation(metric) for metric in found.values()]
    emit(
        form,
        document={"schema": "explain.v1", "metrics": rows},
        rows=rows,
        columns=COLUMNS,
        table=lambda: [part for row in rows for part in paragraph(row)],
    )
