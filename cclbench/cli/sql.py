# SPDX-License-Identifier: Apache-2.0
"""`cclbench sql`: questions that no metric answers."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import click

from cclbench.cli import options
from cclbench.errors import UsageError


@click.command()
@options.run
@click.argument("query", metavar="QUERY")
@options.memory
@options.inference
@options.store
@options.form
def sql(run: str, query: str, memory: int | None, inference: bool, store: Path, form: str) -> None:
    """Query the tables of a run with SQL.

    RUN is the id of a run (`cclbench list runs`), or any SOURCE that `cclbench run` takes. QUERY is in
    DuckDB's dialect, over the tables events, collectives, groups, steps and results, and counters, timings,
    requests, serving, allocations and memory_blocks where files besides traces tell of them; it can only
    read.

    \b
    Examples:
      cclbench sql my-job-3f2a91c0 "SELECT name, sum(dur_ns) AS ns FROM events
          WHERE kind = 'kernel' GROUP BY ALL ORDER BY ns DESC LIMIT 10"
      cclbench sql my-job-3f2a91c0 "FROM collectives" --format csv
    """
    from cclbench.api import open_run
    from cclbench.present.terminal.output import emit

    opened = open_run(run, store=store, inference=inference)
    answer = opened.sql(query, times_as_text=True, memory_bytes=memory)
    columns = list(answer.column_names)
    for name in columns:
        if columns.count(name) > 1:
            raise UsageError(f"SQL: two columns are called {name!r}", hint="name one otherwise: ... AS other")
    rows = _plain(answer.to_pylist())
    emit(
        form,
        document={"schema": "sql.v1", "run": opened.id, "columns": columns, "rows": rows},
        rows=rows,
        columns=columns,
    )


def _plain(value: Any) -> Any:
    """What JSON can say of a value: null for a float that is no number, bytes in hexadecimal, else text."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, bytes):
        return value.hex()
    return value if isinstance(value, int | str | None) else str(value)
