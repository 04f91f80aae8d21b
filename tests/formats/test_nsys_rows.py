# SPDX-License-Identifier: Apache-2.0
"""Device work and CUDA calls of Nsight Systems' tables."""

from __future__ import annotations

import pyarrow as pa
import pytest
from helpers.nsys_files import (
    CALL,
    COPY,
    EPOCH,
    GRAPH,
    KERNEL,
    MEMSET,
    SESSION,
    SYNC,
    call,
    kernel,
    process,
    read,
    strings,
    thread,
    write,
)
from helpers.refused import refused

from cclbench.formats.nsys.rows import thread_numbers as thread_of

NAMES = strings(
    "void gemm<float>(float*)", "cudaLaunchKernel_v7000", "cudaStreamSynchronize_v3020", "cudaMalloc"
)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "trace.sqlite"


def on_device(start, end, **more):
    row = {"start": start, "end": end, "deviceId": 1, "streamId": 7, "correlationId": 5}
    return row | {"globalPid": process(10)} | more


def test_a_kernel_and_its_launch(path):
    rows = [kernel(100, 350, correlationId=9, deviceId=3, streamId=13, gridX=4, gridY=3, gridZ=2)]
    tables = {KERNEL: rows, CALL: [call(40, 60, 9, tid=77)]}
    found = read(write(path, StringIds=NAMES, TARGET_INFO_SESSION_START_TIME=SESSION, **tables))
    (made,), (launch,) = found.of("kernel"), found.of("launch")
    assert made["name"] == "void gemm<float>(float*)"
    assert (made["start_ns"], made["dur_ns"]) == (EPOCH + 100, 250)
    assert (made["device"], made["track"], made["correlation"], made["blocks"]) == (3, 13, 9, 24)
    assert (made["grid_x"], made["grid_y"], made["grid_z"]) == (4, 3, 2)
    assert (launch["start_ns"], launch["dur_ns"], launch["side"]) == (EPOCH + 40, 20, "host")
    assert (launch["track"], launch["correlation"]) == (77, 9)
    assert (found.trace.dropped, found.trace.notes) == ({}, [])


def test_without_a_session_start_times_are_relative_and_a_note_says_so(path):
    found = read(write(path, StringIds=NAMES, **{KERNEL: [kernel(100, 350)]}))
    assert found.rows[0]["start_ns"] == 100
    assert ["when the session began" in note for note in found.trace.notes] == [True]


def test_memsets_and_synchronisation(path):
    syncs = [on_device(10, 20, syncType=1, streamId=4294967295)]
    syncs += [on_device(at, at + 10, syncType=kind) for at, kind in ((20, 2), (30, 3), (40, 4), (50, 77))]
    found = read(write(path, StringIds=NAMES, **{MEMSET: [on_device(1, 2, bytes=64, value=0)], SYNC: syncs}))
    assert [(r["name"], r["bytes"], r["track"]) for r in found.of("memset")] == [("Memset (Device)", 64, 7)]
    assert [row["name"] for row in found.of("sync", "device")] == [
        *("Event Sync", "Stream Wait Event", "Stream Sync", "Context Sync", "Sync")
    ]
    assert [row["track"] for row in found.of("sync")] == [-1, 7, 7, 7, 7]


def test_shared_correlations_stay_with_their_process(path):
    kernels = [kernel(100, 200, correlationId=5), kernel(300, 400, pid=11, correlationId=5, deviceId=1)]
    calls = [call(10, 20, 5), call(30, 40, 5, pid=11)]
    write(path, StringIds=NAMES, **{KERNEL: kernels, CALL: calls})
    assert [(r["kind"], r["start_ns"]) for r in read(path, "10").rows] == [("kernel", 100), ("launch", 10)]
    assert [(r["kind"], r["start_ns"]) for r in read(path, "11").rows] == [("kernel", 300), ("launch", 30)]


def test_whole_graphs_are_device_rows_of_unknown_content(path):
    """Without a time they are counted, without ids nameless."""
    graphs = [on_device(10, 60, graphId=4, graphExecId=5), on_device(70, 90, graphId=4, graphExecId=None)]
    alone = write(path.with_name("alone.sqlite"), StringIds=NAMES, **{GRAPH: graphs})
    assert read(alone).trace.facts.whole_graphs == 2
    times = [(10, 60), (0, 90), (None, 95), (100, None), (110, 0), (0, 0)]
    nameless = {"graphId": None, "graphExecId": None, "correlationId": None}
    write(path, StringIds=NAMES, **{GRAPH: graphs + [on_device(*time, **nameless) for time in times]})
    found = read(path)
    assert [(r["kind"], r["side"], r["name"], r["dur_ns"], r["correlation"]) for r in found.rows] == [
        *(("graph", "device", "CUDA graph 5", 50, 5), ("graph", "device", "CUDA graph 4", 20, 5)),
        ("graph", "device", "CUDA graph", 50, None),
    ]
    assert any("--cuda-graph-trace=node" in note for note in found.trace.notes)
    assert found.trace.dropped == {"row without a time or duration": 5}


