# SPDX-License-Identifier: Apache-2.0
"""Files that are no whole export of Nsight Systems; exports rewritten table by table."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from helpers.nsys_files import KERNEL, kernel, nvtx, read, strings, write
from helpers.plain_redactor import PlainRedactor
from helpers.refused import refused

from cclbench.formats import Part, trace_reader
from cclbench.formats.nsys import rewriting
from cclbench.formats.nsys.rewriting import DatabaseRewriter
from cclbench.formats.rewriting import UNREAD
from cclbench.ground.errors import InputError

NAMES = strings("gemm", "cudaLaunchKernel")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "a trace #1?.sqlite"


@pytest.fixture
def whole(path):
    return write(path, StringIds=NAMES, **{KERNEL: [kernel(i, i + 1) for i in range(2000)]})


def test_cut(whole):
    """Names with odd characters are no hindrance."""
    assert len(read(whole).rows) == 2000
    data = whole.read_bytes()
    for size in (*range(0, 200, 7), len(data) // 2, len(data) - 1):
        whole.write_bytes(data[:size])
        message = refused(read, whole)
        known = ("empty", "complete", f"is cut: {size:,} of {len(data):,} bytes")
        assert any(said in message for said in known)


@pytest.mark.parametrize("content", [b"hello", b"\0" * 4096, b"SQLite format 3\0" + b"\xff" * 4096])
def test_no_database(path, content):
    path.write_bytes(content)
    refused(read, path, "database")


def test_pages_overwritten(whole):
    data = bytearray(whole.read_bytes())
    page = int.from_bytes(data[16:18], "big")
    for at in range(1, len(data) // page):
        damaged = bytearray(data)
        damaged[at * page : (at + 1) * page] = b"\xa5" * page
        whole.write_bytes(damaged)
        refused(read, whole, "nsys export")
    data[20:100] = b"\xa5" * 80
    whole.write_bytes(data)
    refused(read, whole)


NO_EVENTS = "holds no CUDA work, NVTX ranges or MPI calls"


@pytest.mark.parametrize(
    ("tables", "said"),
    [
        ({"users": [{"id": 1, "name": "x"}]}, "is an SQLite database, not an export of Nsight Systems"),
        ({"StringIds": NAMES, KERNEL: "start end globalPid deviceId"}, NO_EVENTS),
        ({"TARGET_INFO_SESSION_START_TIME": "utcEpochNs", "OSRT_API": [{"start": 1, "end": 2}]}, NO_EVENTS),
        ({"StringIds": NAMES, "NVTX_EVENTS": [nvtx(1, None, "main", eventType=39)]}, NO_EVENTS),
        ({KERNEL: [kernel(1, 2)]}, "has no table StringIds"),
        ({"NVTX_EVENTS": [nvtx(1, 2, "a")]}, "has no table StringIds"),
        *(
            (
                {"StringIds": NAMES, KERNEL: [{k: v for k, v in kernel(1, 2).items() if k != missing}]},
                f"table {KERNEL} has no start and end",
            )
            for missing in ("start", "end")
        ),
    ],
)
def test_an_export_that_lacks_what_it_needs(path, tables, said):
    refused(read, write(path, **tables), said)


@pytest.mark.parametrize(
    "made", ["PRAGMA user_version = 1", f'CREATE VIEW {KERNEL} AS SELECT 1 AS start, 2 AS "end"']
)
def test_a_database_without_tables(path, made):
    """Views and virtual tables are not followed."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(made)
    refused(read, path, "not an export of Nsight Systems")


