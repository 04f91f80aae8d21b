# SPDX-License-Identifier: Apache-2.0
"""Real Nsight Systems captures against SQL over the same file, to the nanosecond.

Two H100 under torchrun (schema 3.25), an A100 with MPI (2.9), and a fabricated export of six tables.
"""

from __future__ import annotations

import re
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import cclbench
from cclbench.record.run import Run

from .conftest import Measure

TWO_GPUS = "nsysai_mfu_2gpu_before_c8f71e.sqlite"
MPI = "pipit_saxpy_mpi_cuda_perlmutter0.sqlite"
MINIMAL = "synthetic/nsysai_healthy_1pct_710487.sqlite"
PROCESSES = {0: 281477392629760, 1: 281477409406976}
"""`globalPid` by rank: the process on device 0, then that on device 1."""
WORK = """
WITH named AS (SELECT id, value LIKE '%nccl%' AS communicates FROM StringIds),
     work AS (
       SELECT start, "end", CASE WHEN communicates THEN 'K' ELSE 'C' END AS kind
       FROM CUPTI_ACTIVITY_KIND_KERNEL JOIN named ON id = demangledName WHERE globalPid = :process
       UNION ALL SELECT start, "end", 'M' FROM CUPTI_ACTIVITY_KIND_MEMCPY WHERE globalPid = :process
       UNION ALL SELECT start, "end", 'M' FROM CUPTI_ACTIVITY_KIND_MEMSET WHERE globalPid = :process)
"""
UNION = """, swept AS (
       SELECT start, "end", max("end") OVER (
         ORDER BY start, "end" ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS reach
       FROM work WHERE instr(:kinds, kind))
SELECT coalesce(sum(max(0, "end" - max(start, coalesce(reach, start)))), 0) FROM swept
"""
"""After WORK: length of the union of some kinds of device work of a process."""
SPAN = ' SELECT max("end") - min(start) FROM work'
JOINED = """
SELECT count(*) FROM CUPTI_ACTIVITY_KIND_KERNEL k JOIN CUPTI_ACTIVITY_KIND_RUNTIME r
  ON r.correlationId = k.correlationId AND r.globalTid & ~0xFFFFFF = k.globalPid
WHERE k.globalPid = :process
"""


@pytest.fixture(scope="module")
def nsys(test_data: Path) -> Path:
    """The folder of Nsight Systems' exports."""
    return test_data / "nsys"


@pytest.fixture(scope="module")
def sql(nsys: Path) -> Iterator[Callable[..., int]]:
    """`sql(query, **values)`: the number that a query over the capture of two GPUs gives."""
    uri = f"{(nsys / TWO_GPUS).as_uri()}?mode=ro&immutable=1"
    with closing(sqlite3.connect(uri, uri=True)) as connection:
        yield lambda query, **values: connection.execute(query, values).fetchone()[0]


@pytest.fixture(scope="module")
def two_gpus(nsys: Path, measure: Measure) -> Run:
    """Both ranks' metrics over the whole trace."""
    return measure(nsys / TWO_GPUS, "trace")


def nanoseconds(run: Run, metric: str, rank: int) -> int:
    """A rank's own figure of a time."""
    keys = ("step", "group", "collective", "category", "stat")
    (value,) = (
        row["value"]
        for row in run.rows
        if row["metric"] == metric and row["rank"] == rank and all(row[key] is None for key in keys)
    )
    return round(value * 1e9)


def stored(run: Run, query: str) -> list[tuple[Any, ...]]:
    """Rows of the store's answer."""
    return [tuple(row.values()) for row in run.sql(query).to_pylist()]


@pytest.mark.parametrize("rank", PROCESSES)
def test_times_are_those_of_sql(two_gpus, sql, rank):
    process = PROCESSES[rank]
    length = {kinds: sql(WORK + UNION, process=process, kinds=kinds) for kinds in ("C", "K", "CK", "CKM")}
    window = sql(WORK + SPAN, process=process)
    both = length["C"] + length["K"] - length["CK"]
    expected = {"time.step": window, "compute.time": length["C"], "comm.time": length["K"]}
    expected |= {"time.compute_only": length["C"] - both, "time.overlapped": both}
    expected |= {"time.exposed_comm": length["K"] - both, "time.exposed_copy": length["CKM"] - length["CK"]}
    expected |= {"time.idle": window - length["CKM"]}
    assert {metric: nanoseconds(two_gpus, metric, rank) for metric in expected} == expected
    assert min(length.values()) > 0


