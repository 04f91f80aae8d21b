# SPDX-License-Identifier: Apache-2.0
"""`cclbench export`: a run's graph in the file formats of simulators."""

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
    help="chakra: an execution trace per rank; astra-sim: the same, with a description of the machine.",
)
@click.option(
    "-o",
    "--output",
    required=True,
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="Folder to create; it must not exist.",
)
@click.option(
    "--system", metavar="ID", help="Machine of the catalog that the run used, if no card states it."
)
@click.option(
    "--per-node", type=click.IntRange(1), help="Ranks per node, if neither traces nor card state it."
)
@click.option("--ranks", type=options.RankList, help="Only these ranks; chakra only.")
@click.option("--check", is_flag=True, help="Read the files back, replay them, and print the step times.")
@options.opening
@options.verbosity
def export(
    run: str,
    output: Path,
    check: bool,
    opening: dict[str, Any],
    verbosity: int,
    **arguments: Any,
) -> None:
    """Export a run's graph for simulators: Chakra execution traces or ASTRA-sim inputs.

    RUN is the id of a run (`cclbench list runs`), or any SOURCE that `cclbench run` takes. The graph is the
    one that `cclbench whatif` replays: the dependencies and the duration of each node. README.txt in the
    folder states what was measured and what is derived.

    \b
    Examples:
      cclbench export traces/my-job --format chakra -o my-job-et --check
      cclbench export my-job-3f2a91c0 --format astra-sim --system dgx-h100 -o sim
    """
    from cclbench.api import export as export_run
    from cclbench.present.terminal.output import emit_answer, progress_bar

    with progress_bar(verbosity) as bars:
        written = export_run(run, output, check=check, progress=bars, **opening, **arguments)
    if check:
        rows = [{"step": name, "time": f"{ns / 1e6:,.6f} ms"} for name, ns in written.steps_ns.items()]
        emit_answer("table", document={}, rows=rows, columns=("step", "time"))
    if verbosity >= 0:
        for note in written.notes:
            say_on_stderr(f"note: {note}")
        say_on_stderr(f"wrote {output}")