LOCK = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN EXCLUSIVE")
print("locked", flush=True)
sys.stdin.read()
"""


def test_locked(whole):
    # Locks are a process's: another one must hold it.
    with subprocess.Popen(
        [sys.executable, "-c", LOCK, str(whole)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout.readline() == b"locked\n"
        message = refused(read, whole)
        other.stdin.close()
    assert "locked by another program" in message
    assert "wait until the export has ended" in message
    assert len(read(whole).rows) == 2000


def test_being_written(whole):
    with closing(sqlite3.connect(whole, isolation_level=None)) as writer:
        for statement in ("BEGIN", "PRAGMA cache_size = 1", "PRAGMA cache_spill = 1"):
            writer.execute(statement)
        writer.execute('UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET "end" = "end" + 1')
        message = refused(read, whole)
    assert "is not finished" in message or "locked" in message


def test_a_database_closed_in_wal_mode_reads_from_a_folder_that_cannot_be_written(whole):
    with closing(sqlite3.connect(whole, isolation_level=None)) as writer:
        writer.execute("PRAGMA journal_mode = WAL")
    whole.chmod(0o444)
    whole.parent.chmod(0o555)
    try:
        assert len(read(whole).rows) == 2000
    finally:
        whole.parent.chmod(0o755)


def test_reading_leaves_nothing_and_finds_no_other(whole):
    before = whole.read_bytes()
    read(whole)
    assert [file.name for file in whole.parent.iterdir()] == [whole.name]
    assert whole.read_bytes() == before
    reader = trace_reader("nsys")
    with pytest.raises(InputError, match="has no process '77'"):
        next(iter(reader.read(whole, part=Part(member="77"), allow_truncated=False).batches))
    refused(reader.parts, whole.with_name("missing.sqlite"), "cannot be read: No such file")


def test_a_name_longer_than_any(path):
    write(path, StringIds=strings("x" * (1 << 20), "y" * ((1 << 20) + 1)), **{KERNEL: [kernel(1, 2, name=1)]})
    assert len(read(path).rows[0]["name"]) == 1 << 20
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET demangledName = 2")
    refused(read, path, "a name of 1,048,577 characters")


def test_texts_that_are_none(path):
    write(path, StringIds=NAMES, **{KERNEL: [kernel(1, 2)]}, NVTX_EVENTS=[nvtx(1, 2, "step")])
    for table, column in (("NVTX_EVENTS", "text"), ("StringIds", "value")):
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute(f"UPDATE {table} SET {column} = CAST(x'ff41' AS TEXT)")  # noqa: S608
        refused(read, path, "cannot be read")


@pytest.mark.parametrize("strange", ["text", 1.5, b"blob", -1, 1 << 62])
@pytest.mark.parametrize("column", ["globalPid", "deviceId", "correlationId", "demangledName", "gridX"])
def test_strange_values_never_end_in_a_traceback(path, column, strange):
    gpus = [{"id": strange, "pwGpuId": strange, "cuDevice": strange, "name": strange}]
    metrics = [{"timestamp": 1, "typeId": strange, "metricId": strange, "value": strange}]
    tables = {"TARGET_INFO_GPU": gpus, "GPU_METRICS": metrics}
    tables |= {"TARGET_INFO_GPU_METRICS": [{"metricId": strange, "metricName": strange}]}
    tables |= {"DIAGNOSTIC_EVENT": [{"severity": 2, "text": strange}]}
    tables |= {"MPI_RANKS": [{"globalTid": strange, "rank": strange}]}
    tables |= {"META_DATA_EXPORT": [{"name": "EXPORT_SCHEMA_VERSION", "value": strange}]}
    tables |= {"META_DATA_CAPTURE": [{"name": "A:ENVIRONMENT_VARIABLE", "value": strange}]}
    write(path, StringIds=NAMES, **{KERNEL: [kernel(1, 2, **{column: strange})]}, **tables)
    with suppress(InputError):
        read(path)


def header(page: int, pages: int, *, changes: int = 1, valid: int = 1) -> bytes:
    """The first hundred bytes of a database of so many pages."""
    told = bytearray(b"SQLite format 3\0".ljust(100, b"\0"))
    told[16:18], told[18:20] = page.to_bytes(2, "big"), b"\1\1"
    told[24:28], told[28:32] = changes.to_bytes(4, "big"), pages.to_bytes(4, "big")
    told[92:96] = valid.to_bytes(4, "big")
    return bytes(told)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (header(4096, 3), "byte 100: is cut: 100 of 12,288 bytes; export it again"),
        (header(1, 2), "byte 100: is cut: 100 of 131,072 bytes; export it again"),
        (header(2, 51), "byte 100: is cut: 100 of 102 bytes; export it again"),
        (header(4096, 3)[:99], "byte 0: is not a complete SQLite database; export it again"),
        (b"X" + header(4096, 3)[1:], "byte 0: is not a complete SQLite database; export it again"),
        (b"", "empty file; export it again"),
    ],
)
def test_a_header_tells_how_long_the_file_must_be(path, content, says):
    path.write_bytes(content)
    assert refused(read, path).startswith(f"{path}: {says}")


@pytest.mark.parametrize(
    "content", [header(4096, 3, valid=2), header(2, 50), header(4096, 3).ljust(12_288, b"\0")]
)
def test_a_length_that_is_reached_or_not_stated_is_no_cut(path, content):
    path.write_bytes(content)
    assert "is cut" not in refused(read, path)


@pytest.mark.parametrize("end", ["-wal", "-journal"])
def test_changes_beside_a_file_are_not_passed_over(whole, end):
    beside = whole.with_name(whole.name + end)
    beside.write_bytes(b"")
    assert len(read(whole).rows) == 2000
    beside.write_bytes(b"x")
    refused(read, whole, f"is not finished: {beside.name} next to it has changes; wait until")


def rewritten(export: Path) -> tuple[Any, dict[tuple[str, str], int]]:
    """A function that selects from the rewritten copy, and what was counted, with a copy and without."""
    redactor, only_counted = PlainRedactor(), PlainRedactor()
    target = export.with_name("new.sqlite")
    target.unlink(missing_ok=True)
    DatabaseRewriter(export, redactor).rewrite_into(target)  # type: ignore[arg-type]
    before = export.read_bytes()
    DatabaseRewriter(export, only_counted).rewrite_into(None)  # type: ignore[arg-type]
    assert export.read_bytes() == before
    assert only_counted.counted == redactor.counted

    def select(sql: str) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(target)) as database:
            return database.execute(sql).fetchall()

    return select, dict(redactor.counted)


@pytest.fixture
def export(tmp_path: Path) -> Path:
    """In a folder whose name is not UTF-8, and that a URI has to escape."""
    folder = tmp_path / os.fsdecode(b"r\xe9sultats #1?%25")
    folder.mkdir()
    return folder / "trace.sqlite"


def test_texts_and_blobs_of_every_column_change_as_what_they_are(export: Path) -> None:
    rows = [(1, "plain", b"a secret", "secret"), (2, "secret", "secret", b"secret"), (3, "secret", None, 7)]
    rows.append(("secret", 1.5, b"fine", None))
    tables = {"ODD": [dict(zip("abcd", row, strict=True)) for row in rows]}
    select, counted = rewritten(write(export, StringIds=strings("x"), **tables))
    assert select("SELECT * FROM ODD ORDER BY rowid") == [
        *((1, "plain", b"", "?"), (2, "?", "?", b""), (3, "?", None, 7), ("?", 1.5, b"", None)),
    ]
    words = {(f"ODD.{column}", "word"): count for column, count in zip("abcd", (1, 2, 1, 1), strict=True)}
    assert counted == words | {("ODD.c", UNREAD): 2, ("ODD.d", UNREAD): 1}


def test_rows_of_names_and_values_are_fields(export: Path) -> None:
    """As in TARGET_INFO_SYSTEM_ENV; where a table has no names, its columns are the fields."""
    told = (("kept", "a secret"), ("x", "alpha"), ("y", "secret"))
    rows = [{"name": name, "value": value} for name, value in told]
    tables = {"TARGET_INFO_SYSTEM_ENV": rows, "OTHER": [{"value": "secret", "kept": "secret"}]}
    select, counted = rewritten(write(export, StringIds=strings("x"), **tables))
    assert select("SELECT value FROM TARGET_INFO_SYSTEM_ENV") == [("a secret",), ("alpha",), ("?",)]
    assert select("SELECT value, kept FROM OTHER") == [("?", "secret")]
    assert counted == {("TARGET_INFO_SYSTEM_ENV.value", "word"): 1, ("OTHER.value", "word"): 1}


def test_the_same_value_counts_in_every_row(export: Path) -> None:
    rows = [{"text": "a secret"}] * 3 + [{"text": "b secret"}]
    assert rewritten(write(export, StringIds=strings("x"), ODD=rows))[1] == {("ODD.text", "word"): 4}


@pytest.mark.parametrize(
    ("statement", "named"),
    [
        ("CREATE TRIGGER t AFTER INSERT ON ODD BEGIN SELECT 1; END", "'t'"),
        *(("CREATE VIEW v AS SELECT 1", "'v'"), (f"CREATE VIEW {'v' * 70} AS SELECT 1", f"'{'v' * 60}'")),
        *(("CREATE VIRTUAL TABLE w USING fts5(x)", "'w'"), ("CREATE INDEX i ON ODD (a)", None)),
    ],
)
def test_a_schema_that_holds_more_than_an_exports(export: Path, statement: str, named: str | None) -> None:
    write(export, StringIds=strings("x"), ODD=[{"a": "secret"}])
    with closing(sqlite3.connect(export)) as database, database:
        database.execute(statement)
    if named is None:
        assert rewritten(export)[1] == {("ODD.a", "word"): 1}
        return
    says = rf"its schema has more than an export's \({named}\); export it again"
    with pytest.raises(InputError, match=says):
        rewritten(export)


def test_values_beyond_a_bound_are_refused(export: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rewriting, "_LONGEST", 1 << 16)
    write(export, StringIds=strings("x"), ODD=[{"a": "x" * 70_000}])
    with pytest.raises(InputError, match=r"trace.sqlite: cannot be redacted: .*too big; export it again"):
        rewritten(export)


def test_nothing_of_the_old_pages_or_of_working_copies_is_left(export: Path) -> None:
    write(export, StringIds=strings("x"), ODD=[{"a": "secret " * 500}])
    rewritten(export)
    assert b"secret" not in export.with_name("new.sqlite").read_bytes()
    assert sorted(file.name for file in export.parent.iterdir()) == ["new.sqlite", "trace.sqlite"]
