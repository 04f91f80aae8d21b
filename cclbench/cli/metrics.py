# SPDX-License-Identifier: Apache-2.0
"""`cclbench metrics`: the second half of the main job."""

from __future__ import annotations

from typing import Any

import click

from cclbench.cli.options import (
    format_options,
    inference_option,
    jobs_option,
    selection_options,
    store_option,
    verbosity_options,
)


@click.command()
@click.argument("run", metavar="RUN")
@selection_options
@inference_option
@jobs_option
@store_option
@format_options
@verbosity_options
def metrics(run: str, form: str, verbosity: int, **options: Any) -> None:
    """Compute the metrics of a run that is in the store.

    RUN is the id of a run (`cclbench list runs`), or any SOURCE that `cclbench run` takes.

    \b
    Examples:
      cclbench metrics my-job-3f2a91c0
      cclbench metrics my-job-3f2a91c0 --metric 'comm.*' --ranks 0,4-7
      cclbench metrics my-job-3f2a91c0 --window annotations --format md
    """
    from cclbench.api import metrics as compute
    from cclbench.cli.answer import show
    from cclbench.present.terminal.output import progress

    with progress(verbosity) as bars:
        computed = compute(run, progress=bars, **options)
    show(computed, form, verbosity)
