# SPDX-License-Identifier: Apache-2.0
"""`cclbench search`: the run replayed under the scenarios of a space, ranked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from cclbench.cli import options


@click.command()
@options.run
@click.option(
    "--space",
    type=click.Path(path_type=Path),
    required=True,
    metavar="FILE",
    help="YAML: lists of values by setting, and what values cost.",
)
@click.option(
    "--objective",
    type=click.Choice(("step", "tokens_per_second_per_device")),
    default="step",
    show_default=True,
    help="What is to be best; tokens of a step are fixed, so with one number of devices the order is the"
    " same.",
)
@click.option(
    "--constraint",
    "constraints",
    metavar="KEY<=VALUE",
    multiple=True,
    help="What a scenario must not exceed: 'cost<=100', 'devices<=64', 'step<=12ms'; repeatable.",
)
@click.option(
    "--trials",
    type=click.IntRange(1),
    metavar="N",
    help="Scenarios to replay at most.  [default: 500, of more than 5,000 a tenth, up to 2,000]",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Of what chance chooses.")
@options.file("--best", help="Write the best scenario as a file for `cclbench whatif --scenario`.")
@options.file("--plot", help="Draw step time against cost, else devices: PNG, SVG or PDF.")
@click.option("--system", metavar="ID", help="The catalog's machine the run used, where no card says so.")
@click.option("--force-system", is_flag=True, help="Take --system though the traces name another device.")
@click.option("--per-node", type=click.IntRange(1), help="Ranks that share a node, where nothing says so.")
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
    **wishes: Any,
) -> None:
    """Search the best of many scenarios, and what each costs.

    RUN is the id of a run, or any SOURCE that `cclbench run` takes. All
    scenarios of a small space are replayed, else those that descent from
    random starts comes to. The work of a step is the same in all.

    \b
    Examples:
      cclbench search my-job-3f2a91c0 --space space.yaml
      cclbench search my-job-3f2a91c0 --space space.yaml \\
          --constraint 'cost<=100' --best best.yaml --plot front.png
    """
    from cclbench.api import search as searched
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
    found = searched(opened, space, **wishes)
    if best is not None:
        write_scenario(found.best_trial.scenario, best)
    if plot is not None:
        save_picture(lambda: draw_front(found, title=opened.id), plot)
    emit_answer(
        form,
        document=run_document(opened.record, Results.of(found.figures), found.figures[0].window),
        rows=found.rows,
        columns=RESULTS.names,
        table=lambda: search_page(found, verbosity),
    )
