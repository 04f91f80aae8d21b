# SPDX-License-Identifier: Apache-2.0
"""One rank of a run: its entry in the manifest and its tables, with a cache of decoded columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from operator import attrgetter
from pathlib import Path
from typing import Final

import pyarrow as pa

from cclbench.ground.errors import UsageError, near
from cclbench.ground.schema import EVENTS, KINDS, OPERATORS, TABLES
from cclbench.record.facts import TraceFacts
from cclbench.record.files import checked_rows, damaged, opened_table, read_table
from cclbench.record.manifest import RankEntry, StoredFile

BATCH_ROWS: Final = 1 << 16
"""Maximum rows of a batch of events."""
MOST_KEPT: Final = 64 << 20
"""Size of the column cache, in bytes."""
_CELL: Final = 8
"""Maximum bytes of a value: numbers, and codes of words."""


class Rank:
    """One rank of a run: its entry in the manifest and its tables.

    Columns of events and operators are cached once read, up to `room` bytes (by default none); rows are the
    same with and without the cache, in batches that span files or not.
    """

    def __init__(self, path: Path, entry: RankEntry, clock_residual_ns: float, *, room: int = 0) -> None:
        self.path, self.entry = path, entry
        self._room = room
        self._kept: dict[str, pa.Table] = {}
        """Cached columns by kind of event, each in one chunk."""
        self.clock_residual_ns = clock_residual_ns
        """Residual of the clock correction at the ends of collectives, of the worst rank."""

    def with_column_cache(self) -> Rank:
        """The same rank with a column cache, for several readers."""
        return Rank(self.path, self.entry, self.clock_residual_ns, room=MOST_KEPT)

    @property
    def facts(self) -> TraceFacts:
        """Metadata of the rank's trace."""
        return self.entry.facts

    @property
    def rows(self) -> int:
        """Number of events."""
        return sum(self.entry.rows.values())

    def events(self, kinds: Sequence[str], columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Columns of the events of some kinds, in bounded batches and a fixed order."""
        for kind in checked_names("kind of event", kinds, KINDS):
            rows = 0
            for batch in self._kind_batches(kind, columns):
                rows += len(batch)
                yield batch
            if rows != (written := self.entry.rows.get(kind, 0)):
                folder = self.path / "events" / f"rank={self.entry.rank}"
                raise damaged(folder, f"{rows:,} rows of kind {kind}, of which {written:,} were written")

    @cached_property
    def _event_files(self) -> dict[str, list[StoredFile]]:
        """The files of each kind of event, in order."""
        files: dict[str, list[StoredFile]] = {}
        folder = f"events/rank={self.entry.rank}/"
        for file in sorted(self.entry.stored, key=attrgetter("path")):
            if file.path.startswith(folder):
                files.setdefault(file.path.removeprefix(folder).partition("-")[0], []).append(file)
        return files

    def _kind_batches(self, kind: str, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Batches of some columns of a kind of events."""
        files = self._event_files.get(kind, [])
        if files and self._cache_columns(kind, files, columns):
            yield from self._kept[kind].select(list(columns)).to_batches(BATCH_ROWS)
            return
        for file in files:
            path = self.path / file.path
            with opened_table(path, EVENTS, listed=file) as table:
                for batch in table.iter_batches(BATCH_ROWS, columns=list(columns)):
                    yield checked_rows(batch, EVENTS, path)

    def _cache_columns(self, kind: str, files: Sequence[StoredFile], columns: Sequence[str]) -> bool:
        """Read columns of a kind of events into the cache, if there is room; whether it has them all."""
        kept = self._kept.get(kind)
        has = set() if kept is None else set(kept.column_names)
        if has.issuperset(columns):
            return True
        rows = sum(file.rows or 0 for file in files)
        # Few rows are read with all columns: to open their files again would take longer.
        names = [name for name in (EVENTS.names if rows <= BATCH_ROWS else columns) if name not in has]
        size = rows * len(names) * _CELL
        if size > self._room:
            return False
        self._room -= size
        tables = [read_table(self.path / file.path, EVENTS, columns=names, listed=file) for file in files]
        read = pa.concat_tables(tables).unify_dictionaries().combine_chunks()
        if kept is not None:
            fields, arrays = [*kept.schema, *read.schema], [*kept.columns, *read.columns]
            read = pa.Table.from_arrays(arrays, schema=pa.schema(fields))
        self._kept[kind] = read
        return True

    def collectives(self) -> pa.Table:
        """The rank's rows of `schema.COLLECTIVES`."""
        return self._read_table("collectives")

    def operators(self, columns: Sequence[str] | None = None) -> pa.Table:
        """The rank's rows of `schema.OPERATORS`, with all columns or the given ones."""
        if self._cached_operators is None:
            return self._read_table("operators", columns)
        return self._cached_operators if columns is None else self._cached_operators.select(list(columns))

    @cached_property
    def _cached_operators(self) -> pa.Table | None:
        """All columns, if there is room for them."""
        size = self.entry.operators * len(OPERATORS) * _CELL
        if size > self._room:
            return None
        self._room -= size
        return self._read_table("operators")

    def steps(self) -> pa.Table:
        """The rank's rows of `schema.STEPS`."""
        return self._read_table("steps")

    def _read_table(self, name: str, columns: Sequence[str] | None = None) -> pa.Table:
        path = f"{name}/rank={self.entry.rank}.parquet"
        listed = next((file for file in self.entry.stored if file.path == path), None)
        if listed is None:
            raise damaged(self.path / path, "the manifest does not list it")
        return read_table(self.path / path, TABLES[name], columns=columns, listed=listed)


def checked_names(noun: str, names: str | Sequence[str], choices: Sequence[str]) -> list[str]:
    """The names as a list, also of a single one; `UsageError` for an unknown one."""
    listed = [names] if isinstance(names, str) else list(names)
    for name in listed:
        if name not in choices:
            raise UsageError(f"unknown {noun} {name!r}", hint=near(name, choices))
    return listed
