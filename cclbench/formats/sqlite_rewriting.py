# SPDX-License-Identifier: Apache-2.0
"""Redact a database by the tables and columns that its reader reads, written anew row by row."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from cclbench.formats.files import display_path, replace_atomically, require_uncompressed
from cclbench.formats.rewriting import UNREAD, Redactor
from cclbench.ground.errors import InputError
from cclbench.ground.units import MIB

_LONGEST: Final = 64 * MIB
_TYPES: Final = ("INTEGER", "REAL", "TEXT")
_ROWS: Final = 1 << 14


def rewrite_database(
    path: Path,
    target: Path | None,
    redactor: Redactor,
    tables: Mapping[str, Sequence[str]],
    *,
    hint: str,
) -> None:
    """Write those of the `tables` that the file has, with the columns listed; texts are redacted.

    A table without columns stays as a name.  Blobs become null.  `InputError` with `hint` for a damaged
    database.
    """
    uri = f"{require_uncompressed(path).absolute().as_uri()}?mode=ro&immutable=1"
    try:
        with closing(sqlite3.connect(uri, uri=True)) as old:
            old.execute("PRAGMA trusted_schema=OFF")
            old.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST)
            if target is None:
                return
            with replace_atomically(path, target) as scratch, closing(sqlite3.connect(scratch)) as new:
                for table, columns in tables.items():
                    _copy_table(old, new, table, columns, redactor)
                new.commit()
    except (sqlite3.Error, UnicodeDecodeError) as error:
        reason = str(error).splitlines()[0][:200]
        raise InputError(f"cannot be redacted: {reason}", where=display_path(path), hint=hint) from None


def _copy_table(
    old: sqlite3.Connection,
    new: sqlite3.Connection,
    table: str,
    columns: Sequence[str],
    redactor: Redactor,
) -> None:
    """Copy a table's columns; a key of integers stays one."""
    described = old.execute("SELECT name, upper(type), pk FROM pragma_table_info(?)", [table]).fetchall()
    kept_columns = [(name, kind, key) for name, kind, key in described if name in columns]
    redactor.count(table, {UNREAD: len(described) - len(kept_columns)})
    if not described:
        return
    if not kept_columns:
        new.execute(f'CREATE TABLE "{table}" (id)')
        return
    keys = [name for name, _, key in kept_columns if key]
    typed = [
        f'"{name}" {kind if kind in _TYPES else ""}'
        + (" PRIMARY KEY" if keys == [name] and kind == "INTEGER" else "")
        for name, kind, _ in kept_columns
    ]
    new.execute(f'CREATE TABLE "{table}" ({", ".join(typed)})')
    names = [name for name, *_ in kept_columns]
    listed, places = ", ".join(f'"{name}"' for name in names), ", ".join("?" * len(kept_columns))
    rows = old.execute(f'SELECT {listed} FROM "{table}"')  # noqa: S608 - the reader's own names
    while batch := rows.fetchmany(_ROWS):
        published = (tuple(_published(row, names, table, redactor)) for row in batch)
        new.executemany(f'INSERT INTO "{table}" VALUES ({places})', published)  # noqa: S608 - as above


def _published(row: tuple[Any, ...], names: list[str], table: str, redactor: Redactor) -> Iterator[Any]:
    for value, name in zip(row, names, strict=True):
        if isinstance(value, str):
            text, counts = redactor.text(value, name)
            redactor.count(f"{table}.{name}", counts)
            yield text
        elif isinstance(value, bytes):
            redactor.count(f"{table}.{name}", Counter({UNREAD: 1}))
            yield None
        else:
            yield value
