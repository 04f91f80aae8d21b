# SPDX-License-Identifier: Apache-2.0
"""`cclbench report`: a run as an HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from cclbench.cli import options
from cclbench.present.terminal.streams import say_on_stderr


@click.command()
@options.run
@options.file("-o", "--output", required=True, help="The .html file to write; an existing one is replaced.")
@options.opening
@options.verbosity
def report(run: str, output: Path, opening: dict[str, Any], verbosity: int) -> None:
    """Write a run's report as one self-contained HTML file.

    RUN is the id of a run (`cclbench list runs`), or any SOURCE that `cclbench run` takes. The page shows the
    parts of the step rank by rank, overlap, bandwidth, roofline, stragglers, kernels, operators, all metrics
    with their provenance, and what is missing and why. It loads no other files.

    \b
    Examples:
      cclbench report traces/my-job -o my-job.html
      cclbench report my-job-3f2a91c0 -o my-job.html
    """
    from cclbench.comparison.build import run_subject
    from cclbench.present.html import check_page, write_page
    from cclbench.present.page import run_page
    from cclbench.present.terminal.output import progress_bar
    from cclbench.workspace import workspace

    check_page(output)
    with progress_bar(verbosity) as bars, workspace(progress=bars, **opening) as work:
        subject = run_subject("A", work.open_run(run), engine=work.engine, progress=bars)
        text = run_page(subject, engine=work.engine, progress=bars)
    write_page(text, output)
    if verbosity >= 0:
        say_on_stderr(f"wrote {output}")
