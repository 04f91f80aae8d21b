# SPDX-License-Identifier: Apache-2.0
"""A SQLite file as Arrow batches: its tables and columns, and errors that name them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Self

import pyarrow as pa

from cclbench.ground.errors import InputError
from cclbench.ground.out_of_memory import is_out_of_memory
from cclbench.ground.text import quoted_value

MAGIC: Final = b"SQLite format 3\0"
BATCH_ROWS: Final = 1 << 16
_LONGEST_NAME: Final = 1 << 20
_WAL: Final = b"\x02\x02"
_RELATION: Final = re.compile(r'\b(?:FROM|JOIN)\s+"?(\w+)')
"""Tables and views in SQL of readers."""


class SqliteFile:
    """A database opened for reading; use as a context manager.

    `InputError` with `hint` if the file is cut, damaged, still being written, or not a database.
    """

    hint: str
    """How to write the file again."""

    def __init__(self, path: Path) -> None:
        from adbc_driver_sqlite import dbapi

        self.path = path
        with self._name_errors("its schema"):
            self._connection = dbapi.connect(self._uri(), autocommit=True)
            self._cursor = self._connection.cursor()
        options = {"adbc.sqlite.query.batch_rows": str(BATCH_ROWS)}
        self._cursor.adbc_statement.set_options(**options)
        self.tables: dict[str, dict[str, None]] = {}
        """Columns of each table, in order."""
        self._views: frozenset[str] = frozenset()
        """Names of views and virtual tables."""
        try:
            self._list_tables()
        except InputError:
            self.close()
            raise

    def _uri(self) -> str:
        unlocked = _check_header(self.path, self.hint)
        return f"{self.path.absolute().as_uri()}?mode=ro{'&immutable=1' if unlocked else ''}"

    def _list_tables(self) -> None:
        listed = (
            "SELECT m.name AS t, c.name AS c, c.hidden > 1 FROM sqlite_master m, pragma_table_xinfo(m.name) c"
            " WHERE m.type = 'table'"
        )
        for table, column, is_computed in self._run_query(listed, "its schema"):
            if not isinstance(table, str) or not isinstance(column, str):
                raise _database_error(self.path, "its schema", "a name is not a text", self.hint)
            if is_computed:
                raise self._refuse_query(f"column {quoted_value(column)} of table {quoted_value(table)}")
            self.tables.setdefault(table, {})[column] = None
        computed = "SELECT name FROM sqlite_master WHERE type = 'view' OR sql LIKE 'CREATE VIRTUAL%'"
        names = self._run_query(computed, "its schema")
        self._views = frozenset(name.casefold() for (name,) in names if isinstance(name, str))

    def _refuse_query(self, name: str) -> InputError:
        """The error for what the file's own SQL would compute: it may take any time and memory."""
        message = f"{name} is computed by SQL of the file, which is not run"
        return InputError(message, where=str(self.path), hint=self.hint)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._cursor.close()
        self._connection.close()

    def has_columns(self, table: str, *columns: str) -> bool:
        """Whether the table exists and has all these columns."""
        return table in self.tables and self.tables[table].keys() >= set(columns)

    def first_column_sql(self, table: str, *names: str) -> str:
        """SQL for the first of these columns that is not null; NULL if the table has none of them."""
        columns = [f'"{name}"' for name in names if self.has_columns(table, name)]
        return f"coalesce({', '.join(columns)})" if len(columns) > 1 else columns[0] if columns else "NULL"

    def read_batches(
        self,
        table: str,
        columns: Mapping[str, str],
        where: str = "",
        *,
        text: Sequence[str] = (),
        real: Sequence[str] = (),
    ) -> Iterator[pa.RecordBatch]:
        """Rows of a table in its order; see `query_batches`."""
        return self.query_batches(f'"{table}"', columns, where, what=f"table {table}", text=text, real=real)

    def query_batches(
        self,
        relation: str,
        columns: Mapping[str, str],
        where: str = "",
        *,
        what: str,
        text: Sequence[str] = (),
        real: Sequence[str] = (),
    ) -> Iterator[pa.RecordBatch]:
        """Rows of the SQL `relation`, a table or a join, called `what` in messages.

        `columns` maps names to SQL, integers except `text` and `real`.  One iteration at a time: a second
        call ends the first.
        """
        listed = ", ".join(f'{sql} AS "{name}"' for name, sql in columns.items())
        sql = _select_sql(relation, listed, where)
        self._check_relations(sql)
        with self._name_errors(what):
            self._cursor.execute(sql)
            for batch in self._cursor.fetch_record_batch():
                yield self._check_types(batch, what, columns, text, real)

    def texts_by_id(self, table: str, column: str, ids: Sequence[int]) -> dict[int, str]:
        """Texts of a column by the table's `id`; `InputError` for one of more than 1 MiB."""
        texts: dict[int, str] = {}
        for at in range(0, len(ids), 500):
            id_list = ",".join(map(str, ids[at : at + 500]))
            columns = f'id, length("{column}"), CAST(substr("{column}", 1, {_LONGEST_NAME}) AS TEXT)'
            where = f'id IN ({id_list}) AND "{column}" IS NOT NULL'
            for key, length, value in self.select_rows(table, columns, where):
                if length > _LONGEST_NAME:
                    place = f"{self.path}: table {table}, id {key}"
                    raise InputError(
                        f"a name of {length:,} characters", where=place, hint="is the file damaged?"
                    )
                texts[key] = value
        return texts

    def select_rows(
        self, table: str, columns: str, where: str = "", then: str = "", *, needs: Sequence[str] = ()
    ) -> list[tuple[Any, ...]]:
        """All rows of a small result; none if the table does not exist or lacks a column of `needs`."""
        if not self.has_columns(table, *needs):
            return []
        selection = _select_sql(f'"{table}"', columns, where)
        return self._run_query(f"{selection} {then}", f"table {table}")

    def count_rows(self, table: str, where: str = "") -> int:
        """Number of rows of a table."""
        return int(self.select_rows(table, "count(*)", where)[0][0])

    def _check_relations(self, sql: str) -> None:
        for name in _RELATION.findall(sql) if self._views else ():
            if name.casefold() in self._views:
                raise self._refuse_query(f"view {quoted_value(name)}")

    def _run_query(self, sql: str, what: str) -> list[tuple[Any, ...]]:
        self._check_relations(sql)
        with self._name_errors(what), self._connection.cursor() as cursor:
            cursor.execute(sql)
            return list(cursor.fetchall())

    def _check_types(
        self,
        batch: pa.RecordBatch,
        what: str,
        columns: Mapping[str, str],
        text: Sequence[str],
        real: Sequence[str],
    ) -> pa.RecordBatch:
        """The batch, if it has the expected types: the driver infers them from values."""
        batch.validate(full=True)  # a damaged file may have invalid UTF-8
        for field in batch.schema:
            expected = (
                pa.string() if field.name in text else pa.float64() if field.name in real else pa.int64()
            )
            if field.type != expected and batch[field.name].null_count < len(batch):
                message = f"{columns[field.name]} of {what} holds {field.type} values"
                raise InputError(message, where=str(self.path), hint=self.hint)
        return batch

    @contextmanager
    def _name_errors(self, what: str) -> Iterator[None]:
        """Convert the driver's errors to an `InputError` that names what was read."""
        from adbc_driver_manager import Error

        try:
            yield
        except Error as error:
            # Batches that are written may fail as they are read, with the Python exception as a detail.
            text = str(error).splitlines()[0].partition(". Detail: Python exception")[0]
            reason = text.rpartition("[SQLite] ")[2][:200]
            raise _database_error(self.path, what, reason, self.hint) from None
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            if is_out_of_memory(error):
                raise
            # Errors of a cursor's batches come through Arrow and contain the driver's message.
            raise _database_error(self.path, what, str(error).splitlines()[0][:200], self.hint) from None


