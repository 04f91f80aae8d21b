# SPDX-License-Identifier: Apache-2.0
"""AMD's profilers: a job as rocprofv3's JSON, CSV and rocpd database and as an .rpd gives the same rows."""

from __future__ import annotations

import csv
import json
import re
import sqlite3
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from helpers import perfetto_files
from helpers.changed_bytes import read_or_refused
from helpers.plain_rows import plain_rows

import cclbench
from cclbench.formats import Rows, Trace, recognise_format, trace_reader
from cclbench.formats.rocprof_csv.agents import Agents, Gpu
from cclbench.formats.source_files import required_reader
from cclbench.ground.errors import InputError
from cclbench.ingestion.source import find_source

GEMM, NCCL = "Cijk_Ailk_Bljk_SB_MT64x64x8", "ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096ul>)"
PID, THREAD, FIRST = 4711, 4712, 63_857_982_592_000
COPY = {"h2d": ("HOST_TO_DEVICE", "CopyHostToDevice", "Memcpy HtoD")}


class Row(NamedTuple):
    """A row of the job: its kind, name, begin and length in ns, stream or thread, and the call's number."""

    kind: str
    name: str
    begin: int
    length: int
    track: int = 0
    call: int = 0
    bytes: int | None = None


JOB = [
    *(Row("annotation", "step 1", 0, 1000, THREAD, 1), Row("call", "hipLaunchKernel", 10, 20, THREAD, 2)),
    *(Row("kernel", GEMM, 50, 300, 7, 2), Row("call", "hipLaunchKernel", 40, 20, THREAD, 3)),
    *(Row("kernel", NCCL, 200, 300, 9, 3), Row("call", "hipMemcpyAsync", 70, 20, THREAD, 4)),
    *(Row("copy", "h2d", 520, 100, 7, 4, 4096), Row("call", "hipStreamSynchronize", 100, 600, THREAD, 5)),
    *(Row("annotation", "step 2", 1000, 500, THREAD, 6), Row("call", "hipLaunchKernel", 1010, 20, THREAD, 7)),
    Row("kernel", GEMM, 1050, 300, 7, 7),
]
GRID = (4, 2, 1)
"""Work groups of each kernel, of 64 work items in x."""


def times(row: Row) -> tuple[int, int]:
    return FIRST + row.begin, FIRST + row.begin + row.length


def write_json(folder: Path, job: list[Row]) -> Path:
    kinds = {"HIP": [], "MARKER": ["roctxThreadRangeA"], "COPY": ["MEMORY_COPY_HOST_TO_DEVICE"]}
    kinds["HIP"] = sorted({row.name for row in job if row.kind == "call"})
    names = list(kinds)
    symbols = [GEMM, NCCL]

    def record(row: Row, kind: str, operation: int, **more: Any) -> dict[str, Any]:
        begin, end = times(row)
        own = {"size": 8, "kind": names.index(kind) if kind in names else 0, "operation": operation}
        own |= {"thread_id": row.track, "correlation_id": {"internal": row.call, "external": 0}}
        return own | {"start_timestamp": begin, "end_timestamp": end, **more}

    def dispatch(row: Row) -> dict[str, Any]:
        sizes = {"workgroup_size": (64, 1, 1), "grid_size": (64 * GRID[0], *GRID[1:])}
        info = {name: dict(zip("xyz", size, strict=True)) for name, size in sizes.items()}
        info |= {"agent_id": {"handle": 12}, "queue_id": {"handle": 1}, "kernel_id": symbols.index(row.name)}
        return record(row, "", 2, dispatch_info=info, stream_id={"handle": row.track})

    ends = {"dst_agent_id": {"handle": 12}, "src_agent_id": {"handle": 11}}
    of_kind: dict[str, list[Row]] = {}
    for row in job:
        of_kind.setdefault(row.kind, []).append(row)
    gpu = {"id": {"handle": 12}, "type": 2, "name": "gfx950", "product_name": "AMD Instinct MI350X"}
    gpu |= {"logical_node_type_id": 0, "cu_count": 256, "mem_banks": [{"size_in_bytes": 309220868096}]}
    tool: dict[str, Any] = {"agents": [{"id": {"handle": 11}, "type": 1, "name": "EPYC"}, gpu]}
    tool["metadata"] = {"node": {"hostname": "secret-host"}, "pid": PID, "command": ["/home/alice/train.py"]}
    tool["strings"] = {
        "buffer_records": [{"kind": kind, "operations": found} for kind, found in kinds.items()],
        "marker_api": [{"key": row.call, "value": row.name} for row in of_kind["annotation"]],
    }
    tool["kernel_symbols"] = [{"kernel_id": i, "formatted_kernel_name": n} for i, n in enumerate(symbols)]
    tool["buffer_records"] = {
        "kernel_dispatch": [dispatch(row) for row in of_kind["kernel"]],
        "memory_copy": [
            record(row, "COPY", 0, **ends, bytes=row.bytes, stream_id={"handle": row.track})
            for row in of_kind["copy"]
        ],
        "hip_api": [record(row, "HIP", kinds["HIP"].index(row.name)) for row in of_kind["call"]],
        "marker_api": [record(row, "MARKER", 0) for row in of_kind["annotation"]],
        "memory_allocation": [{}],
    }
    path = folder / "1_results.json"
    path.write_text(json.dumps({"rocprofiler-sdk-tool": [tool]}))
    return path


