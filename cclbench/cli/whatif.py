# SPDX-License-Identifier: Apache-2.0
"""`cclbench whatif`: the run replayed under other hardware."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from cclbench.cli import options


def _factor(text: str) -> float | None:
    """`off`, `fit`, or a factor from 1 on; None for what the run itself shows."""
    if text == "fit":
        return None
    try:
        factor = 1.0 if text == "off" else float(text)
    except ValueError:
        factor = 0.0
    if not 1 <= factor <= 100:
        raise ValueError(f"{text!r} is neither off nor fit nor a factor from 1 to 100")
    return factor


@click.command()
@options.run
@click.option("--set", "sets", metavar="KEY=VALUE", multiple=True, help="What changes; several act together.")
@click.option(
    "--scenario",
    "scenarios",
    metavar="KEY=VALUE,...|FILE.yaml",
    multiple=True,
    help="A further scenario, of its own, on top of what --set changes; repeatable.",
)
@options.file("--save", help="Write the scenario, where there is one alone, as a file for --scenario.")
@click.option(
    "--sweep",
    "sweeps",
    metavar="KEY=xA..xB",
    multiple=True,
    help="A scenario for each doubling from factor A to B, and the knee of the curve; repeatable.",
)
@click.option("--system", metavar="ID", help="The catalog's machine the run used, where no card says so.")
@click.option("--force-system", is_flag=True, help="Take --system though the traces name another device.")
@click.option("--per-node", type=click.IntRange(1), help="Ranks that share a node, where nothing says so.")
@click.option(
    "--contention",
    type=options.Parsed("off|fit|FACTOR", _factor),
    default="off",
    show_default=True,
    help="How much longer kernels take beside communication; fit: the run's compute.contention.",
)
@click.option(
    "--ranks", type=options.RankList, help="Replay only these ranks; their collectives may lack others."
)
@options.opening
@options.page
def whatif(
    run: str,
    form: str,
    verbosity: int,
    save: Path | None,
    opening: dict[str, Any],
    **wishes: Any,
) -> None:
    """Replay a run under other hardware: what would the step take?

    RUN is the id of a run, or any SOURCE that `cclbench run` takes. Waiting is worked out anew;
    transfers scale by a model's ratio of new to old.

    \b
    Keys:
      scale_up.bandwidth scale_out.bandwidth   x2, or a rate: 900GB/s
      scale_up.latency scale_out.latency       x0.5, or a time: 5us
      scale_up scale_out system accelerator    an entry of the catalog
      collective.all_reduce=tree               another algorithm
      kernels.time=x0.9 rank[3].kernels.time=x0.9
                                               kernels take 0.9 of their time
      host.time=0 host[loader].time=0          what threads do, or one cause
      copies.bandwidth=x2                      copies, or copies[h2d]
      kernels.time=median                      no rank slower than the median
      ranks=1024 parallelism.tp=8              more ranks, other degrees
      ranks.remove=3 ranks.replace=3:8         a failed rank, a spare
      overlap=off                              communication and compute in turn
    `cclbench list settings` has all, with what each does.

    \b
    Examples:
      cclbench whatif my-job-3f2a91c0 --set scale_up.bandwidth=x2
      cclbench whatif my-job-3f2a91c0 --set scale_out=infiniband-ndr
      cclbench whatif my-job-3f2a91c0 --sweep scale_out.bandwidth=x0.25..x8
    """
    from cclbench.api import whatif as replay
    from cclbench.ground.destination import check_folder
    from cclbench.ground.schema import RESULTS
    from cclbench.present.terminal.output import emit_answer
    from cclbench.present.terminal.run import run_document
    from cclbench.present.terminal.whatif import whatif_page
    from cclbench.record.results import Results
    from cclbench.replay.scenario_file import write_scenario
    from cclbench.workspace import open_run

    if save is not None:
        check_folder(save)
    opened = open_run(run, **opening)
    found = replay(opened, *wishes.pop("sets"), **wishes)
    if save is not None:
        write_scenario(found.single_outcome.scenario, save)
    window = found.figures[0].window
    emit_answer(
        form,
        document=run_document(opened.record, Results.of(found.figures), window),
        rows=found.rows,
        columns=RESULTS.names,
        table=lambda: whatif_page(found, verbosity),
    )
