# SPDX-License-Identifier: Apache-2.0
"""`cclbench stragglers`: who is late, step by step, and whether it is the same rank again."""

from __future__ import annotations

from typing import Any

import click

from cclbench.cli import options
from cclbench.record.selection import Steps


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
    opening: dict[str, Any],
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
    from cclbench.present.terminal.output import emit_answer, progress_bar, writes_unicode
    from cclbench.present.terminal.stragglers import stragglers_page
    from cclbench.stragglers import COLUMNS
    from cclbench.stragglers import stragglers as found_in
    from cclbench.workspace import workspace

    with progress_bar(verbosity) as bars, workspace(progress=bars, **opening) as used:
        opened = [used.opened(run) for run in runs]
        found = found_in(opened, steps=steps, engine=used.engine, progress=bars)
    emit_answer(
        form,
        document=found.document if form == "json" else {},
        rows=found.table,
        columns=COLUMNS,
        table=lambda: stragglers_page(found, verbosity=verbosity, unicode=writes_unicode()),
    )
