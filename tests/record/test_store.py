# SPDX-License-Identifier: Apache-2.0
"""The store: runs whole or absent, tables that read back, SQL that only reads, errors that say what to do."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.typed import figures, run_of

import cclbench
from cclbench.ground import scratch
from cclbench.ground.errors import InputError, UsageError
from cclbench.ground.schema import COLLECTIVES, EVENTS, RESULTS, STEPS, VERSION
from cclbench.ground.table_schema import WORD
from cclbench.record.files import EventFile, with_columns, write_table
from cclbench.record.results import Results
from cclbench.record.rows import builtins
from cclbench.record.run import Run
from cclbench.record.selection import Selection
from cclbench.record.store import Store
from cclbench.results import full_results

RESULT = dict.fromkeys(RESULTS.names) | {"metric": "time.step", "value": 0.1, "unit": "s", "status": "ok"}
RESULT |= {"window": "steps", "version": 1}
STEP = {"rank": 0, "step": 3, "start_ns": 0, "end_ns": 30, "source": "device", "open": False}


def results(*rows: dict[str, Any]) -> Results:
    """Those rows, each with a column's null where it says nothing."""
    return Results.from_rows(figures(rows))


def event(name: str, begin: int, length: int, **other: Any) -> dict[str, Any]:
    """A kernel on stream 7."""
    row = dict.fromkeys(EVENTS.names) | {"track": 7, "side": "device", "kind": "kernel", "category": "gemm"}
    return row | {"name": name, "start_ns": begin, "dur_ns": length} | other


def fill(folder: Path, ranks: int = 2) -> None:
    """A run's files: on each rank two kernels, one step, no collective."""
    for rank in range(ranks):
        file = EventFile(folder / "events" / f"rank={rank}", "kernel", 0)
        file.write(pa.Table.from_pylist([event("a", 0, 10)], EVENTS))
        file.write(pa.Table.from_pylist([event("b", 20, 5 + rank)], EVENTS))
        file.close()
        steps = pa.Table.from_pylist([STEP | {"rank": rank}], STEPS)
        write_table(folder / "steps" / f"rank={rank}.parquet", steps)
        write_table(folder / "collectives" / f"rank={rank}.parquet", COLLECTIVES.empty_table())
    run_of(folder, [f"rank{rank}.json" for rank in range(ranks)], {"kernel": 2}, world_size=ranks)


def create(store: Store) -> None:
    """Write a run."""
    with store.new_run_folder("job-1") as folder:
        fill(folder)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """A store that is not there yet."""
    return Store(tmp_path / "runs")


@pytest.fixture
def run(store: Store) -> Run:
    """A run of two ranks."""
    create(store)
    return store.get("job-1")


def left(store: Store) -> list[str]:
    """What the store's folder holds, finished or not."""
    return sorted(path.name for path in store.folder.iterdir())


# ------------------------------------------------------------------------------- whole or absent


def test_a_run_appears_when_it_is_whole(store: Store) -> None:
    assert store.runs() == []
    with store.new_run_folder("job-1") as folder:
        fill(folder)
        assert store.runs() == []
        assert store.find("job-1") is None
    assert [found.id for found in store.runs()] == ["job-1"]
    assert left(store) == ["job-1"]


@pytest.mark.parametrize("failure", [ValueError, KeyboardInterrupt, SystemExit])
def test_a_failure_leaves_nothing(store: Store, failure: type[BaseException]) -> None:
    def fail() -> None:
        with store.new_run_folder("job-1") as folder:
            fill(folder)
            raise failure

    with pytest.raises(failure):
        fail()
    assert left(store) == []


def test_a_run_replaces_one_of_its_name_as_a_whole(store: Store, run: Run) -> None:
    with store.new_run_folder("job-1") as folder:
        fill(folder, ranks=1)
        assert run.ranks == [0, 1]
    assert store.get("job-1").ranks == [0]
    assert not (store.folder / "job-1" / "steps" / "rank=1.parquet").exists()
    assert left(store) == ["job-1"]


def test_a_run_is_as_open_to_others_as_the_umask_says(store: Store) -> None:
    before = os.umask(0o022)
    try:
        create(store)
    finally:
        os.umask(before)
    assert (store.folder / "job-1").stat().st_mode & 0o777 == 0o755


