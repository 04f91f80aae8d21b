# SPDX-License-Identifier: Apache-2.0
"""`cclbench sql`: SQL over the tables and views of a run."""

from __future__ import annotations

from pathlib import Path

import click

from cclbench.cli import options


@click.command()
@options.run
@click.argument("query", metavar="QUERY")
@options.memory
@options.inference
@options.store
@options.form
def sql(run: str, query: str, memory: int | None, inference: bool, store: Path, form: str) -> None:
    """Query the tables and views of a run with SQL.

    RUN is the id of a run (`cclbench list runs`), or any SOURCE that `cclbench run` takes. QUERY is read-only
    SQL in DuckDB's dialect, over views such as busy, waits, launches and kernel_summary (`cclbench list
    views`) and the tables events, operators, collectives, groups, steps, results and rank_devices. Files
    other than traces add counters, timings, requests, serving, allocations, memory_blocks and
    allocator_annotations; XLA profiles add program_buffers.

    \b
    Examples:
      cclbench sql my-job-3f2a91c0 "FROM busy ORDER BY rank, step"
      cclbench sql my-job-3f2a91c0 "SELECT name, sum(dur_ns) AS ns FROM events
          WHERE kind = 'kernel' GROUP BY ALL ORDER BY ns DESC LIMIT 10"
      cclbench sql my-job-3f2a91c0 "FROM collectives" --format csv
    """
    from cclbench.present.terminal.output import emit_answer
    from cclbench.record.sql import plain_rows
    from cclbench.workspace import open_run

    opened = open_run(run, store=store, inference=inference)
    answer = opened.sql(query, times_as_text=True, memory_bytes=memory)
    columns, rows = list(answer.column_names), plain_rows(answer)
    emit_answer(
        form,
        document={"schema": "sql.v1", "run": opened.id, "columns": columns, "rows": rows},
        rows=rows,
        columns=columns,
    )
