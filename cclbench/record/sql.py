# SPDX-License-Identifier: Apache-2.0
"""DuckDB over a run's tables, which it can only read."""

from __future__ import annotations

import math
import re
from decimal import Decimal
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from cclbench.ground.errors import InputError, UsageError
from cclbench.ground.schema import RESULTS, TABLES
from cclbench.ground.scratch import temporary_folder
from cclbench.ground.text import cut_text
from cclbench.ground.units import humanise
from cclbench.record.files import check_table, damaged
from cclbench.record.inventory import RESULTS_FILE, has_stated_content
from cclbench.sql import VIEWS, dependency_closure, names_in
from cclbench.sql.functions import FUNCTIONS
from cclbench.sql.machine_tables import TABLES as MACHINE_TABLES
from cclbench.sql.machine_tables import machine_tables

if TYPE_CHECKING:
    import duckdb

    from cclbench.record.run import Run

_TIME: Final = re.compile("DATE|TIME|INTERVAL")
_SHOWN: Final = 20
"""Rows of an answer that a notebook shows."""
_UNITS: Final = (("_ns", "s", 1e-9), ("_bytes", "B", 1), ("_s", "s", 1))
"""Ends of the names of columns whose values are read with a unit: the unit, and the factor to it."""


class QueryResult:
    """The answer to a query: an Arrow table, with all that one offers, which notebooks show humanised."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table

    def __getattr__(self, name: str) -> Any:
        return getattr(self.table, name)

    def __getitem__(self, column: str) -> pa.ChunkedArray:
        return self.table[column]

    def __len__(self) -> int:
        return len(self.table)

    def __repr__(self) -> str:
        return repr(self.table)

    def _repr_html_(self) -> str:
        names = self.table.column_names
        rows = zip(*(column.to_pylist() for column in self.table.slice(0, _SHOWN).columns), strict=True)
        lines = ["".join(f"<th>{escape(cut_text(name))}</th>" for name in names)]
        lines += ["".join(map(_cell, names, row)) for row in rows]
        more = len(self) - _SHOWN
        table = "".join(f"<tr>{line}</tr>" for line in lines)
        return f"<table>{table}</table>" + (f"<p>and {more:,} more rows</p>" if more > 0 else "")


def _cell(column: str, value: Any) -> str:
    """A value for a person, with its unit where the column's name ends in one: the value itself on hover."""
    text = "" if value is None else cut_text(str(value))
    for end, unit, factor in _UNITS:
        if column.endswith(end) and isinstance(value, int | float | Decimal) and math.isfinite(value):
            return f'<td title="{escape(text)}">{escape(humanise(float(value) * factor, unit))}</td>'
    return f"<td>{escape(text)}</td>"


def plain_rows(answer: QueryResult) -> list[dict[str, Any]]:
    """The rows of an answer, of values that JSON can say; `UsageError` where two columns have one name."""
    columns = list(answer.column_names)
    for name in columns:
        if columns.count(name) > 1:
            raise UsageError(f"SQL: two columns are called {name!r}", hint="name one otherwise: ... AS other")
    return [{name: _plain(value) for name, value in row.items()} for row in answer.to_pylist()]


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


def select(
    run: Run,
    query: str,
    *,
    times_as_text: bool = False,
    memory_bytes: int | None = None,
    disk_bytes: int | None = None,
    page: tuple[int, int] | None = None,
) -> QueryResult:
    """The answer to one SELECT of DuckDB's dialect over the tables and views of a run.

    Tables are those of `TABLES`, where `events` has `rank` as a further column, and of `MACHINE_TABLES`;
    views are those of `VIEWS`.  It can only read, and only the run's own files.  `times_as_text` gives dates,
    times and intervals as DuckDB writes them: Python has no infinite ones and none before Christ.  What needs
    more memory than `memory_bytes`, by default most of the machine's, goes to a temporary folder, at most
    `disk_bytes`; the answer itself must fit.  `page` (first row, number of rows) has DuckDB compute only what
    these rows need.
    """
    import duckdb

    with temporary_folder() as folder, duckdb.connect(":memory:") as connection:
        connection.execute(f"SET temp_directory={_quoted(str(folder / 'spilled'))}")
        if memory_bytes is not None:
            connection.execute(f"SET memory_limit='{memory_bytes} B'")
        if disk_bytes is not None:
            connection.execute(f"SET max_temp_directory_size='{disk_bytes} B'")
        try:
            statements = connection.extract_statements(query)
            if [s.type for s in statements] != [duckdb.StatementType.SELECT]:
                raise UsageError("SQL: takes one SELECT and nothing else", where=run.id)
            # By a name without patterns, and without a `rank=` that is no rank's folder.
            (folder / "run").symlink_to(run.path.absolute())
            _open_to(connection, folder / "run", run, query)
            answer = connection.sql(query)
            if times_as_text:
                columns = enumerate(zip(answer.columns, map(str, answer.types), strict=True), 1)
                answer = answer.project(
                    ", ".join(
                        f"{f'CAST(#{n} AS VARCHAR)' if _TIME.search(kind) else f'#{n}'}"
                        f" AS {_identifier(name)}"
                        for n, (name, kind) in columns
                    )
                )
            if page is not None:
                offset, count = page
                answer = answer.limit(count, offset)
            return QueryResult(answer.to_arrow_table())
        except duckdb.OutOfMemoryException as error:
            hint = "ask for fewer rows or columns at once, or allow more memory"
            raise UsageError(f"SQL: {str(error).splitlines()[0]}", where=run.id, hint=hint) from None
        except duckdb.Error as error:
            first, *further = str(error).splitlines()
            hints = [line for line in further if line.startswith(("Did you mean", "Candidate"))]
            hints.append(f"the tables are {', '.join((*TABLES, *MACHINE_TABLES))}")
            hints.append("cclbench list views has the views")
            raise UsageError(f"SQL: {first}", where=run.id, hint="; ".join(hints)) from None


