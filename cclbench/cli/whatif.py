# SPDX-License-Identifier: Apache-2.0
"""`cclbench whatif`: replay a run on other hardware."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from cclbench.cli import completion, options


def _parse_contention(text: str) -> float | None:
    """The factor of `off` (1), or a number from 1 to 100; None for `fit`, the run's own."""
    if text == "fit":
        return None
    try:
        factor = 1.0 if text == "off" else float(text)
    except ValueError:
        factor = 0.0
    if not 1 <= factor <= 100:
        raise ValueError(f"{text!r} is not off, fit or a factor from 1 to 100")
    return factor


@click.command()
@options.run
@click.option(
    "--set",
    "sets",
    metavar="KEY=VALUE",
    multiple=True,
    shell_complete=completion.setting_keys,
    help="A change; several are combined.",
)
@click.option(
    "--scenario",
    "scenarios",
    metavar="KEY=VALUE,...|FILE.yaml",
    multiple=True,
    help="A separate scenario, in addition to the changes of --set; repeatable.",
)
@options.file("--save", help="Write the scenario, if there is only one, as a file for --scenario.")
@click.option(
    "--sweep",
    "sweeps",
    metavar="KEY=xA..xB",
    multiple=True,
    help="One scenario per doubling from factor A to B, and the knee of the curve; repeatable.",
)
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
@click.option(
    "--contention",
    type=options.Parsed("off|fit|FACTOR", _parse_contention),
    default="off",
    show_default=True,
    help="Slowdown of kernels during communication; fit: the run's compute.contention.",
)
@click.option(
    "--ranks",
    type=options.RankList,
    help="Replay only these ranks; others may be missing from their collectives.",
)
@options.opening
@options.brief
@options.page
def whatif(
    run: str,
    form: str,
    verbosity: int,
    save: Path | None,
    opening: dict[str, Any],
    **arguments: Any,
) -> None:
    """Replay a run on other hardware, and predict its step time.

    RUN is the id of a run, or any SOURCE that `cclbench run` takes. Waiting is
    recomputed; transfers scale by the ratio of the modelled times.

    \b
    Keys:
      scale_up.bandwidth scale_out.bandwidth   x2, or a rate: 900GB/s
      scale_up.latency scale_out.latency       x0.5, or a time: 5us
      scale_up scale_out system accelerator    an entry of the catalog
      collective.all_reduce=tree               another algorithm
      kernels.time=x0.9 rank[3].kernels.time=x0.9
                                               kernels take 0.9 of their time
      host.time=0 host[loader].time=0          time of threads, or of one cause
      copies.bandwidth=x2                      copies, or copies[h2d]
      kernels.time=median                      no rank slower than the median
      ranks=1024 parallelism.tp=8              more ranks, other degrees
      ranks.remove=3 ranks.replace=3:8         a failed rank, its spare
      overlap=off                              no overlap with communication
    `cclbench list settings` describes all of them.

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
    replayed = replay(opened, *arguments.pop("sets"), **arguments)
    if save is not None:
        write_scenario(replayed.single_outcome.scenario, save)
    window = replayed.figures[0].window
    emit_answer(
        form,
        document=run_document(opened.record, Results.from_rows(replayed.figures), window),
        rows=replayed.rows,
        columns=RESULTS.names,
        table=lambda: whatif_page(replayed, verbosity),
    )
