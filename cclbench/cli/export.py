# SPDX-License-Identifier: Apache-2.0
"""`cclbench export`: a run's graph in the files of simulators."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from cclbench.cli import options
from cclbench.present.terminal.streams import say_on_stderr


@click.command()
@options.run
@click.option(
    "--format",
    "form",
    type=click.Choice(("chakra", "astra-sim")),
    required=True,
    help="chakra: an execution trace for each rank; astra-sim: the same and the machine, for that simulator.",
)
@click.option(
    "-o",
    "--output",
    required=True,
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="The folder to make; it must not be there yet.",
)
@click.option("--system", metavar="ID", help="The catalog's machine the run used, where no card says so.")
@click.option("--per-node", type=click.IntRange(1), help="Ranks that share a node, where nothing says so.")
@click.option("--ranks", type=options.RankList, help="Only these ranks; chakra only.")
@click.option(
    "--check", is_flag=True, help="Read the files back, replay them by their dependencies, print the steps."
)
@options.opening
@options.verbosity
def export(
    run: str,
    output: Path,
    check: bool,
    opening: dict[str, Any],
    verbosity: int,
    **wishes: Any,
) -> None:
    """Write a run's graph for simulators: Chakra execution traces, ASTRA-sim's inputs.

    RUN is the id of a run (`cclbench list runs`), or any SOURCE that `cclbench run` takes. The graph is the
    one that `cclbench whatif` replays: what each node waits for, and how long it takes. README.txt in the
    folder says what was measured and what is derived.

    \b
    Examples:
      cclbench export traces/my-job --format chakra -o my-job-et --check
      cclbench export my-job-3f2a91c0 --format astra-sim --system dgx-h100 -o sim
    """
    from cclbench.api import export as written_by
    from cclbench.present.terminal.output import emit_answer, progress_bar

    with progress_bar(verbosity) as bars:
        made = written_by(run, output, check=check, progress=bars, **opening, **wishes)
    if check:
        rows = [{"step": name, "time": f"{ns / 1e6:,.6f} ms"} for name, ns in made.steps_ns.items()]
        emit_answer("table", document={}, rows=rows, columns=("step", "time"))
    if verbosity >= 0:
        for note in made.notes:
            say_on_stderr(f"note: {note}")
        say_on_stderr(f"wrote {output}")
