# SPDX-License-Identifier: Apache-2.0
"""Ascend's kernel details, Chrome JSON and HCCL's operations: exact times, steps, launches, ranks."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers.changed_bytes import read_or_refused
from helpers.plain_rows import plain_rows

import cclbench
from cclbench.formats import HEAD_BYTES, READERS, DeviceStep, Evidence, Trace, recognise_format, trace_reader
from cclbench.formats.source_files import required_reader
from cclbench.formats.unread import UnreadFormatError
from cclbench.ground.errors import InputError

HEADING = (
    "Step Id,Model ID,Task ID,Stream ID,Name,Type,Accelerator Core,Start Time(us),Duration(us),Wait Time(us)"
)
TASKS = """\
1,4294967295,1259,16,MatMul46,MatMul,AI_CORE,1699529622790614.8,607.98,0
1,4294967295,N/A,N/A,hcom_allReduce__445_0,hcom_allReduce_,HCCL,1699529622793969.525,308926.68,2746.77
2,4294967295,1265,16,MatMul66,MatMul,AI_CORE,1699529623106755.2,3.14,261.56
2,4294967295,1266,16,Cast67,Cast,AI_VECTOR_CORE,N/A,1.84,382.11
"""
DETAILS = "ascend/profiler/msprof_analyze/test/ut/advisor/advisor_backend/compute_advice/kernel_details.csv"


@pytest.fixture
def write(written: Callable[..., Path]) -> Callable[[str], Path]:
    return lambda text: written(text, "kernel_details.csv")


def read(path: Path) -> tuple[Trace, list[tuple[Any, ...]]]:
    """The trace and its rows: name, start, duration, stream."""
    trace, rows = read_trace(path, reader_name="ascend")
    return trace, [row[1:5] for row in rows]


def test_rows_and_steps_by_hand(write: Callable[[str], Path]) -> None:
    path = write(f"{HEADING}\n" + TASKS.replace("614.8,", "614.8\t,").replace("2,1265,16,", "2,1265,16\t,"))
    assert recognise_format(path, path.read_bytes()).name == "ascend"
    trace, rows = read(path)
    first, second = 1_699_529_622_790_614_800, 1_699_529_623_106_755_200
    assert rows == [
        *(("MatMul", first, 607_980, 16), ("hcom_allReduce_", 1_699_529_622_793_969_525, 308_926_680, -1)),
        ("MatMul", second, 3_140, 16),
    ]
    assert trace.device_steps == [
        DeviceStep(name="step 1", number=1, start_ns=first, end_ns=second, closed=True),
        DeviceStep(name="step 2", number=2, start_ns=second, end_ns=second + 3_140, closed=False),
    ]
    assert trace.dropped == {"row without a time or duration": 1}


def test_a_training_step(test_data: Path) -> None:
    _, rows = read(test_data / DETAILS)
    communication = [length for name, _, length, _ in rows if name.startswith("hcom_")]
    # Sums of the column Duration(us), of all rows and of those of HCCL.
    assert (len(rows), sum(length for _, _, length, _ in rows)) == (591, 396_807_040)
    assert (len(communication), sum(communication)) == (19, 346_398_740)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"{HEADING.replace('Duration(us)', 'Length')}\n{TASKS}", "has no column 'Duration"),
        (f"{HEADING}\n{TASKS.replace('607.98', 'x')}", "is damaged after row 0"),
        (f"{HEADING}\n{TASKS.replace('607.98', '-1')}", "impossible time"),
        (f"{HEADING}\n{TASKS.replace('1699529622790614.8', '1' * 30)}", "a time that no clock has"),
        (f"{HEADING}\n{TASKS}1,2", "is damaged after row"),
    ],
)
def test_damaged_tables(text: str, said: str, write: Callable[[str], Path]) -> None:
    with pytest.raises(InputError, match=said):
        read(write(text))


FIRST_US = 1_699_529_622_790_614
PROCESSES = {1: "Python", 2: "CANN", 3: "Ascend Hardware", 4: "Communication", 5: "Overlap Analysis"}


def event(name: str, pid: int, begin: str, length: float, tid: int = 7, **more: Any) -> dict[str, Any]:
    return {"ph": "X", "name": name, "pid": pid, "tid": tid, "ts": f"{FIRST_US}{begin}", "dur": length} | more


def label(pid: int) -> dict[str, Any]:
    return {"name": "process_name", "pid": pid, "tid": 0, "args": {"name": PROCESSES[pid]}, "ph": "M"}


def task(kind: str, connection: int) -> dict[str, Any]:
    return {"args": {"Task Type": kind, "Physic Stream Id": 7, "connection_id": connection}}


ROWS = [
    *(event("ProfilerStep#5", 1, ".000", 1000, 100), event("aten::mm", 1, ".001", 2.5, 100, cat="cpu_op")),
    event("Enqueue", 1, ".002", 1, 100, cat="enqueue"),
    event("Node@launch", 2, ".003", 1.25, 101, args={"Thread Id": 101, "connection_id": 31}),
    event("Node@launch", 2, ".010", 1, 101, args={"Thread Id": 101, "connection_id": 34}),
    event("AscendCL@aclrtSynchronizeStream", 2, ".004", 900, 101, args={"connection_id": 33}),
    event("aclnnMatmul_MatMulV2", 3, ".125", 100.375, **task("AI_CORE", 31)),
    event("EVENT_WAIT", 3, ".250", 5, **task("EVENT_WAIT", 32)),
    event("hcom_allReduce__445_0_1", 3, ".500", 300, 9, **task("HCCL", 34)),
    event("hcom_allReduce__445_0_1", 4, ".500", 300, 2, args={"connection_id": "34", "count": "9"}),
    *(event("Notify_Wait", 4, ".600", 300, 3), event("Computing", 5, ".125", 100.375, 1)),
    {"ph": "C", "name": "HBM", "pid": 6, "ts": f"{FIRST_US}.1", "args": {"Read(MB/s)": 1}},
]


def write_trace(folder: Path, events: list[dict[str, Any]] | None = None) -> Path:
    path = folder / "trace_view.json"
    path.write_text(json.dumps([*(label(pid) for pid in PROCESSES), *ROWS] if events is None else events))
    return path


def read_trace(
    path: Path, *, allow_truncated: bool = False, reader_name: str = "ascend_trace"
) -> tuple[Trace, list[tuple[Any, ...]]]:
    """The trace and its rows: kind, name, start, duration, stream, link."""
    reader = trace_reader(reader_name)
    trace = reader.read(path, part=reader.parts(path)[0], allow_truncated=allow_truncated)
    columns = ("kind", "name", "start_ns", "dur_ns", "track", "correlation")
    return trace, [tuple(row[name] for name in columns) for rows in trace.batches for row in plain_rows(rows)]


def test_rows_by_hand(tmp_path: Path) -> None:
    trace, rows = read_trace(path := write_trace(tmp_path))
    assert required_reader(path) == "ascend_trace"
    first = FIRST_US * 1000
    assert sorted(rows) == [
        ("annotation", "ProfilerStep#5", first, 1_000_000, 100, None),
        ("kernel", "aclnnMatmul_MatMulV2", first + 125, 100_375, 7, 31),
        ("kernel", "hcom_allReduce_", first + 500, 300_000, 2, 34),
        ("launch", "Node@launch", first + 3, 1_250, 101, 31),
        ("launch", "Node@launch", first + 10, 1_000, 101, 34),
        *(("op", "aten::mm", first + 1, 2_500, 100, None), ("other", "Enqueue", first + 2, 1_000, 100, None)),
        ("sync", "AscendCL@aclrtSynchronizeStream", first + 4, 900_000, 101, 33),
    ]
    known: dict[str, Any] = {"label": 5, "task of type EVENT_WAIT": 1, "collective listed twice": 1}
    known |= {"task within a collective": 1, "row of another process": 1, "counter": 1}
    assert trace.dropped == known


def test_processes_named_behind_their_rows(tmp_path: Path) -> None:
    many = [event("aten::mm", 1, f".{i % 1000:03d}", 1, cat="cpu_op") for i in range(2000)]
    path = write_trace(tmp_path, [*many, *ROWS, *(label(pid) for pid in PROCESSES)])
    assert path.read_bytes().find(b"Ascend Hardware") > 2 * HEAD_BYTES
    assert required_reader(path) == "ascend_trace"
    assert len(read_trace(path)[1]) == 2008
    run = cclbench.run(path, store=tmp_path / "store")
    table = run.results
    step = table[(table.step == 5) & table["rank"].notna() & table.category.isna()].set_index("metric").value
    # The product takes 125 to 100,500 ns, the reduction 500 to 300,500 ns, of which 100,000 ns overlap.
    assert step["time.compute_only"] == pytest.approx(375e-9)
    assert step["time.overlapped"] == pytest.approx(100_000e-9)
    assert step["time.exposed_comm"] == pytest.approx(200_000e-9)


def test_text_times_alone_are_no_mark_of_this_tool(tmp_path: Path) -> None:
    with pytest.raises(UnreadFormatError, match="is a Chrome trace without rows of PyTorch's profiler"):
        required_reader(write_trace(tmp_path, [event("draw", 1, ".001", 1, cat="gui")]))


def test_a_cut_file_is_read_up_to_the_cut(tmp_path: Path) -> None:
    path = write_trace(tmp_path)
    path.write_bytes(path.read_bytes()[: path.read_bytes().index(b"Notify_Wait")])
    with pytest.raises(InputError, match="truncated"):
        read_trace(path)
    trace, rows = read_trace(path, allow_truncated=True)
    assert (len(rows), trace.cut is not None) == (8, True)


@pytest.mark.parametrize(
    ("events", "said"),
    [
        ([event("aten::mm", 1, "", 1)], "has no process 'Ascend Hardware'"),
        ([label(3), event("k", 3, "x", 1, **task("AI_CORE", 1))], "impossible time"),
        ([label(3), event("k", 3, "", -1, **task("AI_CORE", 1))], "impossible time"),
        ([label(3), event("k", 3, "0" * 20, 1, **task("AI_CORE", 1))], "a time that no clock has"),
    ],
)
def test_damaged_files(events: list[dict[str, Any]], said: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=said):
        read_trace(write_trace(tmp_path, events))


CLUSTER = (
    "ascend/profiler/msprof_analyze/test/resource/advisor/cluster_analysis_output/cluster_communication.json"
)
BEGIN = 1_695_054_582_608_213


def operation(elapsed_ms: object, begin_us: object = BEGIN + 0.5, **megabytes: object) -> dict[str, Any]:
    return {
        "Communication Time Info": {"Start Timestamp(us)": begin_us, "Elapse Time(ms)": elapsed_ms},
        "Communication Bandwidth Info": {
            link: {"Transit Size(MB)": size, "Bandwidth(GB/s)": 1} for link, size in megabytes.items()
        },
    }


RANK = {
    "step7": {
        "collective": {
            "hcom_allReduce__445_0_1@17": operation(1.25, HCCS=2.097152, RDMA=0),
            "hcom_allGather__445_1_1@17": operation(0.5),
            "Total Op Info": operation(1.75, 0),
        },
        "p2p": {"hcom_receive__101_3_1@9": operation(2), "Total Op Info": operation(3, 0)},
    }
}


def write_json(path: Path, content: object) -> Path:
    path.write_text(json.dumps(content))
    return path


def read_operations(path: Path) -> Evidence:
    assert required_reader(path) == "ascend_communication"
    return READERS.get("ascend_communication").read(path)  # type: ignore[call-arg,return-value]


def rows(evidence: Evidence, *columns: str) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in evidence.timings.select(columns).to_pylist()]


def test_operations_of_a_rank_by_hand(tmp_path: Path) -> None:
    found = read_operations(write_json(tmp_path / "communication.json", RANK))
    begin = BEGIN * 1000 + 500
    assert rows(found, "rank", "kind", "library", "seq", "start_ns", "dur_ns", "bytes") == [
        (None, "all_reduce", "hccl", 0, begin, 1_250_000, None),
        (None, "all_gather", "hccl", 1, begin, 500_000, None),
        (None, "recv", "hccl", 3, begin, 2_000_000, None),
    ]
    (link,) = found.counters.to_pylist()
    assert (link["port"], link["counter"], link["value"]) == ("HCCS", "hccl_bytes", 2_097_152)
    assert (link["start_ns"], link["end_ns"]) == (begin, begin + 1_250_000)
    # The total of p2p is 3 ms, and its operation takes 2.
    assert found.notes == ["1 of 2 totals differ from the sum of their operations"]
    assert found.left_out == {"totals, which are sums of others": 2}


def test_operations_of_a_cluster_by_hand(tmp_path: Path) -> None:
    ranks = {str(rank): operation(rank + 1) for rank in (0, 8)}
    total = {"0": operation(1, 0), "8": operation(9, 0)}
    cluster = {"(0, 8)": {"step": {"hcom_broadcast__501_2@62": ranks, "Total Op Info": total}}}
    found = read_operations(write_json(tmp_path / "cluster_communication.json", cluster))
    assert rows(found, "rank", "kind", "group", "group_size", "seq", "dur_ns") == [
        *((0, "broadcast", "0,8", 2, 2, 1_000_000), (8, "broadcast", "0,8", 2, 2, 9_000_000))
    ]
    assert [(group.name, group.ranks) for group in found.groups] == [("62", (0, 8))]
    assert found.notes == []


def test_broadcasts_of_a_cluster(test_data: Path) -> None:
    found = read_operations(test_data / CLUSTER)
    by_rank = {0: 0, 1: 0}
    for rank, kind, duration in rows(found, "rank", "kind", "dur_ns"):
        assert kind == "broadcast"
        by_rank[rank] += duration
    # 121.73694384375 + 27.107999203125 ms, and 20.798642234375 + 17.367596484375 ms, each rounded to ns.
    assert by_rank == {0: 121_736_944 + 27_107_999, 1: 20_798_642 + 17_367_596}
    sdma = [row for row in found.counters.to_pylist() if row["port"] == "SDMA"]
    assert sum(row["value"] for row in sdma) == 85_312 + 134_208 + 56 + 184


def test_operations_without_a_time_and_links_without_a_size_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "communication.json"
    for elapsed in (None, "1", -1, 1e300):
        entry = {"step": {"collective": {"hcom_send__1_2_3@4": operation(elapsed)}}}
        found = read_operations(write_json(path, entry))
        assert (rows(found, "kind"), found.left_out) == ([], {"without a time": 1})
    entry = {"step": {"collective": {"hcom_send__1_2_3@4": operation(1, HCCS=1e30, PCIE="x")}}}
    assert read_operations(write_json(path, entry)).left_out == {"link without a size": 2}


def test_mutations_are_read_or_refused(tmp_path: Path) -> None:
    read_or_refused(read, tmp_path / "kernel_details.csv", f"{HEADING}\n{TASKS}".encode())
    trace, operations = write_trace(tmp_path), write_json(tmp_path / "communication.json", RANK)
    read_or_refused(read_trace, trace, trace.read_bytes())
    read_or_refused(READERS.get("ascend_communication").read, operations, operations.read_bytes())