def _names_to_open(query: str) -> list[str]:
    """The tables, functions and views that a query may read: a table is a file of each rank, all opened.

    They are those whose names stand in it and what these read, each after what it reads; all where none does,
    as where it asks which there are, and where it may put a name together (DuckDB's functions query and
    query_table).
    """
    names = names_in(query)
    everything = not names or "query" in query.casefold()
    return dependency_closure((*TABLES, *MACHINE_TABLES, *VIEWS) if everything else names)


def _open_to(connection: duckdb.DuckDBPyConnection, link: Path, run: Run, query: str) -> None:
    """Make the tables and views that a query names views of the connection, and nothing else of its reach."""
    connection.execute(
        f"SET allowed_directories=[{_quoted(f'{link}/')}]; SET python_enable_replacements=false"
    )
    connection.execute("SET enable_external_access=false; SET lock_configuration=true")
    names = _names_to_open(query)
    of_machine = {} if MACHINE_TABLES.keys().isdisjoint(names) else machine_tables(run.card, run.record.ranks)
    for name in names:
        if name in TABLES:
            _open_table(connection, link, run, name)
        elif name in MACHINE_TABLES:
            connection.register(name, of_machine[name])
        elif name in FUNCTIONS:
            function = FUNCTIONS[name]
            connection.create_function(
                name, function.call, [*function.parameters], function.returns, null_handling="special"
            )
        else:
            _open_view(connection, run, name)


def _open_table(connection: duckdb.DuckDBPyConnection, link: Path, run: Run, name: str) -> None:
    """Make one table of `TABLES` a view of the connection, empty where the run has no file of it."""
    schema = TABLES[name]
    files = _result_files(run) if name == "results" else []
    for file in run.tables.get(name, ()) if name != "results" else ():
        check_table(run.path / file.path, schema, listed=file)
        files.append(file.path)
    if not files:
        rank = [pa.field("rank", pa.int32())] if name == "events" else []
        connection.register(name, pa.schema([*schema, *rank]).empty_table())
        return
    columns = ", ".join(map(_identifier, schema.names))
    # The rank of an event stands in the name of its folder alone.
    folders = "true, hive_types={'rank': INTEGER}" if name == "events" else "false"
    listed = ", ".join(_quoted(str(link / file)) for file in files)
    connection.execute(
        f"CREATE VIEW {name} AS SELECT {columns}{', rank' if name == 'events' else ''}"  # noqa: S608
        f" FROM read_parquet([{listed}], hive_partitioning={folders})"
    )


def _open_view(connection: duckdb.DuckDBPyConnection, run: Run, name: str) -> None:
    """Make one view of `VIEWS` a view of the connection; `UsageError` names one that DuckDB refuses."""
    import duckdb

    try:
        connection.execute(f"CREATE VIEW {name} AS {VIEWS.get(name).query}")
        described = connection.execute(f"DESCRIBE {name}").fetchall()
    except duckdb.Error as error:
        first = str(error).splitlines()[0]
        raise UsageError(f"SQL: view {name} of {VIEWS.origin(name)}: {first}", where=run.id) from None
    stated = [f"{column.name} {column.type}" for column in VIEWS.get(name).columns]
    actual_columns = [f"{column} {kind}" for column, kind, *_ in described]
    if stated != actual_columns:
        what = f"view {name} of {VIEWS.origin(name)}: its header has {', '.join(stated)}"
        raise UsageError(what, where=f"{name}.sql", hint=f"its SELECT gives {', '.join(actual_columns)}")


def _result_files(run: Run) -> list[str]:
    """The file of the run's results, where there is one, checked whole; `InputError` for another run's."""
    path = run.path / RESULTS_FILE
    if not path.is_file():
        return []
    check_table(path, RESULTS)
    if run.results_file is None:
        hint = f"compute them: cclbench metrics {run.id}"
        raise InputError("was computed from another run, or from other tables", where=str(path), hint=hint)
    if not has_stated_content(path):
        raise damaged(path, "its content is not what was written")
    return [RESULTS_FILE]


def _identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _quoted(text: str) -> str:
    """A string literal of SQL."""
    return "'" + text.replace("'", "''") + "'"
