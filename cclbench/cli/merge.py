# SPDX-License-Identifier: Apache-2.0
"""`cclbench merge`: a run from shards that several jobs read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from cclbench.cli import options
from cclbench.cli.ingest import show_runs

if TYPE_CHECKING:
    from cclbench.engine import Engine


@click.command()
@click.argument("shards", metavar="SHARD...", nargs=-1, required=True, type=click.Path(path_type=Path))
@options.engine
@options.store
@options.page
def merge(shards: tuple[Path, ...], engine: Engine, store: Path, form: str, verbosity: int) -> None:
    """Merge the shards that `cclbench ingest --shard` made of one source into a run.

    The run equals the one that `cclbench ingest` makes of the source. The shards are kept, and may be removed
    afterwards; scripts/slurm/ has job scripts for Slurm.

    \b
    Examples:
      cclbench merge runs/my-job-1a2b3c4d.shard-*
    """
    from cclbench.ingestion.shards import merge_shards as merged
    from cclbench.present.terminal.output import progress_bar
    from cclbench.workspace import store_at

    with progress_bar(verbosity) as bars:
        run = merged(shards, store_at(store), engine=engine, progress=bars)
    show_runs([run], form, verbosity)
