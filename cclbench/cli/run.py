# SPDX-License-Identifier: Apache-2.0
"""`cclbench run`: read a source and compute its metrics."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from cclbench.cli import completion, options
from cclbench.cli.labels import labels as labels_option


@click.command()
@click.argument("source", shell_complete=completion.run_ids)
@options.file(
    "--plot", help="Also plot the step partition, one bar per rank, to this .png, .svg or .pdf file."
)
@options.selection
@options.ingest
@labels_option
@options.engine
@options.store
@options.per_rank
@options.brief
@options.page
def run(source: str, plot: Path | None, form: str, verbosity: int, per_rank: bool, **arguments: Any) -> None:
    """Compute where each step's time went, from a card, a trace folder or a trace file.

    SOURCE is a workload card, a folder of traces (one per rank), a single trace, or a URL of one of these,
    such as s3://bucket/my-job. It is first read into the store, unless it is already there, unchanged.

    \b
    Examples:
      cclbench run traces/my-job
      cclbench run workload_cards/llama.yaml --plot step.svg
      cclbench run rank0.json.gz --window trace --metric 'time.*' --json
      cclbench run traces/my-job --steps 3: --ranks 0-7 --format csv
    """
    options.prepare_engine(arguments["engine"], source)
    from cclbench.api import run as compute
    from cclbench.present.picture import check_picture
    from cclbench.present.terminal.output import progress_bar
    from cclbench.present.terminal.run import show_run

    if plot is not None:
        check_picture(plot)
    with progress_bar(verbosity) as bars:
        computed = compute(source, progress=bars, **arguments)
    show_run(computed, form, verbosity, per_rank=per_rank, all_metrics=arguments["metrics"] == ("*",))
    if plot is not None:
        from cclbench.present.charts.partition import plot_partition
        from cclbench.present.run_summary import step_numbers

        steps = computed.figures.scope.steps
        window = "mean of " * (len(steps) > 1) + step_numbers(steps) if steps else "the whole trace"
        plot_partition(list(computed.figures.summary), plot, title=f"{computed.id}: {window}")
