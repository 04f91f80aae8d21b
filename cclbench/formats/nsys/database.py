# SPDX-License-Identifier: Apache-2.0
"""An export of Nsight Systems as a SQLite file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from cclbench.formats.sqlite_file import SqliteFile

EXPORT_AGAIN: Final = "export it again: nsys export --type sqlite --include-blobs=true <report>.nsys-rep"


class Database(SqliteFile):
    """An export opened for reading."""

    hint = EXPORT_AGAIN

    def string_ids(self, ids: Sequence[int]) -> dict[int, str]:
        """Texts of `StringIds` by id."""
        return self.texts_by_id("StringIds", "value", ids)