def write_rpd(folder: Path, job: list[Row]) -> Path:
    path = folder / "job.rpd"
    with sqlite3.connect(path) as base:
        base.executescript(
            "CREATE TABLE rocpd_string (id INTEGER PRIMARY KEY, string TEXT);"
            "CREATE TABLE rocpd_op (id INTEGER PRIMARY KEY, gpuId, queueId, start, end, description_id,"
            " opType_id);"
            "CREATE TABLE rocpd_api (id INTEGER PRIMARY KEY, pid, tid, start, end, apiName_id, args_id);"
            "CREATE TABLE rocpd_api_ops (api_id, op_id);"
            "CREATE TABLE rocpd_kernelapi (api_ptr_id INTEGER PRIMARY KEY, gridX, gridY, gridZ, workgroupX,"
            " workgroupY, workgroupZ);"
            "CREATE TABLE rocpd_copyapi (api_ptr_id INTEGER PRIMARY KEY, size);"
            "CREATE TABLE rocpd_monitor (id INTEGER PRIMARY KEY); INSERT INTO rocpd_monitor VALUES (1);"
        )
        texts: dict[str, int] = {}

        def text(string: str) -> int:
            if string not in texts:
                texts[string] = len(texts) + 1
                base.execute("INSERT INTO rocpd_string VALUES (?, ?)", (texts[string], string))
            return texts[string]

        for number, row in enumerate(job, 1):
            begin, end = times(row)
            if row.kind in ("call", "annotation"):
                name, said = (row.name, "") if row.kind == "call" else ("UserMarker", row.name)
                values = (row.call, PID, row.track, begin, end, text(name), text(said))
                base.execute("INSERT INTO rocpd_api VALUES (?, ?, ?, ?, ?, ?, ?)", values)
                continue
            kind = COPY[row.name][1] if row.kind == "copy" else "KernelExecution"
            said = "" if row.kind == "copy" else row.name
            values = (number, 0, row.track, begin, end, text(said), text(kind))
            base.execute("INSERT INTO rocpd_op VALUES (?, ?, ?, ?, ?, ?, ?)", values)
            base.execute("INSERT INTO rocpd_api_ops VALUES (?, ?)", (row.call, number))
            if row.kind == "copy":
                base.execute("INSERT INTO rocpd_copyapi VALUES (?, ?)", (row.call, row.bytes))
            else:
                base.execute("INSERT INTO rocpd_kernelapi VALUES (?, ?, ?, ?, 64, 1, 1)", (row.call, *GRID))
    base.close()
    return path


