# SPDX-License-Identifier: Apache-2.0
"""Tables on disk: Parquet files with bounded row groups, page checksums and a hash of the content."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from cclbench.ground.errors import ChangedRunError, InputError
from cclbench.ground.out_of_memory import is_out_of_memory
from cclbench.ground.schema import (
    CATEGORIES,
    COLLECTIVE_KINDS,
    COPY_DIRECTIONS,
    EVENTS,
    GROUP_SOURCES,
    KINDS,
    PHASES,
    SIDES,
    TABLES,
    WINDOW_SOURCES,
)
from cclbench.ground.table_schema import file_schema
from cclbench.record.manifest import MANIFEST, StoredFile, source_command_at

UNFINISHED: Final = ".unfinished-"
"""Prefix of temporary folders in a store."""
_VOCABULARIES: Final[dict[str, dict[str, tuple[str, ...]]]] = {
    **{table: {} for table in TABLES},
    "events": {
        "side": SIDES,
        "kind": KINDS,
        "category": CATEGORIES,
        "copy_direction": COPY_DIRECTIONS,
        "phase": PHASES,
    },
    "operators": {"phase": PHASES},
    "collectives": {"kind": COLLECTIVE_KINDS},
    "groups": {"source": GROUP_SOURCES},
    "steps": {"source": WINDOW_SOURCES},
}
"""Allowed words, by table and column."""
CONTENT: Final = b"cclbench.content"
"""Footer key of the SHA-256 of the bytes before the footer."""
SMALL_ROWS: Final = 8192
"""Rows up to which a file is read by one thread: several would take longer."""
_BUFFER: Final = 1 << 18
"""Bytes of a table that are hashed and written at a time."""
_COUNTED: Final = {"collectives": ("instance", "collective")}
"""Columns that count from 0, by table."""


def unwritable_store_error(folder: Path, error: OSError) -> InputError:
    """The error for a store that cannot be written: no permission, disk full, a file in the way.

    If `error` names a file outside of the store, the error is about a source that became unreadable.
    """
    reason = error.strerror or str(error)
    file = error.filename
    if isinstance(file, str) and not Path(file).absolute().is_relative_to(folder.absolute()):
        return InputError(f"cannot be read: {reason}", where=file)
    return InputError(
        f"the store cannot be written: {reason}",
        where=str(folder),
        hint="choose another with --store, or free some space",
    )


def refuse_links(path: Path) -> None:
    """`InputError` if a file of a run, or its folder, is a link: it may lead out of the run."""
    for place in (path, path.parent):
        if place.is_symlink():
            raise InputError("is a link, which runs do not contain", where=str(place), hint="delete the run")


@contextmanager
def parquet_file(path: Path, words: Sequence[str] = ()) -> Iterator[pq.ParquetFile]:
    """A Parquet file open for reading; columns `words` are read as dictionaries.

    Page checksums are verified.  Arrow accepts names that are not UTF-8 only as bytes.
    """
    with (
        pa.OSFile(os.fsencode(path)) as source,
        pq.ParquetFile(source, read_dictionary=list(words), page_checksum_verification=True) as file,
    ):
        yield file


def read_columns(paths: Iterable[Path], columns: Sequence[str], schema: pa.Schema) -> pa.Table:
    """Columns of files of a schema, concatenated, each in one chunk with one dictionary.

    They are read on this thread: each of Arrow's threads keeps memory.
    """
    tables = [pa.schema([schema.field(name) for name in columns]).empty_table()]
    for path in paths:
        with parquet_file(path) as file:
            tables.append(file.read(columns=list(columns), use_threads=False).select(list(columns)))
    return pa.concat_tables(tables).unify_dictionaries().combine_chunks()


@contextmanager
def opened_table(
    path: Path, schema: pa.Schema, words: Sequence[str] = (), listed: StoredFile | None = None
) -> Iterator[pq.ParquetFile]:
    """An open Parquet file of that schema; `InputError` if it is damaged, also while it is read.

    Columns `words` are read as dictionaries, as in the schema.  `listed` is the file's entry in the run's
    manifest.
    """
    refuse_links(path)
    with reading(path), parquet_file(path, words) as file:
        _require_schema(file, schema)
        if listed is not None:
            _require_listed(file, listed, path)
        yield file


def content_hash(file: pq.ParquetFile) -> str | None:
    """The hash of a table's content in its footer."""
    stated: bytes | None = (file.metadata.metadata or {}).get(CONTENT)
    return None if stated is None else stated.decode("ascii", "replace")


