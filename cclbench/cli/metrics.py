# SPDX-License-Identifier: Apache-2.0
"""`cclbench metrics`: compute the metrics of a stored run."""

from __future__ import annotations

from typing import Any

import click

from cclbench.cli import options


@click.command()
@options.run
@options.selection
@options.opening
@options.per_rank
@options.brief
@options.page
def metrics(
    run: str, form: str, verbosity: int, per_rank: bool, opening: dict[str, Any], **arguments: Any
) -> None:
    """Compute the metrics of a stored run.

    RUN is the id of a run (`cclbench list runs`), or any SOURCE that `cclbench run` takes.

    \b
    Examples:
      cclbench metrics my-job-3f2a91c0
      cclbench metrics my-job-3f2a91c0 --metric 'comm.*' --ranks 0,4-7
      cclbench metrics my-job-3f2a91c0 --window annotations --format md
    """
    from cclbench.api import metrics as compute
    from cclbench.present.terminal.output import progress_bar
    from cclbench.present.terminal.run import show_run

    with progress_bar(verbosity) as bars:
        computed = compute(run, progress=bars, **opening, **arguments)
    show_run(computed, form, verbosity, per_rank=per_rank, all_metrics=False)
