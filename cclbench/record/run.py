# SPDX-License-Identifier: Apache-2.0
"""A run: what everybody holds, from its manifest and tables to the results computed from it."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from cclbench.errors import UsageError, near
from cclbench.file_names import stored_name
from cclbench.record import manifest
from cclbench.record.facts import TraceFacts
from cclbench.record.files import (
    UNFINISHED,
    damaged,
    opened_table,
    parquet_writer,
    read_table,
    unwritable,
    whole,
)
from cclbench.record.manifest import MANIFEST, Manifest, RankEntry
from cclbench.record.results import Results
from cclbench.record.rows import WORDS, builtins
from cclbench.record.stored_rows import ROW_GROUP, rows_at
from cclbench.schema import COLLECTIVES, EVENTS, EVIDENCE, GROUPS, KINDS, OPERATORS, RESULTS, STEPS, TABLES
from cclbench.scratch import scratch

if TYPE_CHECKING:
    import pandas as pd

    from cclbench.card import Card
    from cclbench.record.sql import QueryResult

BATCH_ROWS: Final = 1 << 16
"""Rows of a batch of events at most."""
_MADE: Final = b"cclbench.made"
_READ_ONLY: Final = (errno.EROFS, errno.EACCES, errno.EPERM)
RESULTS_FILE: Final = "results.parquet"


class Made(msgspec.Struct, frozen=True):
    """How stored result rows were made: equal words in `by` promise equal rows; `window` is their policy."""

    by: str
    window: str


class Run:
    """A data point in the store, with the metrics computed from it.

    `figures` are the result rows, `rows` the same as flat dicts, `results` as a pandas DataFrame with the
    columns of `schema.RESULTS`; the tables come as Arrow (`.to_pandas()` where you want that).  `record` is
    the manifest.
    """

    def __init__(
        self,
        path: Path,
        figures: Results | None = None,
        window: str = "steps",
        when_saved: Callable[[Path], None] | None = None,
    ) -> None:
        self.path, self.window = path, window
        self.figures = Results.joined(()) if figures is None else figures
        self.when_saved = when_saved

    def with_figures(self, figures: Results, window: str) -> Run:
        """The same run with metrics computed from it."""
        return Run(self.path, figures, window, self.when_saved)

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
        """The manifest; `InputError` where it is damaged or of another version."""
        return manifest.read(self.path / MANIFEST)

    @cached_property
    def manifest(self) -> dict[str, Any]:
        """What was found: source files and their hashes, ranks, counts, what was left out and why."""
        plain: dict[str, Any] = msgspec.json.decode(manifest.text(self.record))
        return plain

    @cached_property
    def rows(self) -> list[dict[str, Any]]:
        """The result rows as flat dicts with the columns of `schema.RESULTS`."""
        return builtins(self.figures)

    @property
    def results(self) -> pd.DataFrame:
        """The result rows, columns as `schema.RESULTS`: the same types under pandas 2 and 3.

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
        """The reader of its traces; None where it has none."""
        return next((entry.files[0].reader for entry in self.record.ranks), None)

    @property
    def inferred(self) -> str | None:
        """What to say of results that rest on process groups which no trace states; None where all do."""
        return self.record.inferred

    @cached_property
    def card(self) -> Card | None:
        """The workload card that came with it; None without one."""
        from cclbench.card import load

        path = self.path / "card.yaml"
        return load(path) if path.is_file() else None

    @property
    def sources(self) -> list[Run]:
        """The same run by traces of further kinds, each as a run of its own."""
        return [Run(self.path / "sources" / name) for name in self.record.sources]

    def rank(self, rank: int) -> Rank:
        """One rank's trace; `UsageError` where it has none."""
        entry = self._entries.get(rank)
        if entry is None:
            raise UsageError(f"run {self.id} has no rank {rank}", hint=f"it has {self.ranks or 'no trace'}")
        return Rank(self.path, entry, self._clock_residual_ns)

    @cached_property
    def _entries(self) -> dict[int, RankEntry]:
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
        wanted = _checked_names("kind of event", KINDS if kinds is None else kinds, KINDS)
        known = [*EVENTS.names, "rank"]
        names = _checked_names("column of events", known if columns is None else columns, known)
        schema = pa.schema([EVENTS.field(name) for name in names if name != "rank"])
        tables = [schema.empty_table().append_column("rank", pa.array([], pa.int32()))]
        for one in self.ranks if rank is None else [rank]:
            table = pa.Table.from_batches(self.rank(one).events(wanted, schema.names), schema)
            tables.append(table.append_column("rank", pa.repeat(pa.scalar(one, pa.int32()), len(table))))
        return pa.concat_tables(tables).unify_dictionaries()

    def collectives(self) -> pa.Table:
        """Rows of `schema.COLLECTIVES` of all ranks, in rank order."""
        return self._of_ranks("collectives")

    def operators(self) -> pa.Table:
        """Rows of `schema.OPERATORS` of all ranks, in rank order."""
        return self._of_ranks("operators")

    def steps(self) -> pa.Table:
        """Rows of `schema.STEPS` of all ranks, in rank order."""
        return self._of_ranks("steps")

    def _of_ranks(self, name: str) -> pa.Table:
        return _joined(name, [self.path / name / f"rank={rank}.parquet" for rank in self.ranks])

    def groups(self) -> pa.Table:
        """Rows of `schema.GROUPS`: the process groups that traces state, or that were inferred."""
        return read_table(self.path / "groups.parquet", GROUPS)

    def evidence(self, table: str) -> pa.Table:
        """Rows of a table of `schema.EVIDENCE`, such as `counters`: what files other than traces tell."""
        (name,) = _checked_names("table of evidence", [table], list(EVIDENCE))
        return _joined(name, sorted((self.path / name).glob("*.parquet")))

    def sql(
        self,
        query: str,
        *,
        times_as_text: bool = False,
        memory_bytes: int | None = None,
        disk_bytes: int | None = None,
        page: tuple[int, int] | None = None,
    ) -> QueryResult:
        """DuckDB over the tables of `schema`: events, collectives, groups, steps, results, counters, ...

        `times_as_text` gives dates, times and intervals as text: Python cannot hold all of DuckDB's.  What
        needs more than `memory_bytes` is kept on disk meanwhile, at most `disk_bytes`.  `page` (first row,
        number of rows) limits the answer to these rows.
        """
        from cclbench.record.sql import select

        return select(
            self.path,
            self.ranks,
            query,
            times_as_text=times_as_text,
            memory_bytes=memory_bytes,
            disk_bytes=disk_bytes,
            page=page,
        )

    @property
    def saved_results(self) -> Results | None:
        """The result rows of the last full computation, None before the first."""
        path = self.path / RESULTS_FILE
        return Results(rows_at(path)) if path.is_file() else None

    def saved_value(self, metric: str) -> float | None:
        """The run's number of a metric in the last full computation, None where there is none."""
        path = self.path / RESULTS_FILE
        if not path.is_file():
            return None
        parts = ("rank", "step", "group", "collective", "category", "stat")
        own = pc.field("metric") == metric
        for name in parts:
            own &= pc.field(name).is_null()
        with opened_table(path, RESULTS) as file:
            for batch in file.iter_batches(columns=["metric", "value", *parts]):
                found: list[float | None] = batch.filter(own)["value"].to_pylist()
                if found:
                    return found[0]
        return None

    @property
    def saved_by(self) -> Made | None:
        """How those rows were made, as `save_results` was told; None where nobody said."""
        path = self.path / RESULTS_FILE
        if not path.is_file():
            return None
        with opened_table(path, RESULTS) as file:
            made = (file.schema_arrow.metadata or {}).get(_MADE)
        with suppress(msgspec.DecodeError):  # what another version said is not known
            return None if made is None else msgspec.json.decode(made, type=Made)
        return None

    def save_results(self, figures: Results, *, made: Made | None = None) -> None:
        """Keep result rows beside the run, for `sql`; replaces earlier ones whole.

        A store that may only be read keeps none.
        """
        schema = RESULTS
        if made is not None:
            schema = schema.with_metadata({**(schema.metadata or {}), _MADE: msgspec.json.encode(made)})
        try:
            with scratch(self.path.parent, UNFINISHED) as folder:
                with parquet_writer(folder / RESULTS_FILE, schema) as file:
                    for part in figures.slices(ROW_GROUP):
                        file.write_table(part.cast(schema))
                (folder / RESULTS_FILE).replace(self.path / RESULTS_FILE)
        except OSError as error:
            if error.errno not in _READ_ONLY:
                raise unwritable(self.path, error) from None
            return
        if self.when_saved:
            self.when_saved(self.path / RESULTS_FILE)

    def __repr__(self) -> str:
        return f"<Run {self.id}: {len(self.ranks)} ranks, {len(self.figures)} result rows>"


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
        for kind in _checked_names("kind of event", kinds, KINDS):
            rows = 0
            for path in self._files.get(kind, ()):
                for batch in self._batches(path, columns):
                    rows += len(batch)
                    yield batch
            if rows != (written := self.entry.rows.get(kind, 0)):
                folder = self.path / "events" / f"rank={self.entry.rank}"
                raise damaged(folder, f"{rows:,} rows of kind {kind}, of which {written:,} were written")

    @cached_property
    def _files(self) -> dict[str, list[Path]]:
        """The files of each kind of event, in order."""
        found: dict[str, list[Path]] = {}
        for path in sorted((self.path / "events" / f"rank={self.entry.rank}").glob("*-*.parquet")):
            found.setdefault(path.name.partition("-")[0], []).append(path)
        return found

    def _batches(self, path: Path, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Those columns of one file."""
        with opened_table(path, EVENTS) as file:
            for batch in file.iter_batches(BATCH_ROWS, columns=list(columns)):
                yield whole(batch, EVENTS, path)

    def collectives(self) -> pa.Table:
        """The rank's rows of `schema.COLLECTIVES`."""
        return read_table(self.path / "collectives" / f"rank={self.entry.rank}.parquet", COLLECTIVES)

    def operators(self, columns: Sequence[str] | None = None) -> pa.Table:
        """The rank's rows of `schema.OPERATORS`, of all columns or of those."""
        path = self.path / "operators" / f"rank={self.entry.rank}.parquet"
        table = read_table(path, OPERATORS, columns=columns)
        if len(table) != self.entry.operators:
            raise damaged(path, f"{len(table):,} rows, of which {self.entry.operators:,} were written")
        return table

    def steps(self) -> pa.Table:
        """The rank's rows of `schema.STEPS`."""
        return read_table(self.path / "steps" / f"rank={self.entry.rank}.parquet", STEPS)


def _joined(name: str, paths: Sequence[Path]) -> pa.Table:
    schema = TABLES[name]
    tables = [read_table(path, schema) for path in paths]
    return pa.concat_tables([schema.empty_table(), *tables]).unify_dictionaries()


def _checked_names(noun: str, names: str | Sequence[str], known: Sequence[str]) -> list[str]:
    """The names, of which a lone one is a list of one; `UsageError` for one that is not known."""
    listed = [names] if isinstance(names, str) else list(names)
    for name in listed:
        if name not in known:
            raise UsageError(f"{name!r} is no {noun}", hint=near(name, known))
    return listed
