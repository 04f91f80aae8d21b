# SPDX-License-Identifier: Apache-2.0
"""`cclbench timeline`: a picture of one step, ranks x time."""

from __future__ import annotations

from pathlib import Path

import click

from cclbench.cli.options import RankList, debug_option, inference_option, jobs_option, store_option


@click.command()
@click.argument("run", metavar="RUN")
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    required=True,
    help="The picture: a .png, .svg or .pdf file.",
)
@click.option(
    "--step",
    type=click.IntRange(min=0),
    metavar="N",
    show_default="the first whole one",
    help="The step to draw; without steps it is the whole trace.",
)
@click.option("--ranks", type=RankList(), help="Only these ranks, such as 0,2,4-7.")
@click.option("--from-ms", type=float, metavar="A", help="Draw from A ms after the step's start.")
@click.option("--to-ms", type=float, metavar="B", help="Draw to B ms after the step's start.")
@inference_option
@jobs_option
@store_option
@debug_option
def timeline(
    run: str,
    output: Path,
    step: int | None,
    ranks: list[int] | None,
    from_ms: float | None,
    to_ms: float | None,
    inference: bool,
    jobs: int,
    store: Path,
) -> None:
    """Draw one step on all ranks: who computed, who waited, who transferred.

    RUN is the id of a run (`cclbench list runs`), or any SOURCE that `cclbench run` takes. Each rank has
    two lanes, compute above communication, on the clock that all ranks share. Of more than 32 ranks those
    whose collectives wait least and most are drawn.

    \b
    Examples:
      cclbench timeline traces/my-job -o timeline.png
      cclbench timeline my-job-3f2a91c0 -o step4.svg --step 4 --ranks 0-7
      cclbench timeline traces/my-job -o zoom.png --from-ms 12 --to-ms 14.5
    """
    from cclbench.api import open_run
    from cclbench.present.picture import check_picture
    from cclbench.present.timeline import timeline as timeline_of
    from cclbench.present.timeline_picture import plot_timeline

    check_picture(output)
    opened = open_run(run, store=store, jobs=jobs, inference=inference)
    shown = timeline_of(opened, step=step, ranks=ranks, from_ms=from_ms, to_ms=to_ms)
    of = "the whole trace" if shown.step is None else f"step {shown.step}"
    inferred = ", process groups inferred" if opened.inferred else ""
    plot_timeline(shown, output, title=f"{opened.id}: {of}{inferred}")
    click.echo(f"wrote {output}", err=True)
