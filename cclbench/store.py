# SPDX-License-Identifier: Apache-2.0
"""A run on disk: `manifest.json` and Parquet tables; written whole or not at all.

<store>/<run>/manifest.json
<store>/<run>/events/rank=<R>/<kind>-<part>.parquet
<store>/<run>/collectives/rank=<R>.parquet
<store>/<run>/steps/rank=<R>.parquet
<store>/<run>/groups.parquet            process groups
<store>/<run>/{counters,timings,requests,serving}/*.parquet   what files other than traces tell
<store>/<run>/sources/<reader>/         the same of traces of a second kind
<store>/<run>/results.parquet           the last full computation
"""

from __future__ import annotations

import errno
import glob
import json
import os
import shutil
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from cclbench.errors import CclbenchError, InputError, UsageError, near
from cclbench.facts import TraceFacts
from cclbench.normalize.inferred_groups import caveat
from cclbench.schema import EVENTS, EVIDENCE, KINDS, LAYOUT, RESULTS, TABLES, VERSION

if TYPE_CHECKING:
    from cclbench.card import Card

_UNFINISHED = ".unfinished-"
_IN_THE_WAY = (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR)
_BATCH_ROWS = 1 << 16
_MADE = b"cclbench.made"


class Store:
    """A folder of runs."""

    def __init__(self, folder: str | Path | None = None) -> None:
        self.folder = Path(folder or os.environ.get("CCLBENCH_STORE") or "runs").expanduser()

    def runs(self) -> list[StoredRun]:
        """All finished runs, by name."""
        found = sorted(self.folder.glob("*/manifest.json")) if self.folder.is_dir() else []
        return [StoredRun(path.parent) for path in found if not path.parent.name.startswith(".")]

    def find(self, run: str) -> StoredRun | None:
        """The run of that id, None where there is none."""
        if not run or run in (".", "..") or Path(run).name != run:
            return None
        path = self.folder / run
        return StoredRun(path) if (path / "manifest.json").is_file() else None

    def get(self, run: str) -> StoredRun:
        """The run of that id; `UsageError` with near names, of files here too, where there is none."""
        found = self.find(run)
        if found is None:
            ids = [r.id for r in self.runs()]
            hint = near(run, [*ids, *(name for name in os.listdir() if not name.startswith("."))])
            hint = hint if hint.startswith("did you mean") else near(run, ids)
            raise UsageError(f"no run {run!r} in {self.folder}, and no such file or folder", hint=hint)
        return found

    @contextmanager
    def creating(self, run: str) -> Iterator[Path]:
        """A folder to write a run into; it takes the run's name on success and vanishes on any failure."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            sweep(self.folder, _UNFINISHED)
            with scratch(self.folder, _UNFINISHED) as unfinished:
                yield unfinished
                self._replace(unfinished, self.folder / run)
        except OSError as error:
            raise unwritable(self.folder, error) from None

    def _replace(self, unfinished: Path, final: Path) -> None:
        """Give a finished folder its name; one that has it already makes way, whole."""
        try:
            unfinished.rename(final)
        except OSError as error:
            if error.errno not in _IN_THE_WAY:
                raise
            with scratch(self.folder, _UNFINISHED) as former:
                final.rename(former / "former")
                unfinished.rename(final)


@contextmanager
def scratch(folder: Path, prefix: str, *, mode: int = 0o777) -> Iterator[Path]:
    """A new folder within `folder`, gone at the end; its name says which process of which machine has it."""
    path = folder / f"{prefix}{os.getpid()}-{socket.gethostname()}-{token_hex(4)}"
    path.mkdir(mode=mode)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def sweep(folder: Path, prefix: str) -> None:
    """Remove scratch folders of that prefix that processes of this machine left behind when killed."""
    for left in folder.glob(f"{prefix}*"):
        process, _, rest = left.name.removeprefix(prefix).partition("-")
        here = rest.rpartition("-")[0] == socket.gethostname()
        if here and process.isdecimal() and not _alive(int(process)):
            shutil.rmtree(left, ignore_errors=True)


def unwritable(folder: Path, error: OSError) -> InputError:
    """The error for a store that cannot be written: no permission, disk full, a file in the way.

    Where `error` names a file outside of it, a source went away or became unreadable, and that is said.
    """
    reason = error.strerror or str(error)
    file = error.filename
    if isinstance(file, str) and not Path(file).absolute().is_relative_to(folder.absolute()):
        return InputError(f"cannot be read: {reason}", where=file)
    return InputError(
        f"the store cannot be written: {reason}",
        where=str(folder),
        hint="choose another with --store or make room",
    )


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


class StoredRun:
    """One finished run."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def id(self) -> str:
        """The run's name in its store."""
        return self.path.name

    @cached_property
    def manifest(self) -> dict[str, Any]:
        """The manifest; `InputError` where it is damaged or of another schema."""
        path = self.path / "manifest.json"
        try:
            manifest = json.loads(path.read_text())
        except (OSError, ValueError) as error:
            raise InputError(f"damaged manifest: {error}", where=str(path), hint="delete the run") from None
        told = manifest if isinstance(manifest, dict) else {}
        if told.get("schema") != VERSION or told.get("tables") != LAYOUT:
            raise InputError(
                "was written by another version", where=str(path), hint="ingest the source again"
            )
        return told

    @property
    def ranks(self) -> list[int]:
        """Ranks that have a trace, ascending."""
        return [entry["rank"] for entry in self.manifest["ranks"]]

    @property
    def reader(self) -> str | None:
        """The reader of its traces; None where it has none."""
        return next((entry["files"][0]["reader"] for entry in self.manifest["ranks"]), None)

    def rank(self, rank: int) -> RankFiles:
        """One rank's tables."""
        entry = next((e for e in self.manifest["ranks"] if e["rank"] == rank), None)
        if entry is None:
            raise UsageError(f"run {self.id} has no rank {rank}", hint=f"it has {self.ranks or 'no trace'}")
        try:
            facts = msgspec.convert(entry["facts"], TraceFacts)
        except msgspec.ValidationError as error:
            where = str(self.path / "manifest.json")
            raise InputError(f"damaged manifest: {error}", where=where, hint="delete the run") from None
        residuals = [clock["residual_ns"] for clock in self.manifest["clocks"]["ranks"]]
        return RankFiles(self.path, rank, facts, max(residuals, default=0.0))

    def table(self, name: str) -> pa.Table:
        """All ranks' rows of `collectives` or `steps`, in rank order."""
        tables = [read_table(self.path / name / f"rank={rank}.parquet") for rank in self.ranks]
        return pa.concat_tables([TABLES[name].empty_table(), *tables]).unify_dictionaries()

    @property
    def inferred(self) -> str | None:
        """What to say of results that rest on process groups which no trace states; None where all do."""
        return caveat(self.manifest["inference"])

    def evidence(self, name: str) -> pa.Table:
        """Rows of `counters`, `timings`, `requests` or `serving`; none where no file tells of it."""
        paths = sorted((self.path / name).glob("*.parquet"))
        tables = [read_table(path) for path in paths]
        return pa.concat_tables([TABLES[name].empty_table(), *tables]).unify_dictionaries()

    @cached_property
    def card(self) -> Card | None:
        """The workload card that came with it; None without one."""
        from cclbench.card import load

        path = self.path / "card.yaml"
        return load(path) if path.is_file() else None

    @property
    def sources(self) -> list[StoredRun]:
        """The same run by traces of further kinds, each as a run of its own."""
        return [StoredRun(self.path / "sources" / name) for name in self.manifest["sources"]]

    def groups(self) -> pa.Table:
        """Rows of `schema.GROUPS`: the process groups that traces state, or that were inferred."""
        return read_table(self.path / "groups.parquet")

    @property
    def results(self) -> pa.Table | None:
        """Rows of the last full computation, None before the first."""
        path = self.path / "results.parquet"
        return read_table(path) if path.is_file() else None

    @property
    def results_made(self) -> str | None:
        """How those rows were made, as `save_results` was told; None where nobody said."""
        path = self.path / "results.parquet"
        if not path.is_file():
            return None
        with _opened(path) as file:
            made = (file.schema_arrow.metadata or {}).get(_MADE)
        return None if made is None else str(made, "utf-8", "replace")

    def save_results(self, rows: Sequence[Mapping[str, Any]], *, made: str | None = None) -> None:
        """Keep result rows beside the run, for `sql`; replaces earlier ones whole.

        `made` says by what and with which options: equal words promise equal rows.
        """
        table = pa.Table.from_pylist([{name: row[name] for name in RESULTS.names} for row in rows], RESULTS)
        if made is not None:
            table = table.replace_schema_metadata({**(RESULTS.metadata or {}), _MADE: made.encode()})
        try:
            with scratch(self.path.parent, _UNFINISHED) as folder:
                pq.write_table(table, folder / "results.parquet")
                (folder / "results.parquet").replace(self.path / "results.parquet")
        except OSError as error:
            raise unwritable(self.path, error) from None

    def sql(self, query: str) -> pa.Table:
        """The answer to one SELECT of DuckDB's dialect over the run's tables.

        They are those of `TABLES`; `events` has `rank` as a further column.  It can only read, and only the
        run's own files.
        """
        import duckdb

        connection = duckdb.connect(":memory:")
        try:
            statements = connection.extract_statements(query)
            if [s.type for s in statements] != [duckdb.StatementType.SELECT]:
                raise UsageError("SQL: takes one SELECT and nothing else", where=self.id)
            self._open_to(connection)
            return connection.sql(query).to_arrow_table()
        except duckdb.Error as error:
            first = str(error).splitlines()[0]
            hint = f"the tables are {', '.join(TABLES)}"
            raise UsageError(f"SQL: {first}", where=self.id, hint=hint) from None
        finally:
            connection.close()

    def _open_to(self, connection: Any) -> None:
        """Make the run's tables views of a DuckDB connection, and nothing else of its reach."""
        folder = glob.escape(str(self.path))
        files = {name: [(f"{name}/*.parquet", "")] for name in ("collectives", "steps", *EVIDENCE)}
        files["events"] = [
            (f"events/rank={rank}/*.parquet", f", {rank}::INTEGER AS rank") for rank in self.ranks
        ]
        files["results"] = [("results.parquet", "")]
        files["groups"] = [("groups.parquet", "")]
        for name, schema in TABLES.items():
            columns = ", ".join(f'"{column}"' for column in schema.names)
            selects = [
                f"SELECT {columns}{more} FROM read_parquet({_quoted(f'{folder}/{pattern}')}, "  # noqa: S608
                "hive_partitioning=false)"
                for pattern, more in files[name]
                if any(self.path.glob(pattern))
            ]
            if selects:
                connection.execute(f"CREATE VIEW {name} AS {' UNION ALL '.join(selects)}")
            else:
                rank = [pa.field("rank", pa.int32())] if name == "events" else []
                connection.register(name, pa.schema([*schema, *rank]).empty_table())
        folders = ", ".join(_quoted(f"{path}/") for path in (self.path, folder))
        connection.execute(f"SET allowed_directories=[{folders}]; SET python_enable_replacements=false")
        connection.execute("SET enable_external_access=false; SET lock_configuration=true")