def test_only_what_a_dead_process_of_this_machine_left_is_swept(store: Store) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    here = scratch._machine_tag()
    kept = [f".unfinished-{os.getpid()}-{here}-0a", f".unfinished-{ended.pid}-another-{here}-0a"]
    for name in (f".unfinished-{ended.pid}-{here}-0a", *kept):
        (store.folder / name / "events").mkdir(parents=True)
    create(store)
    assert left(store) == sorted([*kept, "job-1"])


def test_processes_of_containers_on_a_host_differ(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """One process's number is another's in the other container, or nobody's."""
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    name = f".unfinished-{ended.pid}-{scratch._machine_tag()}-0a"
    (store.folder / name).mkdir(parents=True)
    monkeypatch.setattr(scratch.os, "readlink", lambda _: "pid:[7]")
    create(store)
    assert left(store) == sorted([name, "job-1"])


# ------------------------------------------------------------------------------------ finding runs


@pytest.mark.parametrize("name", ["", ".", "..", "../runs", "job-1/events", "/etc", "a\0b"])
def test_a_run_is_named_by_its_folder_alone(store: Store, run: Run, name: str) -> None:
    assert store.find(run.id) is not None
    assert store.find(name) is None
    with pytest.raises(UsageError, match=f"did you mean {run.id}"):
        store.get("job-2")


def test_the_store_is_the_argument_the_environment_or_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CCLBENCH_STORE", "/of/the/environment")
    assert Store("here").folder == Path("here")
    assert Store().folder == Path("/of/the/environment")
    monkeypatch.setenv("CCLBENCH_STORE", "")
    assert Store().folder == Path("runs")
    monkeypatch.setenv("HOME", "/home/someone")
    assert Store("~/runs").folder == Path("/home/someone/runs")


# ---------------------------------------------------------------------------------- reading tables


def test_events_come_back_as_written(run: Run) -> None:
    batches = list(run.rank(1).events(["kernel"], ["name", "dur_ns", "bytes"]))
    expected = [{"name": "a", "dur_ns": 10, "bytes": None}, {"name": "b", "dur_ns": 6, "bytes": None}]
    assert pa.Table.from_batches(batches).to_pylist() == expected
    assert list(run.rank(1).events(["copy"], ["name"])) == []
    assert run.rank(1).facts.world_size == 2
    assert run.steps()["rank"].to_pylist() == [0, 1]
    assert run.collectives().schema.equals(COLLECTIVES)
    for path in [*run.path.glob("*/*.parquet"), *run.path.glob("events/*/*.parquet")]:
        assert pq.read_schema(path).metadata[b"cclbench.schema"] == str(VERSION).encode(), path


def test_a_word_that_a_dictionary_has_twice_is_written_once(tmp_path: Path) -> None:
    """Arrow's writer fills the place of the second one with unset memory of the process."""
    steps = pa.Table.from_pylist([STEP, STEP], STEPS)
    for name, words in (("twice", ["device", "device"]), ("once", ["device"])):
        sources = pa.DictionaryArray.from_arrays(pa.array([0, len(words) - 1], WORD.index_type), words)
        write_table(tmp_path / name, with_columns(steps, STEPS, {"source": sources}))
    assert (tmp_path / "twice").read_bytes() == (tmp_path / "once").read_bytes()


def test_results_are_kept_and_replaced(store: Store, run: Run) -> None:
    assert run.saved_results is None
    run.save_results(results(RESULT, RESULT | {"rank": 1}))
    run.save_results(results(RESULT | {"value": 0.2}))
    kept = run.saved_results
    assert kept is not None
    assert builtins(kept) == [RESULT | {"value": 0.2}]
    assert left(store) == ["job-1"]


def test_a_rank_or_a_kind_that_is_none_is_refused(run: Run) -> None:
    with pytest.raises(UsageError, match=r"has no rank 2.*\[0, 1\]"):
        run.rank(2)
    with pytest.raises(UsageError, match="did you mean kernel"):
        list(run.rank(0).events(["kernels"], ["name"]))


def test_a_row_group_tells_when_its_rows_begin(run: Run) -> None:
    """So that a query about a window reads those of that time alone."""
    metadata = pq.ParquetFile(run.path / "events" / "rank=1" / "kernel-000.parquet").metadata
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    told = [group.column(EVENTS.get_field_index("start_ns")).statistics for group in groups]
    assert [(own.min, own.max) for own in told] == [(0, 0), (20, 20)]


# ------------------------------------------------------------------------------------------- SQL


def test_sql_reads_the_four_tables(run: Run) -> None:
    run.save_results(results(RESULT))
    answer = run.sql("SELECT name, rank, dur_ns FROM events ORDER BY rank, start_ns")
    expected = [("a", 0, 10), ("b", 0, 5), ("a", 1, 10), ("b", 1, 6)]
    assert [tuple(row.values()) for row in answer.to_pylist()] == expected
    assert answer["rank"].type == pa.int32()
    assert run.sql("SELECT max(step) AS last FROM steps").to_pylist() == [{"last": 3}]
    assert run.sql("SELECT count(*) AS n FROM collectives").to_pylist() == [{"n": 0}]
    assert run.sql("FROM results")["metric"].to_pylist() == ["time.step"]
    assert run.sql("DESCRIBE events")["column_name"].to_pylist() == [*EVENTS.names, "rank"]


def test_a_table_nothing_was_written_to_is_empty(store: Store, run: Run) -> None:
    assert run.sql("SELECT * FROM results").column_names == RESULTS.names
    with store.new_run_folder("empty") as folder:
        run_of(folder, [])
    assert store.get("empty").sql("FROM events").column_names == [*EVENTS.names, "rank"]


def test_sql_that_needs_more_memory_than_it_may_take_uses_the_disk(run: Run) -> None:
    query = "SELECT count(*) AS n FROM (SELECT DISTINCT hash(i), i FROM range(2000000) AS t(i))"
    assert run.sql(query, memory_bytes=48 << 20).to_pylist() == [{"n": 2_000_000}]
    with pytest.raises(UsageError, match="Out of Memory"):
        run.sql(query, memory_bytes=1 << 20)


@pytest.mark.parametrize("name", ["it's", "a [b] *?", "rank=9", "x=y", "a;b", "ä"])
def test_sql_finds_a_store_of_any_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    for store in (Store(tmp_path / name), Store(name + "/relative")):
        create(store)
        answer = store.get("job-1").sql("SELECT rank, count(*) AS n FROM events GROUP BY 1 ORDER BY 1")
        assert answer.to_pylist() == [{"rank": 0, "n": 2}, {"rank": 1, "n": 2}]
        assert store.get("job-1").sql("FROM events").column_names == [*EVENTS.names, "rank"]


WRITES = [
    *("CREATE TABLE x AS SELECT 1", "INSERT INTO steps VALUES (1)", "DELETE FROM steps"),
    *("DROP VIEW busy", "UPDATE steps SET step = 1", "COPY (SELECT 1) TO '{run}/x.csv'"),
    *("COPY steps TO '/tmp/x.parquet'", "EXPLAIN ANALYZE COPY (SELECT 1) TO '{run}/x.csv'"),
    *("EXPORT DATABASE '{run}/x'", "ATTACH '{run}/x.db'", "SET enable_external_access=true"),
    *("INSTALL httpfs", "SELECT 1; COPY (SELECT 1) TO '{run}/x.csv'", "", "-- nothing"),
]


@pytest.mark.parametrize("query", WRITES)
def test_sql_refuses_all_but_one_select(run: Run, query: str) -> None:
    before = sorted(run.path.rglob("*"))
    with pytest.raises(UsageError, match="takes one SELECT and nothing else"):
        run.sql(query.format(run=run.path))
    assert sorted(run.path.rglob("*")) == before


OUTSIDE = [
    *("SELECT * FROM read_csv('/etc/passwd')", "SELECT * FROM read_text('/etc/passwd')"),
    *("SELECT * FROM '/etc/passwd'", "SELECT * FROM glob('/etc/*')"),
    *("SELECT * FROM read_text('manifest.json')", "SELECT * FROM 'manifest.json'", "SELECT getenv('HOME')"),
    "SELECT * FROM duckdb_settings() WHERE name = 'x' UNION ALL SELECT * FROM glob('/etc/*')",
    "SELECT * FROM read_parquet('{store}/job-2/steps/*.parquet')",
    "SELECT * FROM read_parquet('{store}/job-1/../job-2/steps/*.parquet')",
    *("SELECT * FROM read_csv('https://example.com/x.csv')", "SELECT * FROM query"),
    "SELECT * FROM statements",
]


@pytest.mark.parametrize("query", OUTSIDE)
def test_sql_reaches_nothing_but_the_run(store: Store, run: Run, query: str) -> None:
    with store.new_run_folder("job-2") as folder:
        fill(folder)
    with pytest.raises(UsageError, match=r"Permission Error|Catalog Error"):
        run.sql(query.format(store=store.folder))


@pytest.mark.parametrize(
    "query", ["SELECT * FROM kernels", "SELEC 1", "SELECT nothing FROM steps", "SELECT 1 +"]
)
def test_an_sql_error_is_one_line_that_names_the_tables(run: Run, query: str) -> None:
    with pytest.raises(UsageError) as raised:
        run.sql(query)
    (line,) = str(raised.value).splitlines()
    assert "SQL: " in line
    assert "the tables are events, operators, collectives, groups, steps, results, counters" in line


# --------------------------------------------------------------------------- a store in bad shape


def broken(act: Callable[[], object]) -> InputError:
    """The error; it names a place and what to do, and is no longer than it must."""
    with pytest.raises(InputError) as raised:
        act()
    assert raised.value.where
    assert raised.value.hint
    assert len(str(raised.value).splitlines()) <= 3
    return raised.value


def test_a_store_that_may_not_be_written_is_told(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(path: Path, *_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "mkdir", forbidden)
    assert "Permission denied" in str(broken(lambda: create(store)))


def test_a_full_disk_leaves_nothing(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    device = pa.OSFile
    monkeypatch.setattr(pa, "OSFile", lambda _, mode: device("/dev/full", mode))
    error = broken(lambda: create(store))
    assert "No space left on device" in str(error)
    assert error.where == str(store.folder)
    assert left(store) == []


def test_a_full_disk_keeps_the_results_there_were(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    run.save_results(results(RESULT))

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pq.ParquetWriter, "write_table", full)
    assert "No space left" in str(broken(lambda: run.save_results(results(RESULT | {"value": 2.0}))))
    monkeypatch.undo()
    assert run.saved_results is not None
    assert [row.value for row in run.saved_results] == [0.1]
    assert [path.name for path in run.path.parent.iterdir()] == [run.id]


def test_a_source_that_goes_away_is_not_the_stores_fault(store: Store, tmp_path: Path) -> None:
    with pytest.raises(InputError) as raised, store.new_run_folder("job-1"):
        (tmp_path / "gone.json").open()
    assert raised.value.where == str(tmp_path / "gone.json")
    assert "store" not in str(raised.value)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"schema": 99, "ranks": []}', "\xff"])
def test_a_damaged_manifest_is_named(run: Run, text: str) -> None:
    told = run.manifest | {"ranks": [{"rank": 0, "facts": {"world_size": "two"}}]}
    (run.path / "manifest.json").write_bytes(text.encode("latin-1"))
    error = broken(lambda: Run(run.path).ranks)
    assert error.where == str(run.path / "manifest.json")
    (run.path / "manifest.json").write_text(json.dumps(told))  # facts of a wrong type
    assert "world_size" in str(broken(lambda: Run(run.path).rank(0)))


@pytest.mark.parametrize("content", [b"", b"PAR1", b"x" * 100])
def test_a_table_that_is_damaged_after_the_run_is_opened_is_named(run: Run, content: bytes) -> None:
    assert run.ranks == [0, 1]
    kernels = run.path / "events" / "rank=0" / "kernel-000.parquet"
    kernels.write_bytes(content)
    (run.path / "steps" / "rank=0.parquet").write_bytes(content)
    error = broken(lambda: list(run.rank(0).events(["kernel"], ["name"])))
    assert error.where == str(kernels)
    assert "damaged table" in str(broken(lambda: run.steps()))
    for query in ("SELECT count(name) FROM events", "SHOW TABLES", "FROM query_table('col' || 'lectives')"):
        with pytest.raises(InputError, match="damaged table"):
            run.sql(query)
    # A table that is not named is not looked into.
    assert run.sql("SELECT count(*) AS n FROM Collectives").to_pylist() == [{"n": 0}]


def test_a_store_that_may_only_be_read_gives_results_and_keeps_none(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    card = repository / "workload_cards" / "tiny-llama-ddp4-gloo-cpu.yaml"
    run = cclbench.ingest(card, store=tmp_path)
    usual = list(full_results(run, Selection()))
    (run.path / "results.parquet").unlink()
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}

    def read_only(*_: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr("cclbench.record.run.scratch", read_only)
    assert list(full_results(run, Selection())) == usual
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before
