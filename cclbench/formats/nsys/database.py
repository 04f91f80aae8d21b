# SPDX-License-Identifier: Apache-2.0
"""An export of Nsight Systems as a SQLite file, and its texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from cclbench.formats.sqlite_file import SqliteFile
from cclbench.ground.errors import InputError

_LONGEST_NAME: Final = 1 << 20
EXPORT_AGAIN: Final = "export it again: nsys export --type sqlite --include-blobs=true <report>.nsys-rep"


class Database(SqliteFile):
    """An export opened for reading."""

    hint = EXPORT_AGAIN

    def string_ids(self, ids: Sequence[int]) -> dict[int, str]:
        """Texts of `StringIds` by id."""
        strings: dict[int, str] = {}
        for at in range(0, len(ids), 500):
            id_list = ",".join(map(str, ids[at : at + 500]))
            columns = f"id, length(value), CAST(substr(value, 1, {_LONGEST_NAME}) AS TEXT)"
            where = f"id IN ({id_list}) AND value IS NOT NULL"
            for key, length, value in self.select_rows("StringIds", columns, where):
                if length > _LONGEST_NAME:
                    place = f"{self.path}: table StringIds, id {key}"
                    raise InputError(
                        f"a name of {length:,} characters", where=place, hint="is the file damaged?"
                    )
                strings[key] = value
        return strings
