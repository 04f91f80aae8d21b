# SPDX-License-Identifier: Apache-2.0
"""`cclbench sequences`: frequent sequences of kernels."""

from __future__ import annotations

from typing import Any

import click

from cclbench.cli import options


@click.command()
@options.run
@click.option(
    "--length",
    type=click.IntRange(2, 100),
    default=3,
    show_default=True,
    metavar="N",
    help="Kernels per sequence.",
)
@click.option(
    "--top",
    type=click.IntRange(min=1),
    default=10,
    show_default=True,
    metavar="K",
    help="Number of sequences to list.",
)
@options.window
@options.steps
@options.ranks
@options.opening
@options.brief
@options.page
def sequences(run: str, form: str, verbosity: int, opening: dict[str, Any], **arguments: Any) -> None:
    """List the kernel sequences that take the most time: candidates for fusion.

    RUN is the id of a run, or any SOURCE that `cclbench run` takes. A sequence is N consecutive kernels of
    one stream within a step, without a copy between them, by base name; sequences of communication kernels
    only are left out. All occurrences are counted, including overlapping ones; time and gaps count each
    kernel and each gap once. The stream is idle in the gaps: they bound what fusing the kernels could save.

    \b
    Examples:
      cclbench sequences my-job-3f2a91c0
      cclbench sequences traces/my-job --length 5 --top 20 --ranks 0
      cclbench sequences my-job-3f2a91c0 --steps 3: --json
    """
    from cclbench.kernel_sequences import COLUMNS, frequent_sequences
    from cclbench.present.terminal.output import emit_answer, progress_bar
    from cclbench.present.terminal.sequences import sequences_page
    from cclbench.workspace import workspace

    with progress_bar(verbosity) as bars, workspace(progress=bars, **opening) as work:
        frequent = frequent_sequences(work.open_run(run), engine=work.engine, progress=bars, **arguments)
    emit_answer(
        form,
        document=frequent.document,
        rows=frequent.table,
        columns=COLUMNS,
        table=lambda: sequences_page(frequent),
    )