def _database_error(path: Path, what: str, reason: str, hint: str) -> InputError:
    if "locked" in reason or "busy" in reason:
        return InputError(
            "is locked by another program", where=str(path), hint="wait until the export has ended"
        )
    if "not a database" in reason:
        return InputError(f"is damaged: {reason}", where=str(path), hint=hint)
    return InputError(f"{what} cannot be read: {reason}", where=str(path), hint=hint)


def _check_header(path: Path, hint: str) -> bool:
    """Whether the file must be opened without locks; `InputError` if it is incomplete.

    The header has the page size at byte 16, the journal mode at 18, the number of pages at 28 (valid if the
    change counters at 24 and 92 agree): https://www.sqlite.org/fileformat.html, section 1.3.
    """
    try:
        with path.open("rb") as file:
            head, size = file.read(100), path.stat().st_size
        journals = {end: path.with_name(path.name + end) for end in ("-wal", "-journal")}
        unwritten = [end for end, journal in journals.items() if journal.is_file() and journal.stat().st_size]
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror or error}", where=str(path)) from None
    if not head:
        raise InputError("empty file", where=str(path), hint=hint)
    if len(head) < 100 or not head.startswith(MAGIC):
        raise InputError("is not a complete SQLite database", where=f"{path}: byte 0", hint=hint)
    if unwritten:
        message = f"is not finished: {path.name}{unwritten[0]} next to it has changes"
        raise InputError(message, where=str(path), hint="wait until the export has ended, or export it again")
    page = int.from_bytes(head[16:18], "big")
    expected = int.from_bytes(head[28:32], "big") * (1 << 16 if page == 1 else page)
    if head[24:28] == head[92:96] and size < expected:
        message = f"is cut: {size:,} of {expected:,} bytes"
        raise InputError(message, where=f"{path}: byte {size:,}", hint=hint)
    return head[18:20] == _WAL


def _select_sql(relation: str, columns: str, where: str) -> str:
    return f"SELECT {columns} FROM {relation}{f' WHERE {where}' if where else ''}"  # noqa: S608 - own names
