# SPDX-License-Identifier: Apache-2.0
"""Small files written on the spot: gzip with a name inside, databases, fields of protobuf."""

from __future__ import annotations

import gzip
import io
import sqlite3
from contextlib import closing
from pathlib import Path

from helpers.xplane_files import hlo_field as sized  # noqa: F401 - for tests of redaction


def gz(data: bytes, name: str = "", mtime: int = 5) -> bytes:
    """A gzip file, with its name in its header where one is given."""
    made = io.BytesIO()
    with gzip.GzipFile(filename=name, mode="wb", fileobj=made, mtime=mtime) as file:
        file.write(data)
    return made.getvalue()


def sqlite_with(path: Path, *statements: str) -> Path:
    rows = "(1, '/home/zoe4/x'), (2, 'gemm'), (3, CAST(x'fffe2f' AS TEXT))"
    strings = "CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT NOT NULL)"
    with closing(sqlite3.connect(path)) as base, base:
        for statement in (strings, f"INSERT INTO StringIds VALUES {rows}", *statements):  # noqa: S608
            base.execute(statement)
    return path
