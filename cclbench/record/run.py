# SPDX-License-Identifier: Apache-2.0
"""A run: its manifest, its tables, and the results computed from it."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass
from functools import cached_property, partial
from hashlib import sha256
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from cclbench.engine import SERIAL, Engine, Progress
from cclbench.ground.errors import InputError, UsageError
from cclbench.ground.evidence_schema import EVIDENCE
from cclbench.ground.file_names import stored_name
from cclbench.ground.schema import EVENTS, GROUPS, KINDS, RESULTS, TABLES
from cclbench.ground.scratch import scratch
from cclbench.ground.text import html_of
from cclbench.record import manifest
from cclbench.record.files import (
    UNFINISHED,
    TableFile,
    check_table,
    closed_at_end,
    opened_table,
    read_row_groups,
    read_table,
    unwritable_store_error,
)
from cclbench.record.inventory import (
    RESULTS_FILE,
    Verification,
    read_manifest,
    require_unchanged,
    verify,
)
from cclbench.record.manifest import Manifest, RankEntry, StoredFile
from cclbench.record.rank import Rank, checked_names
from cclbench.record.results import Results
from cclbench.record.rows import COMPACT, WORDS, builtins

if TYPE_CHECKING:
    import pandas as pd

    from cclbench.card import Card
    from cclbench.record.sql import QueryResult

_MADE: Final = b"cclbench.made"
_COMPUTED_FROM: Final = b"cclbench.run"
"""Footer key in results of the `content` of the run that they were computed from."""
_READ_ONLY: Final = (errno.EROFS, errno.EACCES, errno.EPERM)
_CARD: Final = "card.yaml"
ROW_GROUP: Final = 1 << 16
"""Result rows that are written and read at a time."""


class Made(msgspec.Struct, frozen=True):
    """How stored result rows were made: equal `by` implies equal rows; `window` is their policy."""

    by: str
    window: str


@dataclass(frozen=True, slots=True)
class Origin:
    """The remote run that a folder is a copy of; `sizes` are those of its objects by name."""

    place: str
    sizes: Mapping[str, int]
    put_results: Callable[[Path], None]


class Run:
    """A run in the store, with the metrics computed from it.

    `figures` are the result rows, `rows` the same as flat dicts, `results` the same as a pandas DataFrame,
    with the columns of `schema.RESULTS`.  Tables are Arrow tables (use `.to_pandas()` for DataFrames).
    `record` is the manifest.
    """

    figures = Results.from_tables(())

    def __init__(
        self,
        path: Path,
        figures: Results | None = None,
        window: str = "steps",
        origin: Origin | None = None,
    ) -> None:
        self.path, self.window, self.origin = path, window, origin
        if figures is not None:
            self.figures = figures

    def with_figures(self, figures: Results, window: str) -> Run:
        """The same run with result rows."""
        run = copy(self)  # with its manifest, if already read
        run.figures, run.window = figures, window
        vars(run).pop("rows", None)
        return run

    def with_record(self, record: Manifest) -> Run:
        """The same run with another manifest, for pages that leave this machine."""
        run = copy(self)
        vars(run)["record"] = record
        return run

    @property
    def id(self) -> str:
        """The run's name in its store; see `stored_name`."""
        return stored_name(self.path.name)

    @property
    def store(self) -> Path:
        """The store's folder."""
        return self.path.parent

    @cached_property
    def record(self) -> Manifest:
        """The manifest; `InputError` if it is damaged or of another version, or a file of the run changed.

        Presence and sizes of the files are checked; tables are checked when they are read.
        """
        if self.origin is not None:
            return read_manifest(self.path, self.origin.place, self.origin.sizes)
        return read_manifest(self.path, str(self.path))

    def is_current(self, fingerprint: str) -> bool:
        """Whether the run is of a source with that fingerprint, and all its files are unchanged.

        Otherwise the source must be read again.
        """
        try:
            return self.record.fingerprint == fingerprint
        except InputError:
            return False

    def verify_files(self, *, engine: Engine = SERIAL, progress: Progress | None = None) -> Verification:
        """Compare all files with their hashes in the manifest."""
        return verify(self.path, engine=engine, progress=progress)

    @cached_property
    def manifest(self) -> dict[str, Any]:
        """The manifest as a dict: source files and hashes, ranks, counts, what was left out and why."""
        return msgspec.json.decode(manifest.text(self.record), type=dict[str, Any])

    @cached_property
    def rows(self) -> list[dict[str, Any]]:
        """The result rows as flat dicts with the columns of `schema.RESULTS`."""
        return builtins(self.figures)

    @property
    def results(self) -> pd.DataFrame:
        """The result rows with the columns of `schema.RESULTS`, with the same types in pandas 2 and 3.

        Texts are `string[pyarrow]`, rank and step `Int32`: `pd.NA` where null.
        """
        import pandas as pd

        types = dict.fromkeys(RESULTS.names, "float64") | dict.fromkeys(WORDS, "string[pyarrow]")
        types |= {"rank": "Int32", "step": "Int32", "version": "int64"}
        return pd.DataFrame(self.rows, columns=RESULTS.names).astype(types)

    @property
    def ranks(self) -> list[int]:
        """Ranks that have a trace, ascending."""
        return [entry.rank for entry in self.record.ranks]

    @property
    def reader(self) -> str | None:
        """The reader of its traces; None without traces."""
        return next((entry.files[0].reader for entry in self.record.ranks), None)

    @property
    def inference_note(self) -> str | None:
        """A note on results that depend on inferred process groups; None without any."""
        return self.record.inference_note

    @cached_property
    def card(self) -> Card | None:
        """The run's workload card; None without one."""
        from cclbench.card import load_card

        # Includes the calibration that the card names.
        top_files = [file for file in self.record.stored if "/" not in file.path and file.rows is None]
        require_unchanged(self.path, top_files)
        return load_card(self.path / _CARD) if any(file.path == _CARD for file in top_files) else None

    @property
    def sources(self) -> list[Run]:
        """The same run from traces of further kinds, each as a separate run."""
        return [Run(self.path / "sources" / name) for name in self.record.sources]

    def rank(self, rank: int) -> Rank:
        """One rank of the run; `UsageError` if it has no trace."""
        entry = self._rank_entries.get(rank)
        if entry is None:
            raise UsageError(f"run {self.id} has no rank {rank}", hint=f"it has {self.ranks or 'no trace'}")
        return Rank(self.path, entry, self._clock_residual_ns)

    @cached_property
    def _rank_entries(self) -> dict[int, RankEntry]:
        return {entry.rank: entry for entry in self.record.ranks}

    @cached_property
    def _clock_residual_ns(self) -> float:
        return max((clock.residual_ns for clock in self.record.clocks.ranks), default=0.0)

    def events(
        self,
        *,
        rank: int | None = None,
        kinds: Sequence[str] | None = None,
        columns: Sequence[str] | None = None,
    ) -> pa.Table:
        """Rows of `schema.EVENTS`, of one rank or all, of some kinds or all, with a column `rank`."""
        chosen_kinds = checked_names("kind of event", KINDS if kinds is None else kinds, KINDS)
        all_columns = [*EVENTS.names, "rank"]
        names = checked_names("column of events", all_columns if columns is None else columns, all_columns)
        schema = pa.schema([EVENTS.field(name) for name in names if name != "rank"])
        tables = [schema.empty_table().append_column("rank", pa.array([], pa.int32()))]
        for number in self.ranks if rank is None else [rank]:
            table = pa.Table.from_batches(self.rank(number).events(chosen_kinds, schema.names), schema)
            tables.append(table.append_column("rank", pa.repeat(pa.scalar(number, pa.int32()), len(table))))
        return pa.concat_tables(tables).unify_dictionaries()

    def collectives(self) -> pa.Table:
        """Rows of `schema.COLLECTIVES` of all ranks, in rank order."""
        return self._concat_ranks("collectives")

    def operators(self) -> pa.Table:
        """Rows of `schema.OPERATORS` of all ranks, in rank order."""
        return self._concat_ranks("operators")

    def steps(self) -> pa.Table:
        """Rows of `schema.STEPS` of all ranks, in rank order."""
        return self._concat_ranks("steps")

    def _concat_ranks(self, name: str) -> pa.Table:
        return _concat_tables(name, (getattr(self.rank(rank), name)() for rank in self.ranks))

    def groups(self) -> pa.Table:
        """Rows of `schema.GROUPS`: process groups, stated by traces or inferred."""
        files = self._table_files("groups")
        return _concat_tables("groups", (read_table(path, GROUPS, listed=listed) for path, listed in files))

    def evidence(self, table: str) -> pa.Table:
        """Rows of a table of `EVIDENCE`, such as `counters`, from other files or from traces themselves."""
        (name,) = checked_names("table of evidence", [table], list(EVIDENCE))
        return _concat_tables(name, (read() for read in self.evidence_files(name)))

    def evidence_files(self, table: str) -> list[Callable[..., pa.Table]]:
        """Readers of the files of such a table; each takes the `columns` to read, by default all."""
        files = self._table_files(table)
        return [partial(read_table, path, TABLES[table], listed=listed) for path, listed in files]

    def _table_files(self, table: str) -> list[tuple[Path, StoredFile]]:
        return [(self.path / file.path, file) for file in self.tables.get(table, ())]

    @cached_property
    def tables(self) -> dict[str, list[StoredFile]]:
        """The files of each table, sorted by path; without those of `sources`."""
        by_table: dict[str, list[StoredFile]] = {}
        for file in sorted(self.record.files, key=attrgetter("path")):
            by_table.setdefault(file.path.partition("/")[0].partition(".")[0], []).append(file)
        return {name: files for name, files in by_table.items() if name in TABLES}

    def sql(
        self,
        query: str,
        *,
        times_as_text: bool = False,
        memory_bytes: int | None = None,
        disk_bytes: int | None = None,
        page: tuple[int, int] | None = None,
    ) -> QueryResult:
        """Query the run's tables (events, collectives, ...) and views (busy, waits, launches, ...) in DuckDB.

        Tables are those of `schema`; `cclbench list views` lists the views.

        `times_as_text` returns dates, times and intervals as text, since Python cannot represent all of
        DuckDB's.  Beyond `memory_bytes`, intermediate results go to disk, up to `disk_bytes`.  `page` (first
        row, number of rows) limits the rows returned.
        """
        from cclbench.record.sql import select

        return select(
            self,
            query,
            times_as_text=times_as_text,
            memory_bytes=memory_bytes,
            disk_bytes=disk_bytes,
            page=page,
        )

    @property
    def saved_results(self) -> Results | None:
        """The result rows of the last full computation, None before the first.

        Rows computed from another run, or before a file of this one changed, are ignored.
        """
        published = self.tables.get("results")
        path = self.path / RESULTS_FILE if published else self.results_file
        if path is None:
            return None
        return Results.from_tables(read_row_groups(path, COMPACT, WORDS, published[0] if published else None))

    @property
    def results_file(self) -> Path | None:
        """The file of `saved_results`; None if there is none."""
        path = self.path / RESULTS_FILE
        if published := self.tables.get("results"):
            check_table(path, RESULTS, listed=published[0])
            return path
        return path if self._results_metadata.get(_COMPUTED_FROM) == self.content.encode() else None

    @cached_property
    def content(self) -> str:
        """SHA-256 over the source's fingerprint and the hashes of all the run's files."""
        digest = sha256(self.record.fingerprint.encode())
        for file in self.record.files:
            digest.update(f"\n{file.path} {file.sha256}".encode())
        return digest.hexdigest()

    @property
    def _results_metadata(self) -> dict[bytes, bytes]:
        path = self.path / RESULTS_FILE
        if not path.is_file():
            return {}
        with opened_table(path, RESULTS) as file:
            return file.schema_arrow.metadata or {}

    def saved_value(self, metric: str) -> float | None:
        """The run's value of a metric in the last full computation, None if there is none."""
        if (path := self.results_file) is None:
            return None
        parts = ("rank", "step", "group", "collective", "category", "stat")
        condition = pc.field("metric") == metric
        for name in parts:
            condition &= pc.field(name).is_null()
        with opened_table(path, RESULTS) as file:
            for batch in file.iter_batches(columns=["metric", "value", *parts]):
                values: list[float | None] = batch.filter(condition)["value"].to_pylist()
                if values:
                    return values[0]
        return None

    @property
    def saved_by(self) -> Made | None:
        """How the saved rows were made, as given to `save_results`; None if unknown."""
        provenance = None if self.results_file is None else self._results_metadata.get(_MADE)
        with suppress(msgspec.DecodeError):  # written by another version
            return None if provenance is None else msgspec.json.decode(provenance, type=Made)
        return None

    def save_results(self, figures: Results, *, provenance: Made | None = None) -> None:
        """Save result rows with the run, for `sql`, in place of earlier ones.

        A read-only store is left unchanged.
        """
        metadata = {_COMPUTED_FROM: self.content.encode()}
        if provenance is not None:
            metadata[_MADE] = msgspec.json.encode(provenance)
        try:
            with scratch(self.path.parent, UNFINISHED) as folder:
                write_results(folder / RESULTS_FILE, figures, metadata)
                (folder / RESULTS_FILE).replace(self.path / RESULTS_FILE)
        except OSError as error:
            if error.errno not in _READ_ONLY:
                raise unwritable_store_error(self.path, error) from None
            return
        if self.origin is not None:
            self.origin.put_results(self.path / RESULTS_FILE)

    def _repr_html_(self) -> str:
        return html_of(self)

    def __repr__(self) -> str:
        return f"<Run {self.id}: {len(self.ranks)} ranks, {len(self.figures)} result rows>"


def write_results(path: Path, figures: Results, metadata: Mapping[bytes, bytes]) -> None:
    """Write result rows as a table, with metadata in its footer."""
    schema = RESULTS.with_metadata({**(RESULTS.metadata or {}), **metadata})
    with closed_at_end(TableFile(path, schema, WORDS)) as file:
        for part in figures.slices(ROW_GROUP):
            file.write(part)


def _concat_tables(name: str, tables: Iterable[pa.Table]) -> pa.Table:
    return pa.concat_tables([TABLES[name].empty_table(), *tables]).unify_dictionaries()