def test_every_kernel_is_in_and_joined_to_its_own_process(two_gpus, sql):
    shared = sql(
        "SELECT count(*) FROM (SELECT correlationId FROM CUPTI_ACTIVITY_KIND_KERNEL"
        " GROUP BY 1 HAVING count(DISTINCT globalPid) > 1)"
    )
    assert shared == 78
    counts = stored(two_gpus, "SELECT rank, count(*) FROM events WHERE kind = 'kernel' GROUP BY 1 ORDER BY 1")
    assert counts == [(0, 1993), (1, 2017)]
    joined = (
        "SELECT rank, count(*) FROM events k JOIN events l USING (rank, correlation)"
        " WHERE k.kind = 'kernel' AND l.kind = 'launch' GROUP BY 1 ORDER BY 1"
    )
    own = [(rank, sql(JOINED, process=process)) for rank, process in PROCESSES.items()]
    assert stored(two_gpus, joined) == own
    late = (
        "SELECT count(*) FROM events k JOIN events l ON l.rank = k.rank AND l.correlation = k.correlation"
        " AND l.kind = 'launch' WHERE k.kind = 'kernel' AND k.start_ns < l.start_ns"
    )
    assert stored(two_gpus, late) == [(0,)]


COPIES = "SELECT rank, copy_direction, count(*), sum(bytes)::BIGINT FROM events WHERE kind = 'copy'"
ANSWERS = {
    "SELECT count(*) FROM events WHERE kind = 'kernel' AND category = 'communication'": [(66,)],
    # One rank's first two kernels were launched before the capture began.
    "SELECT kind, library, count(*), count(in_bytes) FROM collectives GROUP BY ALL ORDER BY 1": [
        *(("all_to_all", "nccl", 64, 0), ("send_recv", "nccl", 2, 0))
    ],
    f"{COPIES} GROUP BY ALL ORDER BY 1, 2": [
        *((0, "d2d", 493, 4023067136), (0, "h2d", 17, 136), (1, "d2d", 493, 4023067136), (1, "h2d", 17, 136))
    ],
}


def test_communication_copies_and_the_wall_clock(two_gpus, sql):
    """Sends and receives are of the kind that PyTorch names; an export without payloads says so."""
    assert {query: stored(two_gpus, query) for query in ANSWERS} == ANSWERS
    first = sql("SELECT min(start) FROM CUPTI_ACTIVITY_KIND_KERNEL")
    epoch = sql("SELECT utcEpochNs FROM TARGET_INFO_SESSION_START_TIME")
    assert stored(two_gpus, "SELECT min(start_ns) FROM events WHERE kind = 'kernel'") == [(epoch + first,)]
    notes = [note for entry in two_gpus.manifest["ranks"] for note in entry["notes"]]
    assert len(notes) == 2
    assert all("--include-blobs=true" in note for note in notes)


def test_mpi_and_kernels(nsys, measure):
    run = measure(nsys / MPI, "trace")
    names = "SELECT name, count(*) FROM events WHERE kind IN ('op', 'kernel') GROUP BY 1 ORDER BY 1"
    calls = [
        (f"MPI_{name}", count) for name, count in (("Finalize", 1), ("Init", 1), ("Recv", 5), ("Send", 10))
    ]
    assert stored(run, names) == [*calls, ("saxpy(double *, double *, double *, double, int)", 5)]
    category = "SELECT category, count(*) FROM events WHERE name LIKE 'MPI_%' GROUP BY 1 ORDER BY 2"
    assert ("communication", 15) in stored(run, category)
    (entry,) = run.manifest["ranks"]
    facts = entry["facts"]
    assert (entry["rank"], facts["rank_source"]) == (0, "MPI")
    assert (facts["device_name"], facts["sm_count"]) == ("NVIDIA A100-SXM4-40GB", 108)
    assert facts["producer_version"] == "2022.2.1.31 (schema 2.9.1)"
    assert entry["dropped"]["table SCHED_EVENTS"] == 3238


