# SPDX-License-Identifier: Apache-2.0
"""Small exports through all of `cclbench.run`, and as folders of tables: equal, row for row."""

from __future__ import annotations

import importlib
import sqlite3
import struct
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers import nsys_files
from helpers.nsys_files import CALL, KERNEL, SESSION, blob, call, kernel, nvtx, read, strings, write

import cclbench
from cclbench.formats import Rows, Trace, trace_reader
from cclbench.ground.errors import InputError
from cclbench.ingestion.source import find_source
from cclbench.operator_table import operator_costs

REDUCTION, PRODUCT = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgs)", "sm90_xmma_gemm_bf16"
NAMES = strings(
    *(REDUCTION, "cudaLaunchKernelExC_v11060", "ncclCommInitRank", "ncclAllReduce", PRODUCT),
    "cudaGraphLaunch_v10000",
)
REDUCE, LAUNCH, INIT, CALLED, GEMM, GRAPH_LAUNCH = range(1, 7)
SCHEMAS = [
    {"domainId": 1, "schemaId": schema, "idx": 0, "type": kind, "name": name, "offset": offset}
    for schema, kind, name, offset in (
        *((50, 18, "NCCL communicator ID", None), (50, 22, "Message size [bytes]", 8)),
        *((51, 18, "NCCL communicator ID", None), (51, 5, "No. of ranks", 8), (51, 5, "Rank", 12)),
    )
]
KNOWN = {"StringIds": NAMES, "TARGET_INFO_SESSION_START_TIME": SESSION}
KNOWN |= {"NVTX_PAYLOAD_SCHEMA_ENTRIES": SCHEMAS}


@pytest.fixture
def run(tmp_path):
    """Metrics over the whole trace of an export of these tables."""
    path, options = tmp_path / "trace.sqlite", {"store": tmp_path / "store", "window": "trace"}
    return lambda **tables: cclbench.run(write(path, **KNOWN, **tables), **options)


def nccl(pid, start, end, name, *fields, comm=0xABC):
    """A range of NCCL's domain; the payload after the communicator is a size, or size and rank of it."""
    schema, form = (50, "<QQ") if len(fields) == 1 else (51, "<Qii")
    payload = blob(schema, struct.pack(form, comm, *fields))
    return nvtx(start, end, pid=pid, textId=name, domainId=1, binaryData=payload)


def two_processes(size=2, comms=(0xABC, 0xABC)):
    """Two processes that each multiply for 100 ns and reduce 4,000 B, the second 40 ns after the first."""
    kernels, calls, ranges = [], [], []
    for rank, (pid, start) in enumerate(((10, 200), (11, 240))):
        on = {"pid": pid, "deviceId": rank}
        reduce = kernel(start, 300, name=REDUCE, correlationId=7, **on)
        kernels += [kernel(50, 150, name=GEMM, **on), reduce]
        calls.append(call(105, 110, 7, pid=pid))
        ranges.append(nccl(pid, 1, 5, INIT, size, rank, comm=comms[rank]))
        ranges.append(nccl(pid, 100, 130, CALLED, 4000, comm=comms[rank]))
    return {KERNEL: kernels, CALL: calls, "NVTX_EVENTS": ranges}


def figures(run, metric, **keys):
    """A metric's values by rank, of the rows without any other key."""
    wanted = dict.fromkeys(("step", "group", "collective", "category", "stat")) | keys | {"metric": metric}
    rows = [row for row in run.rows if all(row[key] == value for key, value in wanted.items())]
    return {row["rank"]: row["value"] for row in rows}


def test_calls_of_one_communicator_are_matched_across_processes(run):
    done = run(**two_processes())
    query = 'SELECT rank, instance, "group", in_bytes, out_bytes, wait_ns, transfer_ns FROM collectives'
    assert [tuple(row.values()) for row in done.sql(query).to_pylist()] == [
        *((0, 0, "0-1", 4000, 4000, 40, 60), (1, 0, "0-1", 4000, 4000, 0, 60))
    ]
    assert figures(done, "comm.wait") == pytest.approx({None: 20e-9, 0: 40e-9, 1: 0.0})
    assert figures(done, "time.exposed_wait") == pytest.approx({None: 20e-9, 0: 40e-9, 1: 0.0})
    # 4,000 B in the 60 ns after the last arrival; two ranks move 2 (2 - 1) / 2 = 1 of that on the bus.
    assert figures(done, "comm.busbw", collective="all_reduce")[None] == pytest.approx(4000 / 60e-9)