def write_rocpd(folder: Path, job: list[Row]) -> Path:
    path, of = folder / "job.db", "_00001234_abcd"
    with sqlite3.connect(path) as base:
        base.executescript(
            "CREATE TABLE rocpd_string# (id INTEGER PRIMARY KEY, string TEXT);"
            "CREATE TABLE rocpd_info_process# (id INTEGER PRIMARY KEY, pid);"
            "CREATE TABLE rocpd_info_thread# (id INTEGER PRIMARY KEY, tid);"
            "CREATE TABLE rocpd_info_agent# (id INTEGER PRIMARY KEY, type, type_index, product_name, name,"
            " extdata);"
            "CREATE TABLE rocpd_info_kernel_symbol# (id INTEGER PRIMARY KEY, display_name);"
            "CREATE TABLE rocpd_event# (id INTEGER PRIMARY KEY, category_id, stack_id, extdata);"
            "CREATE TABLE rocpd_region# (id INTEGER PRIMARY KEY, pid, tid, start, end, name_id, event_id);"
            "CREATE TABLE rocpd_kernel_dispatch# (id INTEGER PRIMARY KEY, pid, agent_id, stream_id, start,"
            " end, kernel_id, grid_size_x, grid_size_y, grid_size_z, workgroup_size_x, workgroup_size_y,"
            " workgroup_size_z, event_id);"
            "CREATE TABLE rocpd_memory_copy# (id INTEGER PRIMARY KEY, pid, stream_id, start, end, name_id,"
            " size, dst_agent_id, src_agent_id, event_id);"
            "CREATE VIEW rocpd_kernel_dispatch AS SELECT * FROM rocpd_kernel_dispatch#;"
            "INSERT INTO rocpd_info_agent# VALUES (1, 'CPU', 0, 'EPYC', 'EPYC', '{}'),"
            " (2, 'GPU', 0, 'AMD Instinct MI350X', 'gfx950', '{\"cu_count\": 256}');".replace("#", of)
        )

        def insert(table: str, *values: Any) -> int:
            marks = ", ".join("?" * (len(values) + 1))
            sql = f"INSERT INTO {table}{of} VALUES ({marks})"  # noqa: S608 - own names
            return base.execute(sql, (None, *values)).lastrowid or 0

        insert("rocpd_info_process", PID)
        insert("rocpd_info_thread", THREAD)
        symbols = {name: insert("rocpd_info_kernel_symbol", name) for name in (GEMM, NCCL)}
        texts: dict[str, int] = {}

        def text(string: str) -> int:
            if string not in texts:
                texts[string] = insert("rocpd_string", string)
            return texts[string]

        for row in job:
            begin, end = times(row)
            category = {"call": "HIP_RUNTIME_API", "annotation": "MARKER_CORE_RANGE_API"}.get(row.kind, "")
            said = json.dumps({"message": row.name} if row.kind == "annotation" else {})
            event = insert("rocpd_event", text(category), row.call, said)
            if row.kind in ("call", "annotation"):
                name = row.name if row.kind == "call" else "roctxThreadRangeA"
                insert("rocpd_region", 1, 1, begin, end, text(name), event)
            elif row.kind == "copy":
                name = text("MEMORY_COPY_" + COPY[row.name][0])
                insert("rocpd_memory_copy", 1, row.track, begin, end, name, row.bytes, 2, 1, event)
            else:
                sizes = (64 * GRID[0], *GRID[1:], 64, 1, 1)
                insert("rocpd_kernel_dispatch", 1, 2, row.track, begin, end, symbols[row.name], *sizes, event)
    base.close()
    return path


