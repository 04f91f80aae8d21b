# SPDX-License-Identifier: Apache-2.0
"""A folder of tables as the SQLite database that the same export would be."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from cclbench.formats.nsys.database import Database
from cclbench.formats.table_damage import name_damage
from cclbench.record.files import parquet_file

_BATCH_ROWS: Final = 1 << 16
_TABLE: Final = re.compile(r"\w{1,100}")


class TableFolder(Database):
    """The tables of a folder in a private temporary database, each written when it is first asked for."""

    def __init__(self, path: Path) -> None:
        self._unread: dict[str, Path] = {}
        super().__init__(path)

    def _uri(self) -> str:
        return ""  # a database that SQLite deletes when it is closed

    def _list_tables(self) -> None:
        for table in sorted(self.path.parent.glob(f"*{self.path.suffix}")):
            if _TABLE.fullmatch(table.stem) and table.is_file():
                with _opened(table, self.hint) as file:
                    self.tables[table.stem] = dict.fromkeys(file.schema_arrow.names)
                self._unread[table.stem] = table

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
        """As of any database, of tables that are written first."""
        self._write_tables(" ".join((relation, where, *columns.values())))
        yield from super().query_batches(relation, columns, where, what=what, text=text, real=real)

    def _run_query(self, sql: str, what: str) -> list[tuple[Any, ...]]:
        self._write_tables(sql)
        return super()._run_query(sql, what)

    def _write_tables(self, sql: str) -> None:
        """Write the tables that are named in SQL."""
        for table in set(_TABLE.findall(sql)) & self._unread.keys():
            with _opened(self._unread[table], self.hint) as file:
                batches = pa.RecordBatchReader.from_batches(
                    schema := _stored_schema(file.schema_arrow),
                    (batch.cast(schema, safe=False) for batch in file.iter_batches(_BATCH_ROWS)),
                )
                with self._name_errors(f"table {table}"), self._connection.cursor() as cursor:
                    cursor.adbc_ingest(table, batches, mode="create")
            del self._unread[table]


class _ArrowFile:
    """An Arrow file, with what is needed of the methods of a Parquet file."""

    def __init__(self, source: pa.NativeFile) -> None:
        self._file = pa.ipc.open_file(source)
        self.schema_arrow: pa.Schema = self._file.schema

    def iter_batches(self, batch_size: int) -> Iterator[pa.RecordBatch]:
        """All rows."""
        del batch_size
        for number in range(self._file.num_record_batches):
            batch = self._file.get_batch(number)
            batch.validate(full=True)
            yield batch


@contextmanager
def _opened(path: Path, hint: str) -> Iterator[pq.ParquetFile | _ArrowFile]:
    """A table opened for reading; `InputError` if it is damaged."""
    with name_damage(path, hint):
        if path.suffix == ".arrow":
            with pa.memory_map(str(path)) as source:
                yield _ArrowFile(source)
        else:
            with parquet_file(path) as file:
                yield file


def _stored_schema(schema: pa.Schema) -> pa.Schema:
    """The types with which SQLite's export has the same values."""
    return pa.schema([pa.field(field.name, _stored_type(field.type)) for field in schema])


def _stored_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_null(kind):
        return pa.int64()
    if pa.types.is_floating(kind):
        return pa.float64()
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return pa.string()
    return kind