def test_graphs_whose_kernels_have_rows_are_not_counted_twice(path):
    """Of its own process: the other's kernel of the same correlation is none of the graph's."""
    launches = (10, 60, 5), (70, 90, 6), (95, 99, None)
    graphs = [on_device(*time, correlationId=n, graphExecId=1) for *time, n in launches]
    kernels = [
        *(kernel(10, 30, correlationId=5, graphNodeId=1), kernel(30, 60, correlationId=5, graphNodeId=2)),
        kernel(70, 90, pid=11, correlationId=6, graphNodeId=None),
        kernel(95, 99, correlationId=0, graphNodeId=None),
    ]
    found = read(write(path, StringIds=NAMES, **{GRAPH: graphs, KERNEL: kernels}), "10")
    assert [row["start_ns"] - 10 for row in found.of("graph")] == [60, 85]
    assert found.trace.dropped["CUDA graph launch whose kernels have rows"] == 1


def test_profiler_overhead_is_a_host_row(path):
    overhead = [{"start": 5, "end": 9, "globalTid": thread(10, 4), "nameId": 1, "overheadType": 3}]
    names = strings("CUPTI Buffer flush")
    write(path, StringIds=names, PROFILER_OVERHEAD=overhead, **{KERNEL: [kernel(1, 2)]})
    assert [(r["name"], r["track"]) for r in read(path).of("other")] == [("CUPTI Buffer flush", 4)]


def test_more_rows_than_a_batch_keep_their_names(path, monkeypatch):
    monkeypatch.setattr("cclbench.formats.sqlite_file.BATCH_ROWS", 2)
    rows = [kernel(i, i + 1, name=1 + i % 3) for i in range(7)]
    write(path, StringIds=strings("a", "b", "c"), **{KERNEL: rows})
    assert [row["name"] for row in read(path).rows] == ["a", "b", "c", "a", "b", "c", "a"]


KERNELS = "CUPTI_ACTIVITY_KIND_KERNEL"


@pytest.mark.parametrize(
    ("table", "row", "what"),
    [
        (KERNEL, kernel(0, 10, gridX=1 << 31, gridY=1 << 31, gridZ=8), "impossible grid"),
        (KERNEL, kernel(0, 10, gridX=-1), "impossible grid of -1 × "),
        (KERNEL, kernel("soon", 10), f'"start" of table {KERNELS} holds string'),
        (KERNEL, kernel(0, 1.5), f'"end" of table {KERNELS} holds double'),
        (KERNEL, kernel(0, 10, streamId=b"x"), f'"streamId" of table {KERNELS} holds binary'),
        *((KERNEL, kernel(1, 2, deviceId=n), f"impossible device {n}") for n in (32_768, -1)),
        *((table, on_device(1, 2, bytes=-3, copyKind=1), "impossible size -3 B") for table in (COPY, MEMSET)),
        (GRAPH, on_device(60, 10, graphId=4), "'CUDA graph 4' from 60 to 10 ns"),
    ],
)
def test_absurd_values(path, table, row, what):
    refused(read, write(path, StringIds=NAMES, **{table: [row]}), what)


def test_a_value_of_another_type_in_a_later_batch(path, monkeypatch):
    monkeypatch.setattr("cclbench.formats.sqlite_file.BATCH_ROWS", 2)
    rows = [kernel(i, i + 1) for i in range(4)] + [kernel("never", 9)]
    refused(read, write(path, StringIds=NAMES, **{KERNEL: rows}), f"table {KERNELS}")


ALL_COPIES = {
    kind: (name, direction)
    for direction, kinds in {
        "h2d": {1: "HtoD", 3: "HtoA"},
        "d2h": {2: "DtoH", 4: "AtoH"},
        "d2d": {5: "AtoA", 6: "AtoD", 7: "DtoA", 8: "DtoD"},
        "p2p": {10: "PtoP"},
        None: {9: "HtoH", 11: "unified HtoD", 12: "unified DtoH", 13: "unified DtoD"}
        | dict.fromkeys((0, 14, None), "of unknown kind"),
    }.items()
    for kind, name in kinds.items()
}


def test_copies_of_every_kind(path):
    rows = [on_device(2 * i, 2 * i + 1, bytes=0, copyKind=kind) for i, kind in enumerate(ALL_COPIES)]
    found = read(write(path, StringIds=NAMES, **{COPY: rows}))
    told = [(row["name"], row["copy_direction"], row["bytes"]) for row in found.of("copy")]
    assert told == [(f"Memcpy {name}", way, 0) for name, way in ALL_COPIES.values()]
    assert {(row["device"], row["correlation"]) for row in found.of("copy")} == {(1, 5)}
    assert [note for note in found.trace.notes if "unified" in note] == [
        "3 copies are migrations of unified memory: they count as copies without a direction"
    ]


