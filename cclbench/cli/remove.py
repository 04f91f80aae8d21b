# SPDX-License-Identifier: Apache-2.0
"""`cclbench remove`: remove runs from the store."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from cclbench.cli import options
from cclbench.ground.errors import UsageError
from cclbench.present.terminal.streams import say_on_stderr


@click.command()
@click.argument("runs", metavar="RUN...", nargs=-1, required=True, shell_complete=options.run_ids)
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@options.store
@options.debug
def remove(runs: tuple[str, ...], yes: bool, store: Path) -> None:
    """Remove runs from the store; their traces are kept.

    RUN is the id of a run (`cclbench list runs`). Without --yes, each is confirmed.

    \b
    Examples:
      cclbench remove my-job-3f2a91c0
      cclbench remove my-job-3f2a91c0 my-job-91c03f2a --yes --store /scratch/runs
    """
    from cclbench.workspace import store_at

    opened_store = store_at(store)
    names = list(dict.fromkeys(runs))
    for run in names:
        opened_store.require_run(run)
    if not yes and not sys.stdin.isatty():
        raise UsageError("remove needs confirmation, and stdin is not a terminal", hint="add --yes")
    for run in names:
        if yes or click.confirm(f"remove run {run} from {opened_store.place}?", err=True):
            opened_store.remove(run)
            say_on_stderr(f"removed {run}")