def test_mpi_beside_a_device(nsys, measure):
    run = measure(nsys / MPI, "trace")
    uri = f"{(nsys / MPI).as_uri()}?mode=ro&immutable=1"
    tables = ("KERNEL", "MEMCPY", "MEMSET")
    rows = " UNION ALL ".join(f'SELECT start, "end" FROM CUPTI_ACTIVITY_KIND_{of}' for of in tables)  # noqa: S608
    calls = (
        "SELECT lower(substr(value, 5)), count(*) FROM NVTX_EVENTS JOIN StringIds ON id = textId"
        " WHERE value IN ('MPI_Send', 'MPI_Recv') AND eventType IN (59, 60, 70, 71) GROUP BY 1 ORDER BY 1"
    )
    with closing(sqlite3.connect(uri, uri=True)) as connection:
        (window,) = connection.execute(f'SELECT max("end") - min(start) FROM ({rows})').fetchone()  # noqa: S608
        expected = connection.execute(calls).fetchall()
    assert nanoseconds(run, "time.step", 0) == window
    assert expected == [("recv", 5), ("send", 10)]
    query = "SELECT kind, count(*) FROM collectives WHERE library = 'mpi' GROUP BY 1 ORDER BY 1"
    assert stored(run, query) == expected
    assert stored(run, "SELECT count(*) FROM collectives") == [(15,)]
    assert nanoseconds(run, "comm.time", 0) == 0


def secrets(path: Path) -> set[str]:
    """Environment, names of hosts, users and processes, command lines in an export, but for generic words."""
    wanted = {
        "META_DATA_CAPTURE": "name GLOB 'PROCESS_*' OR name GLOB 'DEVICE_*' OR name GLOB 'PACKAGE*'",
        "TARGET_INFO_SYSTEM_ENV": "name IN ('Hostname', 'DeviceEnvironment', 'TargetInstallDir')",
    }
    texts: list[bytes] = []
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro&immutable=1", uri=True)) as connection:
        connection.text_factory = bytes
        tables = {name.decode() for (name,) in connection.execute("SELECT name FROM sqlite_master")}
        for table, where in wanted.items():
            if table in tables:
                query = f"SELECT value FROM {table} WHERE ({where}) AND typeof(value) = 'text'"  # noqa: S608
                texts += [value for (value,) in connection.execute(query)]
        if "PROCESSES" in tables:
            texts += [name for (name,) in connection.execute("SELECT name FROM PROCESSES") if b"/" in name]
    found = set()
    for text in texts:
        for entry in re.split(r"[;\0\n]", text.decode(errors="replace")):
            name, _, value = entry.partition("=")
            found |= {entry, value.strip('"') if name.isidentifier() else entry}
    return {one for one in found if len(one) > 5 and not re.fullmatch(r"[\d.]+|x86_64|NVIDIA|nvidia", one)}


def texts_of(folder: Path) -> str:
    """Everything that a store holds, as text: JSON as it is, and the texts of its Parquet files."""
    found = []
    for path in folder.rglob("*"):
        if path.suffix == ".parquet":
            table = pq.read_table(path)
            found += [str(table.schema.metadata), *table.column_names]
            for column in table.columns:
                if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
                    found += map(
                        str, column.unique().to_pylist() if not pa.types.is_list(column.type) else column
                    )
        elif path.is_file():
            found.append(path.read_text(errors="replace"))
    return "\n".join(found)


@pytest.mark.parametrize("file", [TWO_GPUS, MPI])
def test_nothing_of_the_machine_or_its_environment_is_stored(nsys, tmp_path, file):
    hidden = secrets(nsys / file)
    assert len(hidden) > 50
    capture = shutil.copy(nsys / file, tmp_path / "capture.sqlite")  # its own name says a machine's
    cclbench.run(capture, store=tmp_path / "store", window="trace")
    kept = texts_of(tmp_path / "store")
    assert "Nsight Systems" in kept
    assert "cudaLaunchKernel" in kept
    assert {one for one in hidden if one in kept} == set()


def test_six_tables_are_enough(nsys, measure):
    run = measure(nsys / MINIMAL, "trace")
    (entry,) = run.manifest["ranks"]
    assert entry["facts"]["device_name"] == "NVIDIA H100 80GB HBM3"
    assert entry["dropped"] == {}
    kinds = "SELECT kind, count(*) FROM events GROUP BY 1 ORDER BY 1"
    assert stored(run, kinds) == [("kernel", 400), ("launch", 400)]
    assert nanoseconds(run, "compute.time", 0) == 400_000_000