@pytest.mark.parametrize("other", [{"comms": (0xABC, 0xABD)}, {"size": 3}])
def test_calls_of_different_or_incomplete_communicators_are_not(run, other):
    done = run(**two_processes(**other))
    rows = done.sql('SELECT DISTINCT "group", instance, in_bytes FROM collectives').to_pylist()
    assert rows == [{"group": None, "instance": None, "in_bytes": 4000}]
    assert figures(done, "comm.wait") == {None: None, 0: None, 1: None}


def test_graphs_traced_by_node_are_kernels(run):
    launch = call(20, 30, 9, name=GRAPH_LAUNCH)
    starts = ((1, 100), (2, 150), (3, 250))
    nodes = [kernel(at, at + 50, name=GEMM, correlationId=9, graphNodeId=node) for node, at in starts]
    done = run(**{KERNEL: nodes, CALL: [launch]})
    assert figures(done, "time.step") == pytest.approx({None: 200e-9, 0: 200e-9})
    assert figures(done, "compute.time") == pytest.approx({None: 150e-9, 0: 150e-9})
    assert figures(done, "time.idle") == pytest.approx({None: 50e-9, 0: 50e-9})
    assert done.manifest["ranks"][0]["notes"] == []


def launched(at, number, begin, thread):
    """A kernel of 50 ns that the thread launches at an instant."""
    kernels = kernel(begin, begin + 50, name=GEMM, correlationId=number)
    return kernels, call(at, at + 2, number, tid=thread, name=LAUNCH)


def operators_of(done):
    """Operators of a run by when they begin: what is known of each, and of the operator that called it."""
    query = """SELECT o.name, o.shapes, o.sequence, o.phase, o.kernels, o.device_ns, p.name AS parent
               FROM operators o LEFT JOIN operators p ON o.parent = p.operator ORDER BY o.start_ns"""
    return [tuple(row.values()) for row in done.sql(query).to_pylist()]


FORWARD, ENGINE = 3, 4
TRAINED = [
    nvtx(100, 200, "aten::linear, op_id = 1, sizes = [[8, 4], [2, 4], []]"),
    nvtx(110, 190, "aten::addmm, seq = 7, op_id = 2, sizes = [[2], [8, 4], [4, 2], [], []]"),
    nvtx(95, 210, "layers.0.feed_forward"),
    nvtx(300, 400, "autograd::engine::evaluate_function: AddmmBackward0, seq = 7, op_id = 3", tid=ENGINE),
    nvtx(310, 350, "aten::mm, op_id = 4, sizes = [[2, 8], [8, 4]]", tid=ENGINE),
    nvtx(500, 520, "aten::view, op_id = 5, sizes = [[8, 2], []]"),
]


def test_operators_of_pytorchs_ranges(run):
    """emit_nvtx(record_shapes=True): a linear layer forward and its backward; the view launches nothing."""
    when = (150, 21, 600, FORWARD), (330, 22, 650, ENGINE), (390, 23, 700, ENGINE), (450, 24, 750, FORWARD)
    kernels, calls = zip(*(launched(*one) for one in when), strict=True)
    done = run(**{KERNEL: list(kernels), CALL: list(calls)}, NVTX_EVENTS=TRAINED)
    node = "autograd::engine::evaluate_function: AddmmBackward0"
    assert operators_of(done) == [
        ("aten::linear", "[[8, 4], [2, 4], []]", None, "forward", 0, 0, None),
        ("aten::addmm", "[[2], [8, 4], [4, 2], [], []]", 7, "forward", 1, 50, "aten::linear"),
        (node, None, 7, "backward", 1, 50, None),
        ("aten::mm", "[[2, 8], [8, 4]]", None, "backward", 1, 50, node),
    ]
    query = "SELECT operator, phase FROM events WHERE kind = 'kernel' ORDER BY start_ns"
    assert [tuple(row.values()) for row in done.sql(query).to_pylist()] == [
        *((2, "forward"), (4, "backward"), (3, "backward"), (None, "other"))
    ]
    told = operator_costs(done, "shape", window="trace")
    assert told.linked_share == 0.75
    assert {row.key for row in told.rows} >= {"aten::mm([2,8], [8,4])"}
    reasons = {row.why_not for row in told.rows if row.key.startswith("aten::mm")}
    assert reasons == {"the element types of its arguments are not recorded"}


