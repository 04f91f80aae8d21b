# SPDX-License-Identifier: Apache-2.0
"""`cclbench search`: replay a run under the scenarios of a search space, and rank them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from cclbench.cli import completion, options


@click.command()
@options.run
@click.option(
    "--space",
    type=click.Path(path_type=Path),
    required=True,
    metavar="FILE",
    help="YAML: lists of values by setting, and their costs.",
)
@click.option(
    "--objective",
    type=click.Choice(("step", "tokens_per_second_per_device")),
    default="step",
    show_default=True,
    help="Objective to optimise; with a fixed number of devices both give the same order.",
)
@click.option(
    "--constraint",
    "constraints",
    metavar="KEY<=VALUE",
    multiple=True,
    help="Upper limit of a scenario: 'cost<=100', 'devices<=64', 'step<=12ms'; repeatable.",
)
@click.option(
    "--trials",
    type=click.IntRange(1),
    metavar="N",
    help="Maximum number of scenarios to replay.  [default: 500; of more than 5,000 a tenth, up to 2,000]",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Random seed.")
@options.file("--best", help="Write the best scenario as a file for `cclbench whatif --scenario`.")
@options.file("--plot", help="Plot step time against cost, or else devices, to this .png, .svg or .pdf file.")
@click.option(
    "--system",
    metavar="ID",
    shell_complete=completion.machines,
    help="Machine of the catalog that the run used, if no card states it.",
)
@click.option("--force-system", is_flag=True, help="Use --system even if the traces name another device.")
@click.option(
    "--per-node", type=click.IntRange(1), help="Ranks per node, if neither traces nor card state it."
)
@options.opening
@options.page
def search(
    run: str,
    form: str,
    verbosity: int,
    best: Path | None,
    plot: Path | None,
    space: Path,
    opening: dict[str, Any],
    **arguments: Any,
) -> None:
    """Search a space of what-if scenarios for the best ones.

    RUN is the id of a run, or any SOURCE that `cclbench run` takes. All
    scenarios of a small space are replayed; a larger one is searched by descent
    from random starts. The work of a step is the same in all scenarios.

    \b
    Examples:
      cclbench search my-job-3f2a91c0 --space space.yaml
      cclbench search my-job-3f2a91c0 --space space.yaml \\
          --constraint 'cost<=100' --best best.yaml --plot front.png
    """
    from cclbench.api import search as search_scenarios
    from cclbench.ground.destination import check_folder
    from cclbench.ground.schema import RESULTS
    from cclbench.present.picture import check_picture, save_picture
    from cclbench.present.search_picture import draw_front
    from cclbench.present.terminal.output import emit_answer
    from cclbench.present.terminal.run import run_document
    from cclbench.present.terminal.search import search_page
    from cclbench.record.results import Results
    from cclbench.replay.scenario_file import write_scenario
    from cclbench.workspace import open_run

    if best is not None:
        check_folder(best)
    if plot is not None:
        check_picture(plot)
    opened = open_run(run, **opening)
    result = search_scenarios(opened, space, **arguments)
    if best is not None:
        write_scenario(result.best_trial.scenario, best)
    if plot is not None:
        save_picture(lambda: draw_front(result, title=opened.id), plot)
    emit_answer(
        form,
        document=run_document(opened.record, Results.from_rows(result.figures), result.figures[0].window),
        rows=result.rows,
        columns=RESULTS.names,
        table=lambda: search_page(result, verbosity),
    )
