# SPDX-License-Identifier: Apache-2.0
"""`cclbench remove`: runs out of the store."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from cclbench.cli import options
from cclbench.ground.errors import UsageError
from cclbench.present.terminal.streams import say_on_stderr


@click.command()
@click.argument("runs", metavar="RUN...", nargs=-1, required=True, shell_complete=options.run_ids)
@click.option("--yes", is_flag=True, help="Ask nothing.")
@options.store
@options.debug
def remove(runs: tuple[str, ...], yes: bool, store: Path) -> None:
    """Remove runs from the store, each whole; the traces they were read from stay.

    RUN is the id of a run (`cclbench list runs`). Without --yes each is asked about.

    \b
    Examples:
      cclbench remove my-job-3f2a91c0
      cclbench remove my-job-3f2a91c0 my-job-91c03f2a --yes --store /scratch/runs
    """
    from cclbench.workspace import store_at

    kept = store_at(store)
    names = list(dict.fromkeys(runs))
    for run in names:
        kept.check(run)
    if not yes and not sys.stdin.isatty():
        raise UsageError("remove asks before it removes, and nobody is there to answer", hint="add --yes")
    for run in names:
        if yes or click.confirm(f"remove run {run} from {kept.place}?", err=True):
            kept.remove(run)
            say_on_stderr(f"removed {run}")
