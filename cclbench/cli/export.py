# SPDX-License-Identifier: Apache-2.0
"""`cclbench export`: a run's graph for simulators, or its figures for tools that record metrics."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import click

from cclbench.cli import completion, options
from cclbench.present.terminal.streams import say_on_stderr

_GRAPHS: Final = ("chakra", "astra-sim")
_FIGURES: Final = ("prometheus", "otlp", "mlflow", "wandb")


@click.command()
@options.run
@click.option(
    "--to",
    "form",
    type=click.Choice((*_GRAPHS, *_FIGURES)),
    required=True,
    help="Graph: chakra, an execution trace per rank; astra-sim, the same with a description of the machine."
    " Figures: prometheus, a file of the textfile collector; otlp, a file of OpenTelemetry metrics; mlflow, a"
    " run in a file store; wandb, an offline run.",
)
@click.option(
    "-o",
    "--output",
    required=True,
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="File of prometheus and otlp; folder of the others, which must not exist for a graph.",
)
@options.metric
@click.option(
    "--system",
    shell_complete=completion.machines,
    metavar="ID",
    help="Machine of the catalog that the run used, if no card states it; of a graph.",
)
@click.option(
    "--per-node",
    type=click.IntRange(1),
    help="Ranks per node, if neither traces nor card state it; of a graph.",
)
@click.option("--ranks", type=options.RankList, help="Only these ranks; not astra-sim.")
@click.option("--check", is_flag=True, help="Read a graph's files back, replay them, print the step times.")
@options.opening
@options.verbosity
def export(
    run: str,
    form: Any,
    output: Path,
    metrics: tuple[str, ...],
    check: bool,
    opening: dict[str, Any],
    verbosity: int,
    **arguments: Any,
) -> None:
    """Export a run: its graph for simulators, or its figures for tools that record metrics.

    RUN is the id of a run (`cclbench list runs`), or any SOURCE that `cclbench run` takes. The graph is the
    one that `cclbench whatif` replays: the dependencies and the duration of each node. README.txt in the
    folder states what was measured and what is derived. Figures have their unit in the name, and labels; one
    that is missing is left out, with the reason.

    \b
    Examples:
      cclbench export traces/my-job --to chakra -o my-job-et --check
      cclbench export my-job-3f2a91c0 --to astra-sim --system dgx-h100 -o sim
      cclbench export traces/my-job --to prometheus -o textfile/cclbench.prom
      cclbench export traces/my-job --to mlflow -o mlruns --metric 'time.*'
    """
    from cclbench.api import export as export_graph
    from cclbench.api import export_figures
    from cclbench.present.terminal.output import emit_answer, progress_bar

    _check_options(form, metrics, check=check, system=arguments["system"], per_node=arguments["per_node"])
    if form in _FIGURES:
        chosen = {"metrics": metrics, "ranks": arguments["ranks"]}
        with progress_bar(verbosity) as bars:
            place = export_figures(run, output, form, progress=bars, **chosen, **opening)
        if verbosity >= 0:
            say_on_stderr(f"wrote {place}")
        return
    with progress_bar(verbosity) as bars:
        written = export_graph(run, output, form, check=check, progress=bars, **opening, **arguments)
    if check:
        rows = [{"step": name, "time": f"{ns / 1e6:,.6f} ms"} for name, ns in written.steps_ns.items()]
        emit_answer("table", document={}, rows=rows, columns=("step", "time"))
    if verbosity >= 0:
        for note in written.notes:
            say_on_stderr(f"note: {note}")
        say_on_stderr(f"wrote {output}")


def _check_options(form: str, metrics: tuple[str, ...], **of_graphs: object) -> None:
    """Refuse options of the other kind of export."""
    if form in _GRAPHS and metrics != ("*",):
        raise click.UsageError(f"--metric is of figures, and {form} is a graph")
    for name, value in of_graphs.items():
        if form in _FIGURES and value:
            raise click.UsageError(f"--{name.replace('_', '-')} is of graphs, and {form} are figures")