TABLES = {
    "agent_info": "Node_Id,Logical_Node_Id,Agent_Type,Cu_Count,Name,Vendor_Name,Product_Name",
    "kernel_trace": "Kind,Agent_Id,Queue_Id,Stream_Id,Kernel_Name,Correlation_Id,Start_Timestamp,"
    "End_Timestamp,Workgroup_Size_X,Workgroup_Size_Y,Workgroup_Size_Z,Grid_Size_X,Grid_Size_Y,Grid_Size_Z",
    "memory_copy_trace": "Kind,Direction,Stream_Id,Source_Agent_Id,Destination_Agent_Id,Correlation_Id,"
    "Start_Timestamp,End_Timestamp",
    "hip_api_trace": "Domain,Function,Process_Id,Thread_Id,Correlation_Id,Start_Timestamp,End_Timestamp",
    "marker_api_trace": "Domain,Function,Process_Id,Thread_Id,Correlation_Id,Start_Timestamp,End_Timestamp",
    "memory_allocation_trace": "Kind,Operation,Agent_Id,Allocation_Size,Address,Correlation_Id,"
    "Start_Timestamp,End_Timestamp",
}
"""Columns of rocprofv3's tables (source/lib/output/generateCSV.cpp), of agents the first and last."""


def write_csv(folder: Path, job: list[Row]) -> Path:
    """Node 3 of the machine is the GPU, the second of the nodes that the process sees."""
    rows: dict[str, list[tuple[object, ...]]] = {name: [] for name in TABLES}
    rows["agent_info"] = [
        (0, 0, "CPU", 0, "EPYC", "CPU", "EPYC"),
        (3, 1, "GPU", 256, "gfx950", "AMD", "AMD Instinct MI350X"),
    ]
    rows["memory_allocation_trace"] = [("MEMORY_ALLOCATION", "ALLOCATE", "Agent 1", 1, "0x0", 0, 1, 2)]
    for row in job:
        if row.kind == "kernel":
            sizes = (64, 1, 1, 64 * GRID[0], *GRID[1:])
            of_kernel = ("KERNEL_DISPATCH", "Agent 1", 1, row.track, row.name, row.call, *times(row), *sizes)
            rows["kernel_trace"].append(of_kernel)
        elif row.kind == "copy":
            way = "MEMORY_COPY_" + COPY[row.name][0]
            of_copy = ("MEMORY_COPY", way, row.track, "Agent 0", "Agent 1", row.call, *times(row))
            rows["memory_copy_trace"].append(of_copy)
        else:
            table = "hip_api_trace" if row.kind == "call" else "marker_api_trace"
            rows[table].append(("API", row.name, PID, row.track, row.call, *times(row)))
    rows["marker_api_trace"].append(("API", "roctxRangePop", PID, THREAD, 99, FIRST, FIRST))
    for name, columns in TABLES.items():
        with (folder / f"{PID}_{name}.csv").open("w") as file:
            writer = csv.writer(file, quoting=csv.QUOTE_NONNUMERIC)
            writer.writerows([columns.split(","), *rows[name]])
    return folder / f"{PID}_kernel_trace.csv"


WRITERS: dict[str, Callable[[Path, list[Row]], Path]] = {"rocprofv3": write_json, "rocprof_csv": write_csv}
WRITERS |= {"rocpd 2": write_rpd, "rocpd 3": write_rocpd}
WRITERS["perfetto"] = lambda folder, job: perfetto_files.write_job(folder, job, PID, FIRST, GRID)


def read(path: Path, name: str) -> tuple[Trace, list[Rows]]:
    reader = trace_reader(name.split()[0])
    (part,) = reader.parts(path)
    trace = reader.read(path, part=part, allow_truncated=False)
    return trace, [rows for rows in trace.batches if isinstance(rows, Rows)]


def plain(batches: list[Rows]) -> list[tuple[Any, ...]]:
    """All rows in order of kind and time; of the job's only copy CSV states no bytes."""
    columns = ("kind", "side", "name", "start_ns", "dur_ns", "track", "correlation", "device", "bytes")
    columns += ("copy_direction", "grid_x", "blocks")
    found = [row for rows in batches for row in plain_rows(rows)]
    for row in found:
        if row["kind"] == "copy" and row["bytes"] is None:
            row["bytes"] = 4096
    return sorted((tuple(row[name] for name in columns) for row in found), key=str)