def test_operators_without_numbers_are_told_apart(run):
    """Of two that begin and end together the one that is written later is the inner."""
    ranges = [nvtx(100, 200, name) for name in ("aten::linear", "aten::addmm")]
    ranges.append(nvtx(300, 310, "aten::mm, op_id = 9"))
    kernels, calls = zip(launched(150, 21, 600, FORWARD), launched(305, 22, 650, FORWARD), strict=True)
    alone = kernel(700, 750, name=GEMM, correlationId=99)
    done = run(**{KERNEL: [*kernels, alone], CALL: list(calls)}, NVTX_EVENTS=ranges)
    assert [(name, kernels, parent) for name, *_, kernels, _, parent in operators_of(done)] == [
        *(("aten::linear", 0, None), ("aten::addmm", 1, "aten::linear"), ("aten::mm", 1, None))
    ]
    ids = [row["operator"] for row in done.sql("SELECT operator FROM operators").to_pylist()]
    assert len(set(ids)) == 3
    assert min(ids) == 9
    query = "SELECT operator FROM events WHERE kind = 'kernel' AND correlation = 99"
    assert done.sql(query).to_pylist() == [{"operator": None}]


def test_every_row_is_read_and_every_kernel_has_its_launch(repository, monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(repository / "scripts" / "bench")
    path = tmp_path / "made.sqlite"
    written = importlib.import_module("synthetic_nsys").write_export(path, 20_000, ranks=2)
    members = [read(path, member) for member in ("4000", "4001")]
    assert sum(len(found.rows) for found in members) == written == 2 * 120 * 83
    for found in members:
        assert found.trace.dropped == {}
        launches = {row["correlation"]: row["start_ns"] for row in found.of("launch")}
        assert all(launches[row["correlation"]] < row["start_ns"] for row in found.of("kernel"))
        assert [row["name"] for row in found.of("annotation")] == [f"step {i}" for i in range(6)]
        assert {row["name"] for row in found.of("op")} == {
            *("aten::mm", "aten::add_", "aten::empty", "aten::copy_", "aten::view")
        }


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


def read_parts(reader: str, path: Path) -> list[tuple[Trace, list[Any]]]:
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
def test_equal_to_the_database(name, ending, tmp_path, database, request):
    if name == "real":
        database = request.getfixturevalue("test_data") / REAL
    expected = read_parts("nsys", database)
    found = read_parts("nsys_tables", as_folder(database, tmp_path / "job_dir", ending))
    assert [rows for _, rows in found] == [rows for _, rows in expected]
    for (trace, _), (other, _) in zip(found, expected, strict=True):
        assert (trace.facts, trace.dropped, trace.notes) == (other.facts, other.dropped, other.notes)
        assert trace.stated_payloads.payloads == other.stated_payloads.payloads
        assert trace.stated_payloads.start_ns == other.stated_payloads.start_ns
    assert sum(len(rows) for _, rows in expected) > 0


def test_reports_in_several_folders(tmp_path: Path, database: Path) -> None:
    main = as_folder(database, tmp_path / "b_pqtdir", ".parquet")
    other = as_folder(database, tmp_path / "a_arwdir", ".arrow")
    database.unlink()
    assert [file.path for file in find_source(tmp_path).files] == [other, main]
    before = find_source(tmp_path).fingerprint()
    (tmp_path / "b_pqtdir" / "more.parquet").write_bytes(b"PAR1")
    assert find_source(tmp_path).fingerprint() != before


def texts_for_starts(path: Path) -> None:
    table = pq.read_table(path)
    texts = pa.array(["x"] * len(table))
    pq.write_table(table.set_column(table.column_names.index("start"), "start", texts), path)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda path: path.write_bytes(path.read_bytes()[:-9]), r"KERNEL.parquet: is damaged"),
        (lambda path: path.write_bytes(b"PAR1" + bytes(99)), r"KERNEL.parquet: is damaged"),
        (lambda path: path.write_bytes(b"PAR1" + bytes(99) + path.read_bytes()[103:]), "Invalid data; e"),
        (texts_for_starts, "holds string values"),
        (lambda path: path.with_name("StringIds.parquet").unlink(), "has no table StringIds"),
    ],
)
def test_damaged_tables(change: Callable[[Path], object], said: str, tmp_path: Path, database: Path) -> None:
    path = as_folder(database, tmp_path / "job_pqtdir", ".parquet")
    assert path.stem == KERNELS
    change(path)
    with pytest.raises(InputError, match=said):
        read_parts("nsys_tables", path)
