# SPDX-License-Identifier: Apache-2.0
"""`cclbench ingest`: the first half of the main job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from cclbench.cli import options

if TYPE_CHECKING:
    from cclbench.record.manifest import Manifest

_COLUMNS = ("run", "rank", "file", "bytes", "reader", "rows", "dropped", "steps", "truncated")


@click.command()
@click.argument("sources", metavar="SOURCE...", nargs=-1, required=True)
@options.ingest
@options.engine
@options.store
@options.page
def ingest(sources: tuple[str, ...], form: str, verbosity: int, **wishes: Any) -> None:
    """Read traces into the store, without computing anything.

    Each SOURCE is a workload card, a folder of traces or a single trace, and becomes a run. A source
    that is in the store already, unchanged, is not read again.

    \b
    Examples:
      cclbench ingest traces/my-job
      cclbench ingest rank0.json.gz --allow-truncated
      cclbench ingest traces/a traces/b --store /scratch/runs --json
    """
    from cclbench.api import ingest as read
    from cclbench.present.terminal.output import emit, progress
    from cclbench.present.terminal.run import findings

    with progress(verbosity) as bars:
        runs = [read(source, progress=bars, **wishes) for source in sources]
    emit(
        form,
        document={"schema": "manifest.v1", "runs": [run.manifest for run in runs]},
        rows=[row for run in runs for row in _rows(run.record)],
        columns=_COLUMNS,
        table=lambda: [findings(run.record, (), None, verbose=verbosity > 0) for run in runs],
    )


def _rows(record: Manifest) -> list[dict[str, Any]]:
    """A row a trace file; counts are those of its rank."""
    return [
        {
            "run": record.run,
            "rank": rank.rank,
            "file": file.name,
            "bytes": file.bytes,
            "reader": file.reader,
            "rows": sum(rank.rows.values()),
            "dropped": sum(rank.dropped.values()),
            "steps": rank.steps.found,
            "truncated": rank.truncated.reason if rank.truncated else None,
        }
        for rank in record.ranks
        for file in rank.files
    ]