@pytest.mark.parametrize("name", WRITERS)
def test_rows_by_hand(name: str, tmp_path: Path) -> None:
    path = WRITERS[name](tmp_path, JOB)
    assert recognise_format(path, path.read_bytes()[: 1 << 16]).name == name.split()[0]
    trace, batches = read(path, name)
    kernel = ("kernel", "device", GEMM, FIRST + 50, 300, 7, 2, 0, None, None, 4, 8)
    copy = ("copy", "device", "Memcpy HtoD", FIRST + 520, 100, 7, 4, 0, 4096, "h2d", None, None)
    wait = ("sync", "host", "hipStreamSynchronize", FIRST + 100, 600, THREAD, 5, *[None] * 5)
    step = ("annotation", "host", "step 2", FIRST + 1000, 500, THREAD, *[None] * 6)
    assert {kernel, copy, wait, step} <= {*plain(batches)}
    kinds = Counter(row[0] for row in plain(batches))
    assert kinds == {"kernel": 3, "copy": 1, "launch": 4, "sync": 1, "annotation": 2}
    assert (trace.facts.process_id, trace.facts.vendor) == (PID, "amd")
    assert sum(trace.dropped.values()) == (0 if name == "rocpd 3" else 1)


def test_the_formats_give_one_partition(tmp_path: Path) -> None:
    rows, partitions = [], []
    for name, write in WRITERS.items():
        rows.append(plain(read(path := write(tmp_path, JOB), name)[1]))
        run = cclbench.run(path, store=tmp_path / name)
        table = run.results
        chosen = table[table.metric.str.startswith("time.") & table.step.notna() & table.category.isna()]
        partitions.append(dict(zip(zip(chosen.metric, chosen.step, strict=True), chosen.value, strict=True)))
    assert rows == rows[:1] * len(WRITERS)
    assert partitions == partitions[:1] * len(WRITERS)
    # Step 1 begins with its first kernel at 50 and ends where step 2's does, at 1050.
    known = {"step": 1000, "compute_only": 150, "overlapped": 150, "exposed_comm": 150, "exposed_copy": 100}
    found = {part: partitions[0][f"time.{part}", 1] for part in known}
    assert found == pytest.approx({part: ns * 1e-9 for part, ns in known.items()})


def test_a_process_of_a_training_on_mi350x(test_data: Path) -> None:
    trace, batches = read(test_data / "rocprof" / "908_results.json.gz", "rocprofv3")
    (rows,) = batches
    assert (len(rows), int(rows.dur_ns.sum())) == (43_915, 4_441_741_378)
    names = np.array(list(rows.names))[rows.codes]
    assert Counter(names.tolist())[NCCL] == 1_310
    assert (trace.facts.device_name, trace.facts.sm_count) == ("AMD Instinct MI350X", 256)
    assert trace.facts.device_memory_bytes == 309_220_868_096


def test_matrix_products_recorded_by_rocm_profile_data(test_data: Path) -> None:
    trace, batches = read(test_data / "rocprof" / "matmul_result.rpd", "rocpd 2")
    by_kind = Counter({rows.kind: 0 for rows in batches})
    for rows in batches:
        by_kind[rows.kind] += int(rows.dur_ns.sum()) if rows.side == "device" else len(rows)
    # Their sum is GpuTime of the file's own view `busy`: 183,918,056 ns.
    assert by_kind["kernel"] + by_kind["copy"] + by_kind["memset"] == 183_918_056
    assert (by_kind["launch"], by_kind["other"]) == (85, 40)
    assert trace.dropped == {"rows of rocpd_monitor": 15}
    kernels = next(rows for rows in batches if rows.kind == "kernel")
    assert (kernels.grid_x[0].as_py(), kernels.grid_y[0].as_py()) == (7, 782)  # 1,792 work items, 256 a group