def _require_listed(file: pq.ParquetFile, listed: StoredFile, path: Path) -> None:
    rows = file.metadata.num_rows
    if rows != listed.rows:
        raise damaged(path, f"{rows:,} rows, of which {listed.rows:,} were written")
    if content_hash(file) != listed.content:
        raise damaged(path, "its content is not what was written: it may be another run's or rank's")


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn errors of reading a damaged Parquet file into `InputError`."""
    try:
        yield
    except (OSError, pa.ArrowException, OverflowError) as error:
        if is_out_of_memory(error):
            raise
        first = next(iter(str(error).splitlines()), type(error).__name__)
        raise damaged(path, first) from None


def check_table(
    path: Path, schema: pa.Schema, words: Sequence[str] = (), listed: StoredFile | None = None
) -> None:
    """`InputError` if a file is not a table of that schema; its rows are not read.  See `opened_table`."""
    with opened_table(path, schema, words, listed):
        pass


def damaged(path: Path, why: str) -> ChangedRunError:
    """The error for a file of a run that differs from what was written."""
    hint = "read its source again: cclbench ingest SOURCE"
    for folder in path.parents[:4]:
        if command := source_command_at(folder / MANIFEST):
            hint = f"remove the run and read its source again: cclbench remove {folder.name}; {command}"
    return ChangedRunError(f"damaged table: {why}", where=str(path), hint=hint)


def _require_schema(file: pq.ParquetFile, schema: pa.Schema) -> None:
    """`ArrowInvalid` if columns are missing, duplicate, nullable or of another type."""
    actual = file.schema_arrow
    if actual.equals(schema):
        return
    if actual.names != schema.names:
        raise pa.ArrowInvalid(f"its columns are {', '.join(actual.names)[:200]}")
    for field in schema:
        if (column := actual.field(field.name)).type != field.type or column.nullable != field.nullable:
            raise pa.ArrowInvalid(f"column {column}, not {field}")


def checked_rows(table: pa.Table | pa.RecordBatch, schema: pa.Schema, path: Path) -> Any:
    """The rows, unchanged; `InputError` for nulls, words or numbers that a column may not contain."""
    table_name = schema.metadata[b"cclbench.table"].decode()
    words = _VOCABULARIES[table_name]
    for name in table.schema.names:
        column = table[name]
        if not schema.field(name).nullable and column.null_count:
            raise damaged(path, f"column {name} has nulls")
        chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
        if name in words and any(set(chunk.dictionary.to_pylist()) - set(words[name]) for chunk in chunks):
            raise damaged(path, f"column {name} holds an unknown word")
        if name in _COUNTED.get(table_name, ()) and any(
            len(chunk) and (pc.min(chunk).as_py() or 0) < 0 for chunk in chunks
        ):
            raise damaged(path, f"column {name} holds a number below 0")
    return table


def read_table(
    path: Path,
    schema: pa.Schema,
    *,
    columns: Sequence[str] | None = None,
    listed: StoredFile | None = None,
) -> pa.Table:
    """All rows of a run's file, with all columns or the given ones; see `opened_table`."""
    with opened_table(path, schema, listed=listed) as file:
        names = None if columns is None else list(columns)
        rows = file.read(names, use_threads=file.metadata.num_rows > SMALL_ROWS)
        return checked_rows(rows, schema, path)


def read_row_groups(
    path: Path, schema: pa.Schema, words: Sequence[str] = (), listed: StoredFile | None = None
) -> Iterator[pa.Table]:
    """All rows of a run's file, a row group at a time; see `opened_table`."""
    with opened_table(path, schema, words, listed) as file:
        for group in range(file.num_row_groups):
            threads = file.metadata.row_group(group).num_rows > SMALL_ROWS
            yield checked_rows(file.read_row_group(group, use_threads=threads), schema, path)


def write_table(path: Path, table: pa.Table) -> None:
    """Write a small table as one file."""
    with closed_at_end(TableFile(path, table.schema)) as file:
        file.write(table)


