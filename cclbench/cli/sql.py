# SPDX-License-Identifier: Apache-2.0
"""`cclbench sql`: questions that no metric answers."""

from __future__ import annotations

from pathlib import Path

import click

from cclbench.cli.options import format_options, store_option, verbosity_options


@click.command()
@click.argument("run", metavar="RUN")
@click.argument("query", metavar="QUERY")
@store_option
@format_options
@verbosity_options
def sql(run: str, query: str, store: Path, form: str, verbosity: int) -> None:
    """Query the tables of a run with SQL.

    RUN is the id of a run (`cclbench list runs`), or any SOURCE that `cclbench run` takes. QUERY is in
    DuckDB's dialect, over the tables events, collectives, steps and results; it can only read.

    \b
    Examples:
      cclbench sql my-job-3f2a91c0 "SELECT name, sum(dur_ns) / 1e6 AS ms FROM events
          WHERE kind = 'kernel' GROUP BY ALL ORDER BY ms DESC LIMIT 10"
      cclbench sql my-job-3f2a91c0 "FROM collectives" --format csv
    """
    from cclbench.cli.output import emit, grid, progress
    from cclbench.run import ingest

    with progress(verbosity) as bars:
        opened = ingest(run, store=store, progress=bars)
    answer = opened.sql(query)
    columns, rows = list(answer.column_names), answer.to_pylist()
    emit(
        form,
        document={"schema": "sql.v1", "run": opened.id, "columns": columns, "rows": rows},
        rows=rows,
        columns=columns,
        table=lambda: grid(rows, columns),
    )
