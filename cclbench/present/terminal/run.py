# SPDX-License-Identifier: Apache-2.0
"""A run on a terminal: what it was found to be, where its step went, its metrics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from cclbench.analyzers.verdict import verdict
from cclbench.present.findings import facts, scope_of, summary
from cclbench.present.terminal import QUIET, VERBOSE
from cclbench.present.terminal.figures import metrics_lines, missing, qualifiers
from cclbench.present.terminal.output import emit, labelled, titled, writes_unicode
from cclbench.present.terminal.partition import chart
from cclbench.record.manifest import Manifest
from cclbench.record.rows import Row, builtins
from cclbench.record.run import Run
from cclbench.schema import RESULTS
from cclbench.text import bounded, printable


def show(run: Run, form: str, verbosity: int) -> None:
    """Print a run's results on stdout: as a document, as rows, or as what a person reads."""
    told = run.record, run.figures, run.window
    emit(
        form,
        document=document(*told),
        rows=run.rows,
        columns=RESULTS.names,
        table=lambda: page(*told, verbosity=verbosity, unicode=writes_unicode()),
    )


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
    return [
        *parts,
        *titled("Failed", missing(rows, "failed")),
        *titled("Notes", qualifiers(rows, inferred)),
        *titled("Not applicable", missing(rows, "not_applicable")),
    ]


def findings(record: Manifest, rows: Sequence[Row], window: str | None, *, verbose: bool = False) -> Table:
    """A line a fact: label and text, wrapped; without a window, what was ingested."""
    found = summary(record, scope_of(rows), window)
    return labelled((label, Text(bounded(text))) for label, text in facts(record, found, verbose))
