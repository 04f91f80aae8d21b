# SPDX-License-Identifier: Apache-2.0
"""`cclbench run`: the main job."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from cclbench.cli.options import (
    format_options,
    ingest_options,
    jobs_option,
    selection_options,
    store_option,
    verbosity_options,
)


@click.command()
@click.argument("source")
@click.option(
    "--plot",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    help="Also draw the step partition, a bar a rank, to this .png, .svg or .pdf file.",
)
@selection_options
@ingest_options
@jobs_option
@store_option
@format_options
@verbosity_options
def run(source: str, plot: Path | None, form: str, verbosity: int, **options: Any) -> None:
    """Compute where each step's time went, from a card, a trace folder or a trace file.

    SOURCE is a workload card, a folder of traces (one a rank) or a single trace. It is read into the
    store first, unless an unchanged copy is there already.

    \b
    Examples:
      cclbench run traces/my-job
      cclbench run workload_cards/llama.yaml --plot step.svg
      cclbench run rank0.json.gz --window trace --metric 'time.*' --json
      cclbench run traces/my-job --steps 3: --ranks 0-7 --format csv
    """
    from cclbench.api import run as compute
    from cclbench.cli.answer import plot_run, show
    from cclbench.present.picture import check_picture
    from cclbench.present.terminal.output import progress

    if plot is not None:
        check_picture(plot)
    with progress(verbosity) as bars:
        computed = compute(source, progress=bars, **options)
    show(computed, form, verbosity)
    if plot is not None:
        plot_run(computed, plot)
