# SPDX-License-Identifier: Apache-2.0
"""`cclbench stragglers`: which ranks are late, step by step, and whether it is always the same one."""

from __future__ import annotations

from typing import Any

import click

from cclbench.cli import completion, options
from cclbench.present.terminal import DOCUMENTS
from cclbench.record.selection import Steps


@click.command()
@click.argument("runs", metavar="RUN [RUN]...", nargs=-1, required=True, shell_complete=completion.run_ids)
@options.steps
@options.opening
@options.brief
@options.page
def stragglers(
    runs: tuple[str, ...],
    steps: Steps | None,
    form: str,
    verbosity: int,
    opening: dict[str, Any],
) -> None:
    """Show which ranks are late in each step, why, and whether it is always the same one.

    RUN is the id of a run, or any SOURCE that `cclbench run` takes; several are captures of one job. A rank's
    lateness in a step is how much later than the median of its peers it arrives at collectives, because of
    its own work. Sends and receives, where one side waits by design, and collectives across pipeline stages
    are not counted. A rank is named only if its lateness over whole steps is significant (p < 0.01, corrected
    for the number of ranks) and exceeds the clock error and 1 % of a step. Its lateness is classified as
    constant, starting at a step, periodic, drifting, intermittent, or moving from rank to rank.

    \b
    Examples:
      cclbench stragglers my-job-3f2a91c0
      cclbench stragglers monday/ tuesday/ wednesday/
      cclbench stragglers my-job-3f2a91c0 --steps 100: --json
    """
    from cclbench.present.terminal.output import emit_answer, progress_bar, writes_unicode
    from cclbench.present.terminal.stragglers import stragglers_page
    from cclbench.stragglers import COLUMNS
    from cclbench.stragglers import find_stragglers as find_stragglers
    from cclbench.workspace import workspace

    with progress_bar(verbosity) as bars, workspace(progress=bars, **opening) as work:
        opened = [work.open_run(run) for run in runs]
        lateness = find_stragglers(opened, steps=steps, engine=work.engine, progress=bars)
    emit_answer(
        form,
        document=lateness.document if form in DOCUMENTS else {},
        rows=lateness.table,
        columns=COLUMNS,
        table=lambda: stragglers_page(lateness, verbosity=verbosity, unicode=writes_unicode()),
    )
