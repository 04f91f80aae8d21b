# SPDX-License-Identifier: Apache-2.0
"""DFTracer's traces: calls to the microsecond, bytes as they returned, damage by line, no path published."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from helpers.hand_made import Evidence as Given
from helpers.hand_made import job_values

from cclbench.analyzers.metric import Value
from cclbench.contribute.redaction import redact_evidence
from cclbench.formats import Evidence, recognise_format
from cclbench.formats.dftracer import DfTracer
from cclbench.formats.unread import UnreadFormatError, refuse_unread
from cclbench.ground.errors import InputError


def meta(name: str, /, **args: object) -> dict[str, Any]:
    return {"id": 1, "name": name, "cat": "dftracer", "pid": 7, "tid": 7, "ph": "M", "args": args}


def call(name: str, ts: int, dur: int, cat: str = "POSIX", pid: int = 7, **args: object) -> dict[str, Any]:
    row = {"id": 2, "name": name, "cat": cat, "pid": pid, "tid": 7, "ts": ts, "dur": dur, "ph": "X"}
    return row | {"args": args}


ROWS = [
    *(meta("HH", name="moonshot-7", value=5), meta("FH", name="/scratch/ada/lunar.h5", value=9)),
    *(call("start", 0, 0, "dftracer", version=1), call("open64", 1_700_000_000_000_000, 10, fhash=9)),
    call("read", 1_700_000_000_000_020, 10, fhash=9, ret=4096, count=8192),
    call("fread", 1_700_000_000_000_025, 15, "STDIO", fhash=9, ret="10", size=8, count=100),
    call("pwrite64", 1_700_000_000_000_050, 0, fhash=9, ret=-1),
    *(call("load_batch", 1_700_000_000_000_000, 100, "ada_loader"), meta("PR", name="rank", value="3")),
    call("end", 1_700_000_000_000_100, 0, "dftracer", num_events=10),
]


def written(path: Path, rows: list[dict[str, Any]] | str) -> Path:
    if not isinstance(rows, str):
        rows = "\n".join(json.dumps(row, separators=(",", ":")) for row in rows)
    path.write_bytes(gzip.compress(f"[\n{rows}\n]\n".encode()))
    return path


def read(path: Path) -> Evidence:
    assert recognise_format(path, gzip.decompress(path.read_bytes())).name == "dftracer"
    return DfTracer().read(path)


def test_calls_have_their_file_kind_and_bytes(tmp_path: Path) -> None:
    found = read(written(tmp_path / "a.pfw.gz", ROWS))
    names = ("rank", "process", "layer", "function", "kind", "path", "dur_ns", "bytes")
    own = "/scratch/ada/lunar.h5"
    assert [tuple(row[name] for name in names) for row in found.io_calls.to_pylist()] == [
        (3, 7, "POSIX", "open64", "metadata", own, 10_000, None),
        (3, 7, "POSIX", "read", "read", own, 10_000, 4096),
        (3, 7, "STDIO", "fread", "read", own, 15_000, 80),
        (3, 7, "POSIX", "pwrite64", "write", own, 0, None),
        (3, 7, "ada_loader", "load_batch", "application", None, 100_000, None),
    ]
    assert found.io_calls["start_ns"][1].as_py() == 1_700_000_000_000_020_000
    assert found.left_out == {}
    # what the last row counts and the file lacks
    found = read(written(tmp_path / "b.pfw.gz", [row for row in ROWS if row["name"] != "read"]))
    assert found.left_out == {"rows that the file counts and does not have": 1}


def values(metric: str, table: pa.Table) -> dict[tuple[str | None, str | None], float | None]:
    found: list[Value] = job_values(metric, Given(io_calls=table))
    return {(value.category, value.stat): value.value for value in found}


def test_metrics_by_hand(tmp_path: Path) -> None:
    """Two processes: reads 20 to 40 µs and 30 to 60 µs are 40 µs, with an open of 10 µs 50 of 60 µs."""
    rows = [
        *(call("open", 0, 10), call("read", 20, 20, ret=3000), call("read", 30, 30, pid=8, ret=1000)),
        *(call("epoch", 0, 500, "loader"), call("write", 50, 5, ret=500)),
    ]
    table = read(written(tmp_path / "a.pfw.gz", rows)).io_calls
    table = table.set_column(0, "source", pa.array(["dftracer"] * 5)).cast(table.schema)
    known: dict[Any, Any] = {(None, None): 50e-6, (None, "share"): 50 / 60}
    for kind, seconds, count in (("read", 40e-6, 2), ("write", 5e-6, 1), ("metadata", 10e-6, 1)):
        known |= {(kind, None): seconds, (kind, "count"): count}
    assert values("storage.io_time", table) == pytest.approx(known)
    known = {(None, None): 4500, ("read", None): 4000, ("write", None): 500}
    assert values("storage.io_bytes", table) == known
    assert values("storage.io_rate", table) == pytest.approx(
        {(None, None): 4500 / 40e-6, ("read", None): 1e8, ("write", None): 1e8}
    )
    latency = values("storage.io_latency", table)
    assert latency[None, None] == pytest.approx(65e-6 / 4)
    reads = {None: 25e-6, "p50": 25e-6, "p99": 29.9e-6, "max": 30e-6, "sum": 50e-6, "count": 2}
    assert {stat: latency["read", stat] for stat in reads} == pytest.approx(reads)


BAD = {
    "no row": ('{"id":1,"name":"read","cat":"POSIX"}', "line 2: is not a row"),
    "no JSON": ('{"id":1,', "line 2: is not a row"),
    "no call": (json.dumps(ROWS[0]), "has no call"),
    "a time before 1970": (json.dumps(call("read", -1, 1)), "line 2: has a time or process"),
    "a late time": (json.dumps(call("read", 1 << 60, 1)), "line 2: has a time or process"),
}


@pytest.mark.parametrize("case", BAD)
def test_damage_is_an_error_that_says_where(tmp_path: Path, case: str) -> None:
    text, says = BAD[case]
    with pytest.raises(InputError, match=says):
        DfTracer().read(written(tmp_path / "a.pfw.gz", text))
    cut = tmp_path / "cut.pfw.gz"
    cut.write_bytes(written(tmp_path / "b.pfw.gz", ROWS).read_bytes()[:-20])
    with pytest.raises(InputError, match="damaged"):
        DfTracer().read(cut)


def test_rows_of_lines_without_calls_for_files_are_no_trace_of_it(tmp_path: Path) -> None:
    head = b'[\n{"name": "a", "cat": "gpu", "ph": "X"}\n{"name": "b", "cat": "gpu", "ph": "X"}\n'
    assert DfTracer().sniff(head) == 0
    with pytest.raises(UnreadFormatError, match="a row a line"):
        refuse_unread(tmp_path / "a.json", head)


def test_paths_and_hosts_are_not_published(tmp_path: Path) -> None:
    old = call("read", 1, 2, hostname="moonshot-7", fname="/scratch/ada/lunar.h5", ret=5)
    source, target = written(tmp_path / "a.pfw.gz", [*ROWS, old]), tmp_path / "b.pfw.gz"
    redact_evidence(source, target)
    copy = gzip.decompress(target.read_bytes()).decode()
    assert not [word for word in ("moonshot", "lunar", "scratch", "/ada") if word in copy]
    own, copied = (DfTracer().read(path).io_calls for path in (source, target))
    for column in set(own.column_names) - {"path", "layer", "function"}:
        assert own[column] == copied[column], column
    assert copied["path"].null_count == len(copied)


def test_a_real_job_has_all_rows_that_its_files_count(test_data: Path) -> None:
    files = sorted((test_data / "dftracer" / "examples").rglob("*.pfw.gz"))
    tables = [DfTracer().read(path) for path in files]
    assert {table.left_out == {} for table in tables} == {True}
    calls = pa.concat_tables([table.io_calls for table in tables if table.io_calls is not None])
    assert len(calls) == 37_495
    assert sorted(set(calls["rank"].to_pylist())) == [0, 1, 2, 3, 4, 5]
    moved = dict.fromkeys(("read", "write"), 0)
    for path in files:
        for line in gzip.decompress(path.read_bytes()).decode().splitlines():
            row = json.loads(line) if line.startswith("{") else {"args": {}, "name": ""}
            for kind, size in (("read", 1), ("fread", row["args"].get("size")), ("write", 1)):
                if row["name"] == kind and row["args"].get("ret", -1) >= 0:
                    moved[kind.removeprefix("f")] += row["args"]["ret"] * size
    found = values("storage.io_bytes", calls.unify_dictionaries())
    assert (found["read", None], found["write", None]) == (moved["read"], moved["write"])
    assert np.all(calls["dur_ns"].to_numpy() % 1000 == 0)