def test_a_folder_of_tables_is_a_run_of_each_process(tmp_path: Path) -> None:
    write_csv(tmp_path, JOB)
    for table in list(tmp_path.iterdir()):
        name = table.name.replace(str(PID), "5000", 1)
        (tmp_path / name).write_text(table.read_text().replace(str(PID), "5000").replace(GEMM, "other"))
    found = find_source(tmp_path)
    assert [file.name for file in found.files] == ["4711_kernel_trace.csv", "5000_kernel_trace.csv"]
    assert (found.ignored, found.unread) == ((), {})
    assert len(found.description_files) == 10
    before = found.fingerprint()
    with (tmp_path / "5000_hip_api_trace.csv").open("a") as file:
        file.write('"API","hipFree",5000,5000,9,9,9\n')
    assert find_source(tmp_path).fingerprint() != before
    with pytest.raises(InputError, match="is a table of calls of rocprofv3; give the folder"):
        find_source(tmp_path / "5000_hip_api_trace.csv")


@pytest.mark.parametrize(
    ("text", "index"),
    [
        ("GPU 2", 2),
        ("Agent 1", None),  # the first GPU by the machine's numbers, the second by the process's
        *(("Agent 2", 1), ("3", 1), ("Agent 0", None), ("CPU 0", None), ("x", None), (None, None)),
    ],
)
def test_the_gpu_that_an_agent_is(text: str | None, index: int | None) -> None:
    gpus = (Gpu("MI350X", 256),) * 2
    assert Agents(gpus, ({1: 0, 3: 1}, {1: 1, 2: 1})).gpu_index(text) == index


def test_kernels_of_rocprof(tmp_path: Path) -> None:
    path = tmp_path / "results.csv"
    path.write_text(
        "Index,KernelName,gpu-id,queue-id,queue-index,pid,tid,grd,wgr,lds,scr,vgpr,sgpr,fbar,sig,"
        "DispatchNs,BeginNs,EndNs,CompleteNs\n"
        '0,"add(float*, int) [clone .kd]",1,0,0,16433,16439,1000,512,0,0,16,32,0,0x7f,100,150,400,500\n'
        '1,"_scale.kd",1,2,2,16434,16440,512,512,0,0,16,32,0,0x7f,100,450,500,600\n'
    )
    reader = required_reader(path)
    first, second = trace_reader(reader).parts(path)
    trace = trace_reader(reader).read(path, part=first, allow_truncated=False)
    # 1,000 work items are two groups of 512; the table does not state the grid's dimensions.
    assert plain([rows for rows in trace.batches if isinstance(rows, Rows)]) == [
        ("kernel", "device", "add(float*, int)", 150, 250, 0, None, 1, None, None, None, 2)
    ]
    assert (trace.facts.process_id, trace.facts.device_count) == (16433, 1)
    other = trace_reader(reader).read(path, part=second, allow_truncated=False)
    assert [row[2:6] for row in plain(list(other.batches))] == [("_scale", 450, 50, 2)]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("table", "change", "said"),
    [
        ("kernel_trace", lambda text: text.replace("Grid_Size_Z", "Z"), "has no column 'Grid_Size_Z'"),
        ("kernel_trace", lambda text: text.replace(str(FIRST + 350), "1"), "impossible time"),
        ("kernel_trace", lambda text: text.replace(str(FIRST + 50), "x"), "impossible time"),
        ("kernel_trace", lambda text: text[:-20], "is damaged after row 0"),
        ("hip_api_trace", lambda text: text.replace(str(PID), "7", 1), "rows of several processes"),
        ("agent_info", lambda text: text.replace("Agent_Type", "Type"), "has no column 'Agent_Type'"),
    ],
)
def test_damaged_tables(table: str, change: Callable[[str], str], said: str, tmp_path: Path) -> None:
    path = write_csv(tmp_path, JOB)
    damaged = tmp_path / f"{PID}_{table}.csv"
    damaged.write_text(change(damaged.read_text()))
    with pytest.raises(InputError, match=said):
        read(path, "rocprof_csv")


