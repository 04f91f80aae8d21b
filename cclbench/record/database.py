# SPDX-License-Identifier: Apache-2.0
"""DuckDB as the engine of relations: joins, orders and groups of any size, in bounded memory."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from cclbench.ground.errors import InputError
from cclbench.ground.scratch import temporary

if TYPE_CHECKING:
    import duckdb

MEMORY_BYTES: Final = 256_000_000
"""What a connection holds at most before it spills to temporary files."""
MOST_THREADS: Final = 4
"""Each takes a part of that memory for itself."""


@contextmanager
def database() -> Iterator[duckdb.DuckDBPyConnection]:
    """An empty database among the temporary files, gone at the end; `InputError` where these find no room."""
    import duckdb

    with temporary() as folder:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        settings = {
            "memory_limit": f"{MEMORY_BYTES} B",
            "threads": min(cores, MOST_THREADS),
            "temp_directory": str(folder / "spilled"),
        }
        try:
            with duckdb.connect(str(folder / "tables.db"), config=settings) as connection:
                yield connection
        except duckdb.IOException as error:
            raise InputError(
                f"temporary files cannot be written: {str(error).splitlines()[0]}",
                where=str(folder.parent),
                hint="make room there, or name a folder on a larger disk with TMPDIR",
            ) from None
