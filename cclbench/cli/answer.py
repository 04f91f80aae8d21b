# SPDX-License-Identifier: Apache-2.0
"""The answer of `run` and `metrics`, as a document, as rows, or as what a person reads."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from cclbench.present.findings import step_numbers, summary
from cclbench.present.terminal.output import emit, writes_unicode
from cclbench.present.terminal.run import page
from cclbench.record.manifest import Manifest
from cclbench.record.results import scope_of
from cclbench.record.rows import Row, builtins

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
            run.record, run.figures, run.window, verbosity=verbosity, unicode=writes_unicode()
        ),
    )


def plot_run(run: Run, path: Path) -> None:
    """Draw the run's step partition."""
    from cclbench.present.charts.partition import plot_partition

    steps = scope_of(run.figures).steps
    of = "mean of " * (len(steps) > 1) + step_numbers(steps) if steps else "the whole trace"
    plot_partition(run.figures, path, title=f"{run.id}: {of}")


def document(record: Manifest, rows: Sequence[Row], window: str) -> dict[str, Any]:
    """The result.v1 document (`cclbench/schemas/result.json`)."""
    run = msgspec.to_builtins(summary(record, scope_of(rows), window))
    return {"schema": "result.v1", "run": run, "results": builtins(rows)}