def test_two_processes_in_a_file(tmp_path: Path) -> None:
    path = write_json(tmp_path, JOB)
    tool = json.loads(path.read_text())["rocprofiler-sdk-tool"]
    other = json.loads(json.dumps(tool[0]))
    other["metadata"]["pid"] = PID + 1
    path.write_text(json.dumps({"rocprofiler-sdk-tool": [*tool, other]}))
    assert [part.member for part in trace_reader("rocprofv3").parts(path)] == [str(PID), str(PID + 1)]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda text: text[: len(text) // 2], "truncated"),
        (lambda text: text.replace(f'"pid": {PID}', '"pid": "x"'), "Expected 'int', got 'str'"),
        (lambda text: text.replace(str(FIRST + 350), "1"), "impossible time"),
        (lambda text: text.replace(str(FIRST + 50), str(1 << 80)), "number beyond 64 bits|out of range"),
        (lambda _: '{"rocprofiler-sdk-tool": []}', "has no process"),
    ],
)
def test_damaged_json(change: Callable[[str], str], said: str, tmp_path: Path) -> None:
    path = write_json(tmp_path, JOB)
    path.write_text(change(path.read_text()))
    with pytest.raises(InputError, match=said):
        read(path, "rocprofv3")


@pytest.mark.parametrize("name", WRITERS)
def test_mutations_are_read_or_refused(name: str, tmp_path: Path) -> None:
    def all_parts(path: Path) -> None:
        reader = trace_reader(name.split()[0])
        for part in reader.parts(path):
            list(reader.read(path, part=part, allow_truncated=False).batches)

    path = WRITERS[name](tmp_path, JOB)
    read_or_refused(all_parts, path, path.read_bytes())


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (
            "ALTER TABLE rocpd_string RENAME TO was; CREATE VIEW rocpd_string AS"
            " WITH RECURSIVE n(id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM n)"
            " SELECT id, 'x' AS string FROM n",
            'view "rocpd_string"',
        ),
        (
            "ALTER TABLE rocpd_api ADD COLUMN more TEXT AS (hex(zeroblob(1000000000)))",
            'column "more" of table "rocpd_api"',
        ),
    ],
)
def test_sql_of_a_file_is_not_run(tmp_path: Path, change: str, named: str) -> None:
    """A view without end in place of a table would never return; views of no reader are left alone."""
    path = write_rpd(tmp_path, JOB)
    with sqlite3.connect(path) as database:
        database.execute("CREATE VIEW busy AS SELECT count(*) FROM rocpd_op")
    assert plain(read(path, "rocpd 2")[1])
    with sqlite3.connect(path) as database:
        database.executescript(change)
    with pytest.raises(InputError, match=f"{named} is computed by SQL of the file, which is not run"):
        read(path, "rocpd 2")


@pytest.mark.parametrize("device", [-1, 1 << 15, (1 << 63) - 1])
def test_a_device_that_no_machine_has_is_an_error(tmp_path: Path, device: int) -> None:
    path = write_rocpd(tmp_path, JOB)
    with sqlite3.connect(path) as database:
        database.execute(
            f"UPDATE rocpd_info_agent_00001234_abcd SET type_index = {device} WHERE type = 'GPU'"  # noqa: S608
        )
    with pytest.raises(InputError, match=f"impossible device {device}; is the file damaged"):
        read(path, "rocpd 3")


def test_a_correlation_that_no_column_can_hold_is_an_error(tmp_path: Path) -> None:
    path = write_json(tmp_path, JOB)
    text = path.read_text()
    path.write_text(re.sub(r'"internal": ?\d+', f'"internal": {1 << 64}', text, count=1))
    with pytest.raises(InputError, match="9223372036854775807"):
        read(path, "rocprofv3")
