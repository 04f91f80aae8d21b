# SPDX-License-Identifier: Apache-2.0
"""`cclbench stragglers`: who is late, step by step, and whether it is the same rank again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from cclbench.cli import options
from cclbench.record.selection import Steps

if TYPE_CHECKING:
    from cclbench.engine import Engine


@click.command()
@click.argument("runs", metavar="RUN [RUN]...", nargs=-1, required=True, shell_complete=options.run_ids)
@options.steps
@options.opening
@options.page
def stragglers(
    runs: tuple[str, ...],
    steps: Steps | None,
    form: str,
    verbosity: int,
    store: Path,
    engine: Engine,
    inference: bool,
) -> None:
    """Who is late in each step, why, and whether it is the same rank again.

    RUN is the id of a run, or any SOURCE that `cclbench run` takes; several are captures of one job. A rank's
    lateness in a step is how much later than the median of its peers it arrives at collectives, by what it
    does itself. Sends and receives, in which one side waits by design, do not count, nor collectives across
    pipeline stages. A rank is named only where chance does not explain how late it is over whole steps
    (p < 0.01, corrected for the number of ranks), and it is later than the clocks are wrong and than 1 % of a
    step; its lateness is always there, there since a step, periodic, drifting, intermittent, or moves from
    rank to rank.

    \b
    Examples:
      cclbench stragglers my-job-3f2a91c0
      cclbench stragglers monday/ tuesday/ wednesday/
      cclbench stragglers my-job-3f2a91c0 --steps 100: --json
    """
    from cclbench.api import open_run
    from cclbench.present.terminal.output import emit, progress, writes_unicode
    from cclbench.present.terminal.stragglers import page
    from cclbench.stragglers import COLUMNS
    from cclbench.stragglers import stragglers as found_in

    opened = [open_run(run, store=store, engine=engine, inference=inference) for run in runs]
    with progress(verbosity) as bars:
        found = found_in(opened, steps=steps, engine=engine, progress=bars)
    emit(
        form,
        document=found.document if form == "json" else {},
        rows=found.table,
        columns=COLUMNS,
        table=lambda: page(found, verbosity=verbosity, unicode=writes_unicode()),
    )