def with_columns(table: pa.Table, schema: pa.Schema, columns: Mapping[str, Any]) -> pa.Table:
    """The table with some columns replaced, by name."""
    for name, values in columns.items():
        table = table.set_column(schema.get_field_index(name), schema.field(name), values)
    return table


def _with_schema(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The table with the schema's types and metadata."""
    if table.schema.equals(schema):
        return pa.Table.from_arrays(table.columns, schema=schema)  # a cast takes ten times as long
    return table.cast(schema)


def _with_distinct_words(table: pa.Table) -> pa.Table:
    """The table with each word once in a dictionary.

    For a word that a dictionary has twice, Arrow's writer leaves room in the file that it fills with whatever
    this process's memory held there, and it writes the rows' texts instead of their codes.
    """
    for place, field in enumerate(table.schema):
        if pa.types.is_dictionary(field.type):
            chunks = table.column(place).chunks
            if any(len(chunk.dictionary.unique()) < len(chunk.dictionary) for chunk in chunks):
                distinct = pa.chunked_array(map(_distinct_words, chunks), field.type)
                table = table.set_column(place, field, distinct)
    return table


def _distinct_words(texts: pa.DictionaryArray) -> pa.DictionaryArray:
    words = texts.dictionary.unique()
    code = pc.index_in(texts.dictionary, words).take(texts.indices)
    return pa.DictionaryArray.from_arrays(code.cast(texts.indices.type), words)


class _HashedFile:
    """A file that is written sequentially, with the hash of its content."""

    closed = False

    def __init__(self, path: Path) -> None:
        self._file = pa.OSFile(os.fsencode(path), "wb")
        self.sha256 = sha256()

    def write(self, data: bytes) -> None:
        self.sha256.update(data)
        self._file.write(data)

    def tell(self) -> int:
        return int(self._file.tell())

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        self._file.close()


class TableFile:
    """Writes rows of a schema to a Parquet file, in row groups of bounded size.

    Columns `words`, by default the schema's dictionaries, are written as dictionaries.
    """

    def __init__(self, path: Path, schema: pa.Schema, words: Sequence[str] | None = None) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path, self._schema, self._empty = path, file_schema(schema), True
        if words is None:
            words = [field.name for field in schema if pa.types.is_dictionary(field.type)]
        self._file = _HashedFile(path)
        self._sink = pa.output_stream(self._file, buffer_size=_BUFFER)
        # Statistics let a query about a time window skip row groups.
        timed = [name for name in ("start_ns",) if name in schema.names]
        self._writer = pq.ParquetWriter(
            self._sink,
            self._schema,
            use_dictionary=list(words),
            write_statistics=timed or False,
            write_page_checksum=True,
        )

    def write(self, table: pa.Table) -> None:
        """Append rows as one row group."""
        self._empty = False
        rows = _with_schema(_with_distinct_words(table), self._schema)
        self._writer.write_table(rows, row_group_size=max(len(rows), 1))

    def close(self) -> None:
        """Finish the file, with at least one row group: Arrow before 19 cannot read a file without."""
        if self._empty:
            self.write(self._schema.empty_table())
        self._sink.flush()
        self._writer.add_key_value_metadata({CONTENT: self._file.sha256.hexdigest()})
        self._writer.close()
        self._sink.close()

    def abandon(self) -> None:
        """Close the file unfinished; its folder is about to be removed."""
        self._writer.is_open = False  # or it writes again when it is garbage collected
        with suppress(OSError):
            self._sink.close()


class Writer(Protocol):
    """A file that is written in parts, and at the end closed or abandoned."""

    def close(self) -> None:
        """Finish the file."""
        ...

    def abandon(self) -> None:
        """Leave the file unfinished."""
        ...


AnyWriter = TypeVar("AnyWriter", bound=Writer)


@contextmanager
def closed_at_end(writer: AnyWriter) -> Iterator[AnyWriter]:
    """The writer, closed at the end of the block, or abandoned on failure."""
    try:
        yield writer
        writer.close()
    except BaseException:
        writer.abandon()
        raise


class EventFile(TableFile):
    """A rank's events of one kind."""

    def __init__(self, folder: Path, kind: str, part: int, note: str = "") -> None:
        super().__init__(folder / f"{kind}-{part:03d}{note}.parquet", EVENTS)
