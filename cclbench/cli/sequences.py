# SPDX-License-Identifier: Apache-2.0
"""`cclbench sequences`: which kernels follow one another."""

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
    help="Kernels of a sequence.",
)
@click.option(
    "--top",
    type=click.IntRange(min=1),
    default=10,
    show_default=True,
    metavar="K",
    help="How many sequences to list.",
)
@options.window
@options.steps
@options.ranks
@options.opening
@options.page
def sequences(run: str, form: str, verbosity: int, opening: dict[str, Any], **wishes: Any) -> None:
    """List the runs of successive kernels that take most time: what to fuse.

    RUN is the id of a run, or any SOURCE that `cclbench run` takes. A sequence is N kernels that follow one
    another on one stream within a step, without a copy between them, by base names; those of communication
    alone are left out. Each place where its names follow one another is counted, overlapping ones too; its
    time and gaps hold every kernel and every gap once. In the gaps the stream runs nothing: they are what
    fusing the kernels could save of their stream's time at most.

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

    with progress_bar(verbosity) as bars, workspace(progress=bars, **opening) as used:
        found = frequent_sequences(used.opened(run), engine=used.engine, progress=bars, **wishes)
    emit_answer(
        form, document=found.document, rows=found.table, columns=COLUMNS, table=lambda: sequences_page(found)
    )
