# SPDX-License-Identifier: Apache-2.0
"""`cclbench explain`: metrics, findings, views, tables, readers, settings and standard workloads."""

from __future__ import annotations

import click

from cclbench.cli import completion, options


@click.command()
@click.argument("patterns", metavar="[NAME]...", nargs=-1, shell_complete=completion.explained_names)
@options.form
def explain(patterns: tuple[str, ...], form: str) -> None:
    """Explain a metric, a finding, a view, a reader, a setting or a standard workload.

    NAME is a metric, an alias or a glob, a finding, a view or a table of `cclbench sql`, a reader of
    `cclbench list readers`, a setting of `cclbench whatif`, a standard workload of `cclbench list workloads`,
    or a common term such as hfu, bubble or 'tail latency', which may mean several metrics. Without a name,
    all metrics are explained.

    \b
    Examples:
      cclbench explain time.exposed_comm
      cclbench explain 'comm.*'
      cclbench explain load_imbalance_ratio --json
      cclbench explain host_bound
      cclbench explain busy
      cclbench explain kineto
      cclbench explain 'rank[3].kernels.time'
      cclbench explain bubble
    """
    from cclbench.present.terminal.explanation import (
        COLUMNS,
        explanation_paragraph,
        explanations,
        paragraph_of_finding,
        setting_paragraph,
        view_paragraph,
        workload_paragraph,
    )
    from cclbench.present.terminal.output import emit_answer
    from cclbench.present.terminal.readers import reader_paragraph

    explained = explanations(patterns)
    columns = {
        "findings": ("title", "rule", "gain", "actions"),
        "views": ("columns", "example", "reads"),
        "readers": ("reads", "formats", "extensions", "versions", "capture", "tested"),
        "settings": ("values",),
        "workloads": ("title", "equal", "open", "vary", "capture", "source"),
    }
    others = {name: getattr(explained, name) for name in columns}
    emit_answer(
        form,
        document={
            "schema": "explain.v1",
            "metrics": explained.metrics,
            **{name: rows for name, rows in others.items() if rows},
        },
        rows=[*explained.metrics, *(row for listed in others.values() for row in listed)],
        columns=(*COLUMNS, *(column for name, rows in others.items() if rows for column in columns[name])),
        table=lambda: [
            *(part for row in explained.metrics for part in explanation_paragraph(row)),
            *(part for row in explained.findings for part in paragraph_of_finding(row)),
            *(part for row in explained.views for part in view_paragraph(row)),
            *(part for row in explained.readers for part in reader_paragraph(row)),
            *(part for row in explained.settings for part in setting_paragraph(row)),
            *(part for row in explained.workloads for part in workload_paragraph(row)),
        ],
    )