@pytest.mark.parametrize(
    ("source", "target", "way"),
    [
        *((0, 1, " (Pageable -> Pinned)"), (2, 3, " (Device -> Array)")),
        *((4, 5, " (Managed -> Device Static)"), (6, 7, " (Managed Static -> Unknown)")),
        *((8, 1, ""), (1, 8, ""), (-1, 1, ""), (1, None, "")),
    ],
)
def test_the_memories_of_a_copy(path, source, target, way):
    row = on_device(1, 2, bytes=1, copyKind=1, srcKind=source, dstKind=target)
    write(path, StringIds=NAMES, **{COPY: [row]})
    assert [row["name"] for row in read(path).of("copy")] == [f"Memcpy HtoD{way}"]


def test_devices_have_fifteen_bits_and_streams_32_but_the_last(path):
    devices, streams = (0, 32_767, None), (0, (1 << 32) - 2, (1 << 32) - 1, None)
    rows = [kernel(n, n + 1, deviceId=device) for n, device in enumerate(devices)]
    rows += [kernel(9 + n, 10 + n, streamId=stream) for n, stream in enumerate(streams)]
    found = read(write(path, StringIds=NAMES, **{KERNEL: rows})).rows
    assert [row["device"] for row in found] == [*devices, *[0] * 4]
    assert [row["track"] for row in found[3:]] == [0, (1 << 32) - 2, -1, -1]


def test_kernels_of_no_known_device(path):
    write(path, StringIds=NAMES, **{KERNEL: [kernel(1, 2, deviceId=None), kernel(3, 4, deviceId=None)]})
    assert [row["device"] for row in read(path).rows] == [None, None]


def test_threads_are_the_lowest_24_bits():
    ids = pa.array([(7 << 24) | 0xFFFFFF, 7 << 24, (1 << 24) + 5, 0, -1, None], pa.int64())
    assert thread_of(ids).tolist() == [0xFFFFFF, 0, 5, 0, -1, -1]


LATEST = 1 << 61


@pytest.mark.parametrize(
    ("start", "end", "is_refused"),
    [
        *((5, 5, False), (5, 4, True), (LATEST - 1, LATEST, False), (LATEST, LATEST + 1, True)),
        *((-LATEST, -1, False), (-LATEST - 1, -1, True), (LATEST, LATEST, False)),
    ],
)
def test_times_of_rows_have_61_bits(path, start, end, is_refused):
    write(path, StringIds=strings("n" * 70), **{KERNEL: [kernel(1, 2), kernel(start, end)]})
    if is_refused:
        refused(read, path, f"impossible time: '{'n' * 60}' from {start} to {end} ns")
        return
    assert [(row["start_ns"], row["dur_ns"]) for row in read(path).rows][1] == (start, end - start)


def test_an_end_of_zero_was_never_seen_but_where_the_begin_is_no_later(path):
    write(path, StringIds=NAMES, **{KERNEL: [kernel(0, 0), kernel(-5, 0), kernel(1, 0), kernel(None, 3)]})
    found = read(path)
    assert [(row["start_ns"], row["dur_ns"]) for row in found.rows] == [(0, 0), (-5, 5)]
    assert found.trace.dropped == {"row without a time or duration": 2}


def test_kernels_without_names_are_counted(path):
    """A correlation of 0 is none."""
    rows = [kernel(1, 2, name=999), kernel(3, 4), kernel(5, 6, demangledName=None, shortName=None)]
    write(
        path, StringIds=NAMES, TARGET_INFO_SESSION_START_TIME=SESSION, **{KERNEL: rows, CALL: [call(0, 1, 0)]}
    )
    found = read(path)
    assert [row["name"] for row in found.of("kernel")] == ["(no name)", NAMES[0]["value"], "(no name)"]
    assert [row["correlation"] for row in found.rows] == [None] * 4
    assert found.trace.notes == ["2 kernels have no name: they count as compute"]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *(("cudaMemsetAsync", "launch"), ("cuMemcpyHtoD_v2", "launch"), ("cuLaunchKernelEx", "launch")),
        *(("cudaMemcpyAsync_v3020", "launch"), ("cuStreamSynchronize", "sync")),
        *(("cudaDeviceSynchronize", "sync"), ("cudaEventRecord", "other"), ("cudaMalloc_v3020", "other")),
    ],
)
def test_kinds_of_calls(path, name, kind):
    """The copy of a call that is kept for its backtrace, of class 67, is no second one."""
    calls = [call(1, 2, 7), call(1, 2, 8, eventClass=66), call(1, 2, 9, eventClass=67)]
    found = read(write(path, StringIds=strings("k", name), **{KERNEL: [kernel(3, 4)], CALL: calls}))
    own = [row["correlation"] for row in found.rows if row["kind"] == kind and row["correlation"]]
    assert own == [7, 8]
    assert [row["correlation"] for row in found.of("other")] == ([7, 8, None] if kind == "other" else [None])


def test_names_are_looked_up_in_parts(path):
    names = strings(*(f"k{n}" for n in range(1, 1202)))
    rows = [kernel(n, n + 1, name=n) for n in (1, 500, 501, 502, 1000, 1001, 1201)]
    rows += [kernel(2000 + n, 2001 + n, name=n) for n in range(1, 1202)]
    write(path, StringIds=names, **{KERNEL: rows})
    assert [row["name"] for row in read(path).rows] == [f"k{row['demangledName']}" for row in rows]
