# SPDX-License-Identifier: Apache-2.0
"""DuckDB over a run's tables, which it can only read."""

from __future__ import annotations

import glob
import re
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from cclbench.errors import UsageError
from cclbench.record.files import check_table
from cclbench.schema import EVIDENCE, TABLES

if TYPE_CHECKING:
    import duckdb


_TIME: Final = re.compile("DATE|TIME|INTERVAL")


def select(path: Path, ranks: Sequence[int], query: str, *, times_as_text: bool = False) -> pa.Table:
    """The answer to one SELECT of DuckDB's dialect over the tables of the run at `path`, which has `ranks`.

    They are those of `TABLES`; `events` has `rank` as a further column.  It can only read, and only the
    run's own files.  `times_as_text` gives dates, times and intervals as DuckDB writes them: Python has no
    infinite ones and none before Christ.
    """
    import duckdb

    connection = duckdb.connect(":memory:")
    try:
        statements = connection.extract_statements(query)
        if [s.type for s in statements] != [duckdb.StatementType.SELECT]:
            raise UsageError("SQL: takes one SELECT and nothing else", where=path.name)
        _open_to(connection, path, ranks)
        answer = connection.sql(query)
        if times_as_text:
            columns = enumerate(zip(answer.columns, map(str, answer.types), strict=True), 1)
            answer = answer.project(
                ", ".join(
                    f"{f'CAST(#{n} AS VARCHAR)' if _TIME.search(kind) else f'#{n}'} AS {_identifier(name)}"
                    for n, (name, kind) in columns
                )
            )
        return answer.to_arrow_table()
    except duckdb.Error as error:
        first = str(error).splitlines()[0]
        hint = f"the tables are {', '.join(TABLES)}"
        raise UsageError(f"SQL: {first}", where=path.name, hint=hint) from None
    finally:
        connection.close()


def _open_to(connection: duckdb.DuckDBPyConnection, path: Path, ranks: Sequence[int]) -> None:
    """Make the run's tables views of a connection, and nothing else of its reach."""
    folder = glob.escape(str(path))
    folders = ", ".join(_quoted(f"{allowed}/") for allowed in (path, folder))
    connection.execute(f"SET allowed_directories=[{folders}]; SET python_enable_replacements=false")
    connection.execute("SET enable_external_access=false; SET lock_configuration=true")
    files = {name: [(f"{name}/*.parquet", "")] for name in ("collectives", "steps", *EVIDENCE)}
    files["events"] = [(f"events/rank={rank}/*.parquet", f", {rank}::INTEGER AS rank") for rank in ranks]
    files["results"] = [("results.parquet", "")]
    files["groups"] = [("groups.parquet", "")]
    for name, schema in TABLES.items():
        there = {pattern: list(path.glob(pattern)) for pattern, _ in files[name]}
        for file in chain.from_iterable(there.values()):
            check_table(file, schema)
        columns = ", ".join(map(_identifier, schema.names))
        selects = [
            f"SELECT {columns}{more} FROM read_parquet({_quoted(f'{folder}/{pattern}')}, "  # noqa: S608
            "hive_partitioning=false)"
            for pattern, more in files[name]
            if there[pattern]
        ]
        if selects:
            connection.execute(f"CREATE VIEW {name} AS {' UNION ALL '.join(selects)}")
        else:
            rank = [pa.field("rank", pa.int32())] if name == "events" else []
            connection.register(name, pa.schema([*schema, *rank]).empty_table())


def _identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _quoted(text: str) -> str:
    """A string literal of SQL."""
    return "'" + text.replace("'", "''") + "'"
