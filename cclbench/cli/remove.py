# SPDX-License-Identifier: Apache-2.0
"""`cclbench remove`: remove runs from the store."""

from __future__ import annotations

import fnmatch
import sys
from glob import has_magic
from itertools import chain
from pathlib import Path

import click

from cclbench.cli import completion, options
from cclbench.ground.errors import UsageError
from cclbench.ground.text import quoted_value
from cclbench.present.terminal.streams import say_on_stderr


@click.command()
@click.argument("runs", metavar="RUN...", nargs=-1, required=True, shell_complete=completion.run_ids)
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option(
    "--keep",
    type=click.IntRange(min=1),
    metavar="N",
    help="Keep the newest N of these runs, by `history`'s date.",
)
@options.store
@options.debug
def remove(runs: tuple[str, ...], yes: bool, keep: int | None, store: Path) -> None:
    """Remove runs from the store; their traces are kept.

    RUN is the id of a run (`cclbench list runs`), or a quoted pattern of ids. Without --yes, each is
    confirmed.

    \b
    Examples:
      cclbench remove my-job-3f2a91c0
      cclbench remove my-job-3f2a91c0 my-job-91c03f2a --yes --store /scratch/runs
      cclbench remove 'nightly-*' --keep 90 --yes
    """
    from cclbench.workspace import store_at

    opened_store = store_at(store)
    patterns = [
        [run] if not has_magic(run) or opened_store.find(run) else fnmatch.filter(opened_store.ids(), run)
        for run in runs
    ]
    for run, matches in zip(runs, patterns, strict=True):
        if not matches:
            raise UsageError(f"{quoted_value(run)} matches no run in {opened_store.place}")
    names = list(dict.fromkeys(chain.from_iterable(patterns)))
    for run in names:
        opened_store.require_run(run)
    if keep is not None:
        dates = {run: opened_store.date_of(opened_store.get(run))[0] for run in names}
        names = sorted(names, key=dates.__getitem__)[:-keep]
    if not yes and not sys.stdin.isatty():
        raise UsageError("remove needs confirmation, and stdin is not a terminal", hint="add --yes")
    for run in names:
        if yes or click.confirm(f"remove run {run} from {opened_store.place}?", err=True):
            opened_store.remove(run)
            say_on_stderr(f"removed {run}")
