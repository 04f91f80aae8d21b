# SPDX-License-Identifier: Apache-2.0
"""`cclbench site`: data points as a static site."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from cclbench.cli import options
from cclbench.present.terminal.streams import say_on_stderr


@click.command()
@click.argument("places", metavar="[STORE|REPO]...", nargs=-1)
@click.option(
    "-o",
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    required=True,
    help="Folder to write; a site that cclbench made there is replaced.",
)
@click.option(
    "--verify", is_flag=True, help="Recompute the data points of a REPO, as `cclbench verify` does."
)
@options.opening
@options.verbosity
def site(
    places: tuple[str, ...], output: Path, verify: bool, opening: dict[str, Any], verbosity: int
) -> None:
    """Make a static site of data points: a board, a page each, comparisons, an explorer.

    STORE is a folder of runs, or a URL; REPO a folder with workload_cards/ and traces/, whose data points
    are read into the store of --store. Without either, the site is that of the store. Its pages work from
    disk and on any web server, and load nothing from elsewhere.

    Runs are ranked only where their work is proved equal, as `cclbench compare` proves it. Published rows and
    modelled figures are shown where the reader asks for them.

    \b
    Examples:
      cclbench site -o board
      cclbench site . runs -o board
      cclbench site . --verify -o board
    """
    from cclbench.present.board.build import build_site
    from cclbench.present.terminal.output import progress_bar

    with progress_bar(verbosity) as bars:
        built_site = build_site(*places, output=output, verify=verify, progress=bars, **opening)
    if verbosity >= 0:
        left_out = f", {len(built_site.left_out)} left out: see index.html" if built_site.left_out else ""
        rows = len(built_site.board.rows)
        say_on_stderr(f"wrote {output}: {rows:,} row{'s' * (rows != 1)}{left_out}")
