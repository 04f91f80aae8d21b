# SPDX-License-Identifier: Apache-2.0
"""DuckDB as the engine of relations: joins, orders and groups of any size, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from cclbench.engine import available_cores
from cclbench.ground.scratch import no_space_error, temporary_folder

if TYPE_CHECKING:
    import duckdb

MEMORY_BYTES: Final = 256_000_000
"""What a connection holds at most before it spills to temporary files."""
MOST_THREADS: Final = 4
"""Each takes a part of that memory for itself."""


@contextmanager
def database() -> Iterator[duckdb.DuckDBPyConnection]:
    """An empty database in memory, which spills to temporary files; `InputError` where these find no room."""
    import duckdb

    with temporary_folder() as folder:
        settings = {
            "memory_limit": f"{MEMORY_BYTES} B",
            "threads": min(available_cores(), MOST_THREADS),
            "temp_directory": str(folder),
        }
        try:
            with duckdb.connect(config=settings) as connection:
                yield connection
        except duckdb.IOException as error:
            raise no_space_error(error) from None
