# SPDX-License-Identifier: Apache-2.0
"""One rank of a run: its entry in the manifest and its tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from operator import attrgetter
from pathlib import Path
from typing import Final

import pyarrow as pa

from cclbench.errors import UsageError, near
from cclbench.record.facts import TraceFacts
from cclbench.record.files import damaged, opened_table, read_table, whole
from cclbench.record.manifest import RankEntry, StoredFile
from cclbench.schema import EVENTS, KINDS, TABLES

BATCH_ROWS: Final = 1 << 16
"""Rows of a batch of events at most."""


class Rank:
    """One rank of a run: its entry in the manifest and its tables, as analyzers read them."""

    def __init__(self, path: Path, entry: RankEntry, clock_residual_ns: float) -> None:
        self.path, self.entry = path, entry
        self.clock_residual_ns = clock_residual_ns
        """What the ranks' clocks leave unexplained of the ends of collectives: the worst rank's."""

    @property
    def facts(self) -> TraceFacts:
        """What the rank's trace says of itself."""
        return self.entry.facts

    @property
    def rows(self) -> int:
        """How many events it has."""
        return sum(self.entry.rows.values())

    def events(self, kinds: Sequence[str], columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Those columns of the events of those kinds, in bounded batches, in a fixed order."""
        for kind in checked_names("kind of event", kinds, KINDS):
            rows = 0
            for file in self._files.get(kind, ()):
                for batch in self._batches(file, columns):
                    rows += len(batch)
                    yield batch
            if rows != (written := self.entry.rows.get(kind, 0)):
                folder = self.path / "events" / f"rank={self.entry.rank}"
                raise damaged(folder, f"{rows:,} rows of kind {kind}, of which {written:,} were written")

    @cached_property
    def _files(self) -> dict[str, list[StoredFile]]:
        """The files of each kind of event, in order."""
        found: dict[str, list[StoredFile]] = {}
        folder = f"events/rank={self.entry.rank}/"
        for file in sorted(self.entry.stored, key=attrgetter("path")):
            if file.path.startswith(folder):
                found.setdefault(file.path.removeprefix(folder).partition("-")[0], []).append(file)
        return found

    def _batches(self, file: StoredFile, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Those columns of one file."""
        path = self.path / file.path
        with opened_table(path, EVENTS, listed=file) as table:
            for batch in table.iter_batches(BATCH_ROWS, columns=list(columns)):
                yield whole(batch, EVENTS, path)

    def collectives(self) -> pa.Table:
        """The rank's rows of `schema.COLLECTIVES`."""
        return self._table("collectives")

    def operators(self, columns: Sequence[str] | None = None) -> pa.Table:
        """The rank's rows of `schema.OPERATORS`, of all columns or of those."""
        return self._table("operators", columns)

    def steps(self) -> pa.Table:
        """The rank's rows of `schema.STEPS`."""
        return self._table("steps")

    def _table(self, name: str, columns: Sequence[str] | None = None) -> pa.Table:
        path = f"{name}/rank={self.entry.rank}.parquet"
        listed = next((file for file in self.entry.stored if file.path == path), None)
        if listed is None:
            raise damaged(self.path / path, "the manifest does not list it")
        return read_table(self.path / path, TABLES[name], columns=columns, listed=listed)


def checked_names(noun: str, names: str | Sequence[str], known: Sequence[str]) -> list[str]:
    """The names, of which a lone one is a list of one; `UsageError` for one that is not known."""
    listed = [names] if isinstance(names, str) else list(names)
    for name in listed:
        if name not in known:
            raise UsageError(f"{name!r} is no {noun}", hint=near(name, known))
    return listed
