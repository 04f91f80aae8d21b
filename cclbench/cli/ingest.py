# SPDX-License-Identifier: Apache-2.0
"""`cclbench ingest`: read traces into the store."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, Final

import click

from cclbench.cli import options
from cclbench.cli.labels import labels as labels_option
from cclbench.ground.errors import UsageError
from cclbench.ground.file_names import stored_name

if TYPE_CHECKING:
    from cclbench.engine import Engine, Progress
    from cclbench.ingestion.shards import Shard
    from cclbench.record.manifest import Manifest
    from cclbench.record.run import Run

_COLUMNS: Final = ("run", "rank", "file", "bytes", "reader", "rows", "dropped", "steps", "truncated")


def _parse_share(text: str) -> tuple[int, int]:
    """The two numbers of `I/N`."""
    match = re.fullmatch(r"(\d{1,6})/(\d{1,6})", text)
    if match is None:
        raise ValueError(f"{text!r} is not I/N, such as 3/8")
    return int(match[1]), int(match[2])


@click.command()
@click.argument("sources", metavar="SOURCE...", nargs=-1, required=True)
@click.option(
    "--shard",
    type=options.Parsed("I/N", _parse_share),
    help="Read only this share of the trace files, such as 3/8; `cclbench merge` combines them into a run.",
)
@options.ingest
@labels_option
@options.engine
@options.store
@options.page
def ingest(
    sources: tuple[str, ...],
    shard: tuple[int, int] | None,
    labels: dict[str, str],
    form: str,
    verbosity: int,
    **arguments: Any,
) -> None:
    """Read traces into the store, without computing anything.

    Each SOURCE is a workload card, a folder of traces or a single trace, and becomes a run. A source that is
    already in the store, unchanged, is not read again.

    \b
    Examples:
      cclbench ingest traces/my-job
      cclbench ingest rank0.json.gz --allow-truncated
      cclbench ingest traces/a traces/b --store /scratch/runs --json
      cclbench ingest traces/my-job --shard $SLURM_ARRAY_TASK_ID/8
    """
    options.prepare_engine(arguments["engine"], sources[0])
    from cclbench.api import ingest as read
    from cclbench.present.terminal.output import progress_bar

    with progress_bar(verbosity) as bars:
        if shard is not None:
            if labels:
                raise UsageError(
                    "a shard has no labels", hint="give them to `cclbench run` of the merged run"
                )
            shards = [_ingest_share(source, shard, progress=bars, **arguments) for source in sources]
        else:
            runs = [read(source, labels=labels, progress=bars, **arguments) for source in sources]
    if shard is not None:
        _show_shards(shards, form)
    else:
        show_runs(runs, form, verbosity)


def show_runs(runs: Sequence[Run], form: str, verbosity: int) -> None:
    """Print the trace files and ranks of runs."""
    from cclbench.present.terminal.output import emit_answer
    from cclbench.present.terminal.run import facts_table
    from cclbench.record.results import NOTHING

    emit_answer(
        form,
        document={"schema": "manifest.v1", "runs": [run.manifest for run in runs]},
        rows=[row for run in runs for row in _file_rows(run.record)],
        columns=_COLUMNS,
        table=lambda: [facts_table(run.record, NOTHING, None, verbose=verbosity > 0) for run in runs],
    )


def _ingest_share(
    source: str,
    share: tuple[int, int],
    *,
    store: Path,
    engine: Engine,
    progress: Progress | None,
    **reading: Any,
) -> tuple[Path, Shard]:
    from cclbench.ingestion.shards import ingest_shard
    from cclbench.record.manifest import Options
    from cclbench.record.remote_store import RemoteStore
    from cclbench.workspace import store_at

    opened_store = store_at(store)
    if isinstance(opened_store, RemoteStore):
        hint = "name a folder; `cclbench merge` takes --store URL for the run"
        raise UsageError("shards cannot be stored at a URL", hint=hint)
    return ingest_shard(source, opened_store, Options(**reading), *share, engine=engine, progress=progress)


def _show_shards(shards: Sequence[tuple[Path, Shard]], form: str) -> None:
    from cclbench.ground.text import printable
    from cclbench.present.terminal.output import emit_answer

    rows = [
        {
            "shard": stored_name(folder),
            "index": shard.index + 1,
            "count": shard.count,
            "files": len(shard.files),
            "bytes": sum(file.bytes for file in shard.files),
            "of_files": len(shard.listing),
        }
        for folder, shard in shards
    ]
    emit_answer(
        form,
        document={"schema": "shards.v1", "shards": rows},
        rows=rows,
        columns=list(rows[0]),
        table=lambda: [
            f"{printable(str(folder))}: {shard.display_name},"
            f" {len(shard.files)} of {len(shard.listing)} trace files;"
            f" when all are there: cclbench merge {quote(printable(str(folder.with_suffix(''))))}.shard-*"
            for folder, shard in shards
        ],
    )


def _file_rows(record: Manifest) -> list[dict[str, Any]]:
    """One row per trace file; counts are those of its rank."""
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
