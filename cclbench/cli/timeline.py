# SPDX-License-Identifier: Apache-2.0
"""`cclbench timeline`: a picture of one step, ranks over time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from cclbench.cli import options
from cclbench.present.terminal.streams import say_on_stderr


@click.command()
@options.run
@options.file("-o", "--output", required=True, help="The .png, .svg or .pdf file to write.")
@click.option(
    "--step",
    type=click.IntRange(min=0),
    metavar="N",
    show_default="the first complete one",
    help="The step to draw; a run without steps is drawn whole.",
)
@options.ranks
@click.option("--from-ms", type=float, metavar="A", help="Draw from A ms after the step's start.")
@click.option("--to-ms", type=float, metavar="B", help="Draw to B ms after the step's start.")
@options.opening
@options.debug
def timeline(run: str, output: Path, opening: dict[str, Any], **arguments: Any) -> None:
    """Draw one step on all ranks: computing, waiting and transferring.

    RUN is the id of a run (`cclbench list runs`), or any SOURCE that `cclbench run` takes. Each rank has two
    lanes, compute above communication, on a common clock. Of more than 32 ranks, those that wait least and
    most in collectives are drawn.

    \b
    Examples:
      cclbench timeline traces/my-job -o timeline.png
      cclbench timeline my-job-3f2a91c0 -o step4.svg --step 4 --ranks 0-7
      cclbench timeline traces/my-job -o zoom.png --from-ms 12 --to-ms 14.5
    """
    from cclbench.present.picture import check_picture, save_picture
    from cclbench.present.timeline import step_timeline
    from cclbench.present.timeline_picture import draw_timeline, title_of
    from cclbench.workspace import open_run

    check_picture(output)
    opened = open_run(run, **opening)
    drawn = step_timeline(opened, **arguments)
    save_picture(lambda: draw_timeline(drawn, title=title_of(opened, drawn)), output)
    say_on_stderr(f"wrote {output}")
