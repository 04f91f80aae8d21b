# SPDX-License-Identifier: Apache-2.0
"""`cclbench memory`: allocated memory, and who holds it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from cclbench.cli import options
from cclbench.present.terminal.streams import say_on_stderr


@click.command()
@options.run
@options.ranks
@options.file("--plot", help="Also plot memory over time, by who holds it, to this .png, .svg or .pdf file.")
@click.option(
    "--set",
    "sets",
    metavar="KEY=VALUE",
    multiple=True,
    help="Also model the peak with another setting; several are combined.",
)
@options.opening
@options.brief
@options.page
def memory(
    run: str,
    ranks: list[int] | None,
    plot: Path | None,
    sets: tuple[str, ...],
    opening: dict[str, Any],
    form: str,
    verbosity: int,
) -> None:
    """Show the peak memory of each device, and which categories, modules and call sites held it.

    RUN is the id of a run (`cclbench list runs`), or any SOURCE that `cclbench run` takes: PyTorch memory
    snapshots, or traces recorded with profile_memory. Figures cover the whole recording. Memory allocated
    before it began is listed as older than the recording; csv, md and xlsx list the call sites at the peak.
    Compiled programs in XLA profiles are listed with the memory that their compiler assigned: rows of csv, md
    and xlsx whose source is `compiler`.

    \b
    Keys of --set:
      batch=9                 samples of a forward pass on a rank
      optimizer.shards=8      ranks that share the optimizer's states
      checkpoint=Block        recompute a class of modules, or one by its path

    \b
    Examples:
      cclbench memory rank0_memory_snapshot.pickle
      cclbench memory traces/my-job --plot memory.png
      cclbench memory my-job-3f2a91c0 --ranks 0-3 --json
      cclbench memory my-job-3f2a91c0 --set checkpoint=Block --set batch=16
    """
    from cclbench.analyzers.view.memory_scenarios import predict_memory
    from cclbench.present.memory import (
        COLUMNS,
        PROGRAM_COLUMNS,
        allocator_histories,
        memory_document,
        peak_rows,
    )
    from cclbench.present.memory_picture import plot_memory
    from cclbench.present.picture import check_picture
    from cclbench.present.program_memory import program_documents, program_rows
    from cclbench.present.terminal.memory import memory_page
    from cclbench.present.terminal.output import emit_answer
    from cclbench.workspace import open_run

    if plot is not None:
        check_picture(plot)
    opened = open_run(run, **opening)
    histories = allocator_histories(opened, ranks)
    rows = [row for history in histories for row in peak_rows(history)]
    recorded = [history for history in histories if history.recorded]
    predictions = [predict_memory(opened, history, sets) for history in recorded if sets]
    programs = program_documents(opened)
    emit_answer(
        form,
        document=memory_document(opened, histories, rows, predictions, programs),
        rows=[*rows, *program_rows(programs)],
        columns=(*COLUMNS, *PROGRAM_COLUMNS) if programs else COLUMNS,
        table=lambda: memory_page(histories, predictions, programs, verbosity),
    )
    if plot is not None:
        plot_memory(histories, plot, title=f"{opened.id}: memory over time")
        say_on_stderr(f"wrote {plot}")
