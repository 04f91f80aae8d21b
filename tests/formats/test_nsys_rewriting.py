# SPDX-License-Identifier: Apache-2.0
"""Exports rewritten table by table: which values change, how often they count, and what is refused."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from helpers.nsys_files import strings, write
from helpers.plain_redactor import PlainRedactor

from cclbench.formats.nsys import rewriting
from cclbench.formats.nsys.rewriting import DatabaseRewriter
from cclbench.formats.rewriting import HOST, UNREAD
from cclbench.ground.errors import InputError


def rewritten(path: Path) -> tuple[Any, dict[tuple[str, str], int]]:
    """A function that selects from the rewritten copy, and what was counted, with a copy and without."""
    redactor, only_counted = PlainRedactor(), PlainRedactor()
    target = path.with_name("new.sqlite")
    target.unlink(missing_ok=True)
    DatabaseRewriter(path, redactor).rewrite_into(target)  # type: ignore[arg-type]
    before = path.read_bytes()
    DatabaseRewriter(path, only_counted).rewrite_into(None)  # type: ignore[arg-type]
    assert path.read_bytes() == before
    assert only_counted.counted == redactor.counted

    def select(sql: str) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(target)) as database:
            return database.execute(sql).fetchall()

    return select, dict(redactor.counted)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """In a folder whose name is not UTF-8, and that a URI has to escape."""
    folder = tmp_path / os.fsdecode(b"r\xe9sultats #1?%25")
    folder.mkdir()
    return folder / "trace.sqlite"


def test_texts_and_blobs_of_every_column_change_as_what_they_are(path: Path) -> None:
    rows = [(1, "plain", b"a secret", "secret"), (2, "secret", "secret", b"secret"), (3, "secret", None, 7)]
    rows.append(("secret", 1.5, b"fine", None))
    tables = {"ODD": [dict(zip("abcd", row, strict=True)) for row in rows]}
    select, counted = rewritten(write(path, StringIds=strings("x"), **tables))
    assert select("SELECT * FROM ODD ORDER BY rowid") == [
        *((1, "plain", b"", "?"), (2, "?", "?", b""), (3, "?", None, 7)),
        ("?", 1.5, b"", None),
    ]
    words = {(f"ODD.{column}", "word"): count for column, count in zip("abcd", (1, 2, 1, 1), strict=True)}
    assert counted == words | {("ODD.c", UNREAD): 2, ("ODD.d", UNREAD): 1}


def test_rows_of_names_and_values_are_fields(path: Path) -> None:
    """As in TARGET_INFO_SYSTEM_ENV; where a table has no names, its columns are the fields."""
    told = (("Hostname", "alpha"), ("x", "alpha"), ("y", "secret"))
    rows = [{"name": name, "value": value} for name, value in told]
    tables = {"TARGET_INFO_SYSTEM_ENV": rows, "OTHER": [{"value": "alpha", "Hostname": "alpha"}]}
    select, counted = rewritten(write(path, StringIds=strings("x"), **tables))
    assert select("SELECT value FROM TARGET_INFO_SYSTEM_ENV") == [("host name",), ("alpha",), ("?",)]
    assert select("SELECT value, Hostname FROM OTHER") == [("alpha", "host name")]
    where = "TARGET_INFO_SYSTEM_ENV.value"
    assert counted == {(where, HOST): 1, (where, "word"): 1, ("OTHER.Hostname", HOST): 1}


def test_the_same_value_counts_in_every_row(path: Path) -> None:
    rows = [{"text": "a secret"}] * 3 + [{"text": "b secret"}]
    assert rewritten(write(path, StringIds=strings("x"), ODD=rows))[1] == {("ODD.text", "word"): 4}


@pytest.mark.parametrize(
    ("statement", "named"),
    [
        ("CREATE TRIGGER t AFTER INSERT ON ODD BEGIN SELECT 1; END", "'t'"),
        ("CREATE VIEW v AS SELECT 1", "'v'"),
        (f"CREATE VIEW {'v' * 70} AS SELECT 1", f"'{'v' * 60}'"),
        ("CREATE VIRTUAL TABLE w USING fts5(x)", "'w'"),
        ("CREATE INDEX i ON ODD (a)", None),
    ],
)
def test_a_schema_that_holds_more_than_an_exports(path: Path, statement: str, named: str | None) -> None:
    write(path, StringIds=strings("x"), ODD=[{"a": "secret"}])
    with closing(sqlite3.connect(path)) as database, database:
        database.execute(statement)
    if named is None:
        assert rewritten(path)[1] == {("ODD.a", "word"): 1}
        return
    says = rf"its schema has more than an export's \({named}\); export it again"
    with pytest.raises(InputError, match=says):
        rewritten(path)


def test_values_beyond_a_bound_are_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rewriting, "_LONGEST", 1 << 16)
    write(path, StringIds=strings("x"), ODD=[{"a": "x" * 70_000}])
    with pytest.raises(InputError, match=r"trace.sqlite: cannot be redacted: .*too big; export it again"):
        rewritten(path)


def test_nothing_of_the_old_pages_or_of_working_copies_is_left(path: Path) -> None:
    write(path, StringIds=strings("x"), ODD=[{"a": "secret " * 500}])
    rewritten(path)
    assert b"secret" not in path.with_name("new.sqlite").read_bytes()
    assert sorted(file.name for file in path.parent.iterdir()) == ["new.sqlite", "trace.sqlite"]