def _quoted(text: str) -> str:
    """A string literal of SQL."""
    return "'" + text.replace("'", "''") + "'"


class RankFiles:
    """One rank's tables on disk: what analyzers read."""

    def __init__(self, path: Path, rank: int, facts: TraceFacts, clock_residual_ns: float) -> None:
        self.path, self._rank, self._facts, self._residual_ns = path, rank, facts, clock_residual_ns

    @property
    def clock_residual_ns(self) -> float:
        """What the ranks' clocks leave unexplained of the ends of collectives: the worst rank's."""
        return self._residual_ns

    @property
    def facts(self) -> TraceFacts:
        """What the rank's trace says of itself."""
        return self._facts

    def events(self, kinds: Sequence[str], columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Those columns of the events of those kinds, in bounded batches, in a fixed order."""
        for kind in kinds:
            if kind not in KINDS:
                raise UsageError(f"no kind of event is {kind!r}", hint=near(kind, KINDS))
            for path in sorted((self.path / "events" / f"rank={self._rank}").glob(f"{kind}-*.parquet")):
                with _opened(path) as file:
                    yield from file.iter_batches(_BATCH_ROWS, columns=list(columns))

    def collectives(self) -> pa.Table:
        """The rank's rows of `schema.COLLECTIVES`."""
        return read_table(self.path / "collectives" / f"rank={self._rank}.parquet")

    def steps(self) -> pa.Table:
        """The rank's rows of `schema.STEPS`."""
        return read_table(self.path / "steps" / f"rank={self._rank}.parquet")


@contextmanager
def _opened(path: Path) -> Iterator[pq.ParquetFile]:
    try:
        with pq.ParquetFile(path) as file:
            yield file
    except (OSError, pa.ArrowInvalid) as error:
        first = str(error).splitlines()[0]
        raise InputError(f"damaged table: {first}", where=str(path), hint="delete the run") from None


def read_table(path: Path) -> pa.Table:
    """One of the run's files, whole."""
    with _opened(path) as file:
        return file.read()


def write_table(path: Path, table: pa.Table) -> None:
    """Write a small table at once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path)


class TableFile:
    """Rows of a schema on their way to a Parquet file, in row groups of bounded size."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path, self._schema = path, schema
        words = [field.name for field in schema if pa.types.is_dictionary(field.type)]
        self._sink = pa.OSFile(str(path), "wb")
        self._writer = pq.ParquetWriter(self._sink, schema, use_dictionary=words, write_statistics=False)

    def write(self, table: pa.Table) -> None:
        """Append rows as one row group."""
        self._writer.write_table(table.cast(self._schema), row_group_size=max(len(table), 1))

    def close(self) -> None:
        """Finish the file."""
        self._writer.close()
        self._sink.close()

    def abandon(self) -> None:
        """Give the file up as it is: what it lies in is about to vanish."""
        self._writer.is_open = False  # else it tries again to write when it is collected
        with suppress(OSError):
            self._sink.close()


class EventFile(TableFile):
    """A rank's events of one kind."""

    def __init__(self, folder: Path, kind: str, part: int, note: str = "") -> None:
        if kind not in KINDS:
            raise CclbenchError(f"a reader gave rows of kind {kind!r}", hint=near(kind, KINDS))
        super().__init__(folder / f"{kind}-{part:03d}{note}.parquet", EVENTS)
