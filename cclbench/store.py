# SPDX-License-Identifier: Apache-2.0
"""A run on disk: `manifest.json` and Parquet tables; written whole or not at all.

    <store>/<run>/manifest.json
    <store>/<run>/events/rank=<R>/<kind>-<part>.parquet
    <store>/<run>/collectives/rank=<R>.parquet
    <store>/<run>/steps/rank=<R>.parquet
    <store>/<run>/results.parquet           the last full computation
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from cclbench.errors import InputError, UsageError, near
from cclbench.schema import COLLECTIVES, EVENTS, KINDS, RESULTS, STEPS, VERSION, TraceFacts

_UNFINISHED = ".unfinished-"
_BATCH_ROWS = 1 << 16
_WORDS = [field.name for field in EVENTS if pa.types.is_dictionary(field.type)]


class Store:
    """A folder of runs."""

    def __init__(self, folder: str | Path | None = None) -> None:
        self.folder = Path(folder or os.environ.get("CCLBENCH_STORE") or "runs")

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
        """The run of that id; `UsageError` with near matches where there is none."""
        found = self.find(run)
        if found is None:
            hint = near(run, [r.id for r in self.runs()])
            raise UsageError(f"no run {run!r} in {self.folder}, and no such file or folder", hint=hint)
        return found

    @contextmanager
    def creating(self, run: str) -> Iterator[Path]:
        """A folder to write a run into; it takes the run's name on success and vanishes on any failure."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._sweep()
            unfinished = Path(tempfile.mkdtemp(prefix=f"{_UNFINISHED}{os.getpid()}-", dir=self.folder))
        except OSError as error:
            raise unwritable(self.folder, error) from None
        try:
            yield unfinished
            final = self.folder / run
            if final.exists():
                shutil.rmtree(final)
            unfinished.rename(final)
        except OSError as error:
            raise unwritable(self.folder, error) from None
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)

    def _sweep(self) -> None:
        """Remove what processes that were killed left behind."""
        for left in self.folder.glob(f"{_UNFINISHED}*"):
            owner = left.name.removeprefix(_UNFINISHED).partition("-")[0]
            if owner.isdecimal() and not _alive(int(owner)):
                shutil.rmtree(left, ignore_errors=True)


def unwritable(folder: Path, error: OSError) -> InputError:
    """The error for a store that cannot be written: no permission, disk full, a file in the way."""
    return InputError(
        f"the store cannot be written: {error.strerror or error}",
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
        if not isinstance(manifest, dict) or manifest.get("schema") != VERSION:
            raise InputError("was written by another version", where=str(path), hint="ingest the source again")
        return manifest

    @property
    def ranks(self) -> list[int]:
        """Ranks that have a trace, ascending."""
        return [entry["rank"] for entry in self.manifest["ranks"]]

    def rank(self, rank: int) -> RankFiles:
        """One rank's tables."""
        entry = next((e for e in self.manifest["ranks"] if e["rank"] == rank), None)
        if entry is None:
            raise UsageError(f"run {self.id} has no rank {rank}", hint=f"it has {self.ranks}")
        return RankFiles(self.path, rank, msgspec.convert(entry["facts"], TraceFacts))

    def table(self, name: str) -> pa.Table:
        """All ranks' rows of `collectives` or `steps`, in rank order."""
        schema = {"collectives": COLLECTIVES, "steps": STEPS}[name]
        tables = [read_table(self.path / name / f"rank={rank}.parquet") for rank in self.ranks]
        return pa.concat_tables([schema.empty_table(), *tables]).unify_dictionaries()

    @property
    def results(self) -> pa.Table | None:
        """Rows of the last full computation, None before the first."""
        path = self.path / "results.parquet"
        return read_table(path) if path.is_file() else None

    def save_results(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Keep result rows beside the run, for `sql`; replaces earlier ones whole."""
        table = pa.Table.from_pylist([{name: row[name] for name in RESULTS.names} for row in rows], RESULTS)
        try:
            with tempfile.TemporaryDirectory(prefix=_UNFINISHED, dir=self.path) as folder:
                pq.write_table(table, Path(folder) / "results.parquet")
                (Path(folder) / "results.parquet").replace(self.path / "results.parquet")
        except OSError as error:
            raise unwritable(self.path, error) from None

    def sql(self, query: str) -> pa.Table:
        """DuckDB over the run's tables `events`, `collectives`, `steps` and `results`; nothing else is in reach."""
        import duckdb

        connection = duckdb.connect(":memory:")
        try:
            for name, pattern in (
                ("events", "events/*/*.parquet"),
                ("collectives", "collectives/*.parquet"),
                ("steps", "steps/*.parquet"),
                ("results", "results.parquet"),
            ):
                if not any(self.path.glob(pattern)):
                    continue
                files = str(self.path / pattern).replace("'", "''")
                hive = "true" if name == "events" else "false"
                connection.execute(
                    f"CREATE VIEW {name} AS SELECT * FROM read_parquet('{files}', hive_partitioning={hive})"  # noqa: S608
                )
            folder = str(self.path).replace("'", "''")
            connection.execute(f"SET allowed_directories=['{folder}/']")
            connection.execute("SET enable_external_access=false; SET lock_configuration=true")
            return connection.execute(query).to_arrow_table()
        except duckdb.Error as error:
            first = str(error).splitlines()[0]
            hint = "the tables are events, collectives, steps and results"
            raise UsageError(f"SQL: {first}", where=self.id, hint=hint) from None
        finally:
            connection.close()


class RankFiles:
    """One rank's tables on disk: what analyzers read."""

    def __init__(self, path: Path, rank: int, facts: TraceFacts) -> None:
        self.path, self._rank, self._facts = path, rank, facts

    @property
    def facts(self) -> TraceFacts:
        """What the rank's trace says of itself."""
        return self._facts

    def events(self, kinds: Sequence[str], columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Those columns of the events of those kinds, in bounded batches, in a fixed order."""
        for kind in kinds:
            for path in sorted((self.path / "events" / f"rank={self._rank}").glob(f"{kind}-*.parquet")):
                with pq.ParquetFile(path) as file:
                    yield from file.iter_batches(_BATCH_ROWS, columns=list(columns))

    def collectives(self) -> pa.Table:
        """The rank's rows of `schema.COLLECTIVES`."""
        return read_table(self.path / "collectives" / f"rank={self._rank}.parquet")

    def steps(self) -> pa.Table:
        """The rank's rows of `schema.STEPS`."""
        return read_table(self.path / "steps" / f"rank={self._rank}.parquet")


def read_table(path: Path) -> pa.Table:
    """One of the run's files, whole."""
    try:
        with pq.ParquetFile(path) as file:
            return file.read()
    except (OSError, pa.ArrowInvalid) as error:
        raise InputError(f"damaged table: {error}", where=str(path), hint="delete the run") from None


def write_table(path: Path, table: pa.Table) -> None:
    """Write a small table at once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path)


class EventFile:
    """Rows of one kind on their way to a Parquet file, in row groups of bounded size."""

    def __init__(self, folder: Path, kind: str, part: int, note: str = "") -> None:
        assert kind in KINDS
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / f"{kind}-{part:03d}{note}.parquet"
        self._writer = pq.ParquetWriter(self.path, EVENTS, use_dictionary=_WORDS, write_statistics=False)

    def write(self, table: pa.Table) -> None:
        """Append rows of `schema.EVENTS` as one row group."""
        self._writer.write_table(table, row_group_size=max(len(table), 1))

    def close(self) -> None:
        """Finish the file."""
        self._writer.close()
