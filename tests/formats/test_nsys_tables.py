# SPDX-License-Identifier: Apache-2.0
"""Exports of Nsight Systems as folders of tables: equal to the SQLite export, row for row."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from formats.test_nsys_run import KNOWN, two_processes
from helpers import nsys_files

from cclbench.formats import Rows, Trace, trace_reader
from cclbench.ground.errors import InputError
from cclbench.ingestion.source import find_source

REAL = Path("nsys", "nsysai_mfu_2gpu_before_c8f71e.sqlite")
KERNELS = "CUPTI_ACTIVITY_KIND_KERNEL"


def as_folder(database: Path, folder: Path, ending: str) -> Path:
    """The tables of a database as a folder of files; the one that stands for all."""
    folder.mkdir()
    connection = sqlite3.connect(database)
    for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
        rows = connection.execute(f'SELECT * FROM "{name}"')  # noqa: S608 - names of the schema
        names, values = [column[0] for column in rows.description], rows.fetchall()
        columns = list(zip(*values, strict=True)) if values else [()] * len(names)
        table = pa.table({n: pa.array(list(column)) for n, column in zip(names, columns, strict=True)})
        path = folder / f"{name}{ending}"
        if ending == ".parquet":
            pq.write_table(table, path)
        else:
            with pa.ipc.new_file(path, table.schema) as file:
                file.write(table)
    connection.close()
    (main,) = find_source(folder).files
    assert (main.reader, find_source(folder).ignored) == ("nsys_tables", ())
    return main.path


def plain(rows: Rows | pa.Table) -> list[Any]:
    """A batch as plain values."""
    if isinstance(rows, pa.Table):
        return rows.to_pylist()
    values = [getattr(rows, field.name) for field in fields(rows)]
    return [v.tolist() if isinstance(v, np.ndarray | pa.Array) else v for v in values]


def read(reader: str, path: Path) -> list[tuple[Trace, list[Any]]]:
    """Each process with all its rows."""
    found = []
    for part in trace_reader(reader).parts(path):
        trace = trace_reader(reader).read(path, part=part, allow_truncated=False)
        found.append((trace, [plain(batch) for batch in trace.batches]))
    return found


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "job.sqlite"
    nsys_files.write(path, **{**KNOWN, **two_processes()})
    return path


@pytest.mark.parametrize("ending", [".parquet", ".arrow"])
@pytest.mark.parametrize("name", ["synthetic", "real"])
def test_equal_to_the_database(
    name: str, ending: str, tmp_path: Path, database: Path, request: pytest.FixtureRequest
) -> None:
    if name == "real":
        database = request.getfixturevalue("test_data") / REAL
    expected = read("nsys", database)
    found = read("nsys_tables", as_folder(database, tmp_path / "job_dir", ending))
    assert [rows for _, rows in found] == [rows for _, rows in expected]
    for (trace, _), (other, _) in zip(found, expected, strict=True):
        assert (trace.facts, trace.dropped, trace.notes) == (other.facts, other.dropped, other.notes)
        assert trace.told.payloads == other.told.payloads
        assert trace.told.start_ns == other.told.start_ns
    assert sum(len(rows) for _, rows in expected) > 0


def test_reports_in_several_folders(tmp_path: Path, database: Path) -> None:
    main = as_folder(database, tmp_path / "b_pqtdir", ".parquet")
    other = as_folder(database, tmp_path / "a_arwdir", ".arrow")
    database.unlink()
    assert [file.path for file in find_source(tmp_path).files] == [other, main]
    before = find_source(tmp_path).fingerprint()
    (tmp_path / "b_pqtdir" / "more.parquet").write_bytes(b"PAR1")
    assert find_source(tmp_path).fingerprint() != before


def replace_column(path: Path, name: str, values: pa.Array) -> None:
    table = pq.read_table(path)
    pq.write_table(table.set_column(table.column_names.index(name), name, values), path)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda path: path.write_bytes(path.read_bytes()[:-9]), r"KERNEL.parquet: is damaged"),
        (lambda path: path.write_bytes(b"PAR1" + bytes(99)), r"KERNEL.parquet: is damaged"),
        (
            lambda path: replace_column(path, "start", pa.array(["x"] * len(pq.read_table(path)))),
            "holds string values",
        ),
        (lambda path: path.with_name("StringIds.parquet").unlink(), "has no table StringIds"),
    ],
)
def test_damaged_tables(change: Callable[[Path], object], said: str, tmp_path: Path, database: Path) -> None:
    path = as_folder(database, tmp_path / "job_pqtdir", ".parquet")
    assert path.stem == KERNELS
    change(path)
    with pytest.raises(InputError, match=said):
        read("nsys_tables", path)
