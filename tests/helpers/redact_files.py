# SPDX-License-Identifier: Apache-2.0
"""Small files written on the spot: gzip with a name inside, databases, fields of protobuf."""

from __future__ import annotations

import gzip
import io
import sqlite3
from contextlib import closing
from pathlib import Path


def gz(data: bytes, name: str = "", mtime: int = 5) -> bytes:
    """A gzip file, with its name in its header where one is given."""
    made = io.BytesIO()
    with gzip.GzipFile(filename=name, mode="wb", fileobj=made, mtime=mtime) as file:
        file.write(data)
    return made.getvalue()


def sqlite_with(path: Path, *statements: str) -> Path:
    """A database made by these statements."""
    with closing(sqlite3.connect(path)) as base, base:
        base.execute("CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT NOT NULL)")
        base.execute(
            "INSERT INTO StringIds VALUES (1, '/home/zoe4/x'), (2, 'gemm'), (3, CAST(x'fffe2f' AS TEXT))"
        )
        for statement in statements:
            base.execute(statement)
    return path


def sized(number: int, data: bytes) -> bytes:
    """A field of bytes shorter than 16,384."""
    size = bytes([len(data)]) if len(data) < 0x80 else bytes([len(data) & 0x7F | 0x80, len(data) >> 7])
    return bytes([number << 3 | 2]) + size + data
