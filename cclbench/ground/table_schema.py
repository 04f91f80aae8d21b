# SPDX-License-Identifier: Apache-2.0
"""Schemas of tables, in memory and in Parquet files; the two differ before Arrow 20."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

VERSION: Final = 1
STORED_WORD: Final = pa.dictionary(pa.int8(), pa.string())
"""A word of a small vocabulary, in files."""
NAME: Final = pa.dictionary(pa.int32(), pa.string())
"""A word of a large vocabulary."""
WORD: Final = STORED_WORD if int(pa.__version__.split(".")[0]) >= 20 else NAME
"""A word of a small vocabulary, in memory: before Arrow 20, Parquet gives dictionaries int32 indices."""
_STORED: Final[dict[str, pa.Schema]] = {}


def required(name: str, kind: pa.DataType, meaning: str, unit: str = "") -> pa.Field:
    """A column without nulls."""
    return pa.field(name, kind, nullable=False, metadata={"meaning": meaning, "unit": unit})


def nullable(name: str, kind: pa.DataType, meaning: str, unit: str = "") -> pa.Field:
    """A column that may have nulls."""
    return required(name, kind, meaning, unit).with_nullable(True)


def table_schema(table: str, *fields: pa.Field) -> pa.Schema:
    """The in-memory schema of a table, from its fields as they are in files."""
    schema = pa.schema(fields, metadata={"cclbench.table": table, "cclbench.schema": str(VERSION)})
    _STORED[table] = pa.schema([field.remove_metadata() for field in schema], metadata=schema.metadata)
    in_memory = (field.with_type(WORD) if field.type == STORED_WORD else field for field in schema)
    return pa.schema(in_memory, metadata=schema.metadata)


def file_schema(schema: pa.Schema) -> pa.Schema:
    """The schema of a table's files, independent of the version of Arrow, without the meanings of columns."""
    return _STORED[schema.metadata[b"cclbench.table"].decode()].with_metadata(schema.metadata)
