# SPDX-License-Identifier: Apache-2.0
"""The answer of `run` and `metrics`, in every form: document, rows, or what a person reads."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from cclbench.analyzers.verdict import verdict
from cclbench.cli.chart import chart
from cclbench.cli.figures import metrics_lines, missing, qualifiers
from cclbench.cli.findings import findings
from cclbench.cli.options import QUIET, VERBOSE
from cclbench.cli.output import console, emit
from cclbench.problem import printable
from cclbench.record.manifest import Manifest
from cclbench.record.rows import Row, builtins
from cclbench.report.findings import scope_of, step_numbers, summary

if TYPE_CHECKING:
    from cclbench.record.run import Run


def show(run: Run, form: str, verbosity: int) -> None:
    """Print a run's results on stdout."""
    from cclbench.schema import RESULTS

    emit(
        form,
        document=document(run.record, run.figures, run.window),
        rows=run.rows,
        columns=RESULTS.names,
        table=lambda: page(
            run.record, run.figures, run.window, verbosity=verbosity, unicode=_unicode(console())
        ),
    )


def plot_run(run: Run, path: Path) -> None:
    """Draw the run's step partition."""
    from cclbench.report.charts.partition import plot_partition

    steps = scope_of(run.figures).steps
    of = "mean of " * (len(steps) > 1) + step_numbers(steps) if steps else "the whole trace"
    plot_partition(run.figures, path, title=f"{run.id}: {of}")


def document(record: Manifest, rows: Sequence[Row], window: str) -> dict[str, Any]:
    """The result.v1 document (`cclbench/schemas/result.json`)."""
    run = msgspec.to_builtins(summary(record, scope_of(rows), window))
    return {"schema": "result.v1", "run": run, "results": builtins(rows)}


def page(
    record: Manifest,
    rows: Sequence[Row],
    window: str,
    *,
    verbosity: int = 0,
    unicode: bool = True,
) -> list[RenderableType]:
    """What a person reads: findings, bars, verdict, metrics, what does not apply; quiet: metrics only."""
    verbose = verbosity >= VERBOSE
    table = Group(*metrics_lines(rows, verbose=verbose))
    if verbosity <= QUIET:
        return [table]
    parts: list[RenderableType] = [findings(record, rows, window, verbose=verbose)]
    bars = list(chart(rows, unicode=unicode, every_rank=verbose))
    if bars:
        parts += [Text(), Group(*bars)]
    inferred = record.inferred
    if (sentence := verdict(rows, inferred)) is not None:
        parts += [Text(), Text(printable(sentence))]
    parts += [Text(), table] if table.renderables else []
    sections = (
        ("Failed", missing(rows, "failed")),
        ("Notes", qualifiers(rows, inferred)),
        ("Not applicable", missing(rows, "not_applicable")),
    )
    for title, lines in sections:
        if lines:
            parts += [Text(), Text(title, "bold"), _bullets(lines)]
    return parts


def _bullets(lines: Sequence[Text]) -> Table:
    table = Table.grid(padding=(0, 1))
    for line in lines:
        table.add_row("-", line)
    return table


def _unicode(out: Console) -> bool:
    return out.encoding.lower().startswith("utf")
