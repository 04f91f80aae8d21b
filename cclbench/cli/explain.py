# SPDX-License-Identifier: Apache-2.0
"""`cclbench explain`: what a metric or a finding is."""

from __future__ import annotations

import click

from cclbench.cli import options


@click.command()
@click.argument("patterns", metavar="[NAME]...", nargs=-1)
@options.form
def explain(patterns: tuple[str, ...], form: str) -> None:
    """Explain a metric or a finding: definition, formula, when it does not apply.

    NAME is that of a metric, an alias or a glob, of a finding, or a word of the field such as hfu, bubble or
    'tail latency', which may mean several metrics; without one, all metrics are explained.

    \b
    Examples:
      cclbench explain time.exposed_comm
      cclbench explain 'comm.*'
      cclbench explain load_imbalance_ratio --json
      cclbench explain host_bound
      cclbench explain bubble
    """
    from cclbench.analyzers.metric import resolve
    from cclbench.findings.finding import FINDINGS
    from cclbench.present.terminal.explanation import (
        COLUMNS,
        explanation,
        of_finding,
        paragraph,
        paragraph_of_finding,
    )
    from cclbench.present.terminal.output import emit

    findings = [of_finding(FINDINGS.get(name)) for name in patterns if name in FINDINGS]
    asked = [name for name in patterns if name not in FINDINGS]
    metrics = {metric.name: metric for metric, _ in resolve(asked or (() if findings else ("*",)))}
    rows = [explanation(metric) for metric in metrics.values()]
    emit(
        form,
        document={"schema": "explain.v1", "metrics": rows, **({"findings": findings} if findings else {})},
        rows=[*rows, *findings],
        columns=(*COLUMNS, "title", "rule", "gain", "actions") if findings else COLUMNS,
        table=lambda: [
            *(part for row in rows for part in paragraph(row)),
            *(part for row in findings for part in paragraph_of_finding(row)),
        ],
    )
