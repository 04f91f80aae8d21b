# SPDX-License-Identifier: Apache-2.0
"""A rank's rows as the replay reads them from a run."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np

import cclbench
from cclbench.replay import tables

HOST, DEVICE = {"ph": "X", "pid": 1, "tid": 1}, {"ph": "X", "pid": 0, "tid": 7}


def call(name: str, ts: float, dur: float, correlation: int) -> dict[str, object]:
    args = {"correlation": correlation}
    return {**HOST, "cat": "cuda_runtime", "name": name, "ts": ts, "dur": dur, "args": args}


def row(cat: str, name: str, ts: float, dur: float, correlation: int, **args: object) -> dict[str, object]:
    told = {"correlation": correlation, "device": 0, "stream": 7, **args}
    return {**DEVICE, "tid": told["stream"], "cat": cat, "name": name, "ts": ts, "dur": dur, "args": told}


WAITING = {"stream": 20, "wait_on_stream": 7}
WAITING |= {"wait_on_cuda_event_record_corr_id": 14, "wait_on_cuda_event_id": 1}
EVENTS = [
    {**HOST, "cat": "user_annotation", "name": "ProfilerStep#3", "ts": 90, "dur": 200},
    {**HOST, "cat": "cpu_op", "name": "aten::mm", "ts": 100, "dur": 10},
    {**HOST, "cat": "cpu_op", "name": "autograd::engine::evaluate_function: X", "ts": 120, "dur": 10},
    *(call("cudaLaunchKernel", 102, 3, 11), call("cudaMemcpyAsync", 112, 3, 12)),
    *(call("cudaMemsetAsync", 116, 3, 13), call("cudaEventRecord", 130, 1, 14)),
    *(call("cudaStreamWaitEvent", 132, 1, 15), call("cudaDeviceSynchronize", 140, 50, 16)),
    row("kernel", "gemm", 110, 20.5, 11, grid=[4, 5, 2], block=[128, 1, 1]),
    row("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 131, 5, 12, bytes=100),
    row("gpu_memcpy", "Memcpy DtoD (Device -> Device)", 137, 2, 17, bytes=100),
    row("gpu_memset", "Memset (Device)", 140, 2, 13, bytes=100),
    row("cuda_sync", "Stream Wait Event", 133, 0, 15, cuda_sync_kind="Stream Wait Event", **WAITING),
    row("cuda_sync", "Context Sync", 141, 48, 16, stream=-1, cuda_sync_kind="Context Sync"),
]


def read(tmp_path: Path, events: list[dict[str, object]]) -> tables.GraphInput:
    properties = [{"id": 0, "name": "NVIDIA A100-SXM4-80GB", "numSms": 108, "totalGlobalMem": 85_000_000_000}]
    trace = {"distributedInfo": {"rank": 0, "world_size": 1}, "deviceProperties": properties}
    (tmp_path / "rank0.json").write_text(json.dumps({"schemaVersion": 1, **trace, "traceEvents": events}))
    (one,) = tables.graph_inputs(cclbench.ingest(tmp_path / "rank0.json", store=tmp_path / "store"))
    return one


def told(rows: tables.RankRows) -> list[tuple[str, float, float, int]]:
    names = [rows.names[code] for code in rows.name.tolist()]
    times = (rows.start / 1_000).tolist(), (rows.end / 1_000).tolist()
    return list(zip(names, *times, rows.correlation.tolist(), strict=True))


def test_rows_count_from_the_device_s_first(tmp_path: Path) -> None:
    one = read(tmp_path, EVENTS)
    work = one.work
    expected = [("gemm", 0, 20.5, 11), ("Memcpy HtoD (Pinned -> Device)", 21, 26, 12)]
    expected += [("Memcpy DtoD (Device -> Device)", 27, 29, 17), ("Memset (Device)", 30, 32, 13)]
    assert told(work) == expected
    assert work.step.tolist() == [3, 3, -1, 3]
    assert work.row.tolist() == [-1] * 4
    assert work.blocks.tolist() == [40, -1, -1, -1]
    assert work.copy.tolist() == [False, True, True, True]
    assert work.direction.tolist() == [-1, 0, 2, -1]
    assert [work.lanes[code] for code in work.lane.tolist()] == [(0, 7)] * 4
    assert [work.categories[code] for code in work.category.tolist()] == ["gemm", "copy", "copy", "copy"]
    assert told(one.launches) == [
        *(("cudaLaunchKernel", -8, -5, 11), ("cudaMemcpyAsync", 2, 5, 12), ("cudaMemsetAsync", 6, 9, 13))
    ]
    assert told(one.syncs) == [("cudaDeviceSynchronize", 30, 80, 16)]
    assert [name for name, *_ in told(one.host)] == [
        *("ProfilerStep#3", "aten::mm", "autograd::engine::evaluate_function: X")
    ]
    assert one.computing.tolist() == [False, True, False]
    assert one.annotation.tolist() == [True, False, False]
    assert (one.policy, one.windows, one.open_windows) == ("device", ((3, 0, 32_000),), ())
    assert (one.processors, one.on_host, len(one.marks)) == (108, False, 0)
    windowed = one.windowed_rank
    assert (windowed.rank, windowed.windows, windowed.policy) == (0, one.windows, "device")


def test_waits_are_stated_at_their_calls_times(tmp_path: Path) -> None:
    stated = read(tmp_path, EVENTS).stated
    assert stated.what.tolist() == [tables.STREAM_WAIT, tables.CONTEXT_SYNC]
    assert stated.time.tolist() == [22_000, 30_000]
    assert (stated.stream.tolist(), stated.device.tolist()) == ([20, -1], [0, 0])
    assert stated.call.tolist() == [15, 16]
    assert stated.event_stream.tolist() == [7, -1]
    assert stated.recorded.tolist() == [20_000, tables.UNSTATED]
    # a wait whose calls are not in the trace has its own time
    kept = [e for e in EVENTS if e["name"] not in ("cudaEventRecord", "cudaStreamWaitEvent")]
    stated = read(tmp_path, kept).stated
    assert stated.time.tolist() == [23_000, 30_000]
    assert stated.recorded.tolist() == [tables.UNSTATED] * 2
    # a trace without stated waits
    assert read(tmp_path, [e for e in EVENTS if e["cat"] != "cuda_sync"]).stated is None


def test_a_rank_s_time_on_the_common_clock() -> None:
    """100.6 ns ahead at the reference, and 10 ns more each ms; the run begins at 5,000."""
    clock = tables.CommonClock(SimpleNamespace(offset_ns=100.6, drift_ppm=10.0), 1_000_000, 5_000)  # type: ignore[arg-type]
    assert clock.on_common_clock(np.array([1_000_000, 2_000_000, 0])).tolist() == [994_899, 1_994_889, -5_091]
    assert tables.CommonClock(None, 7, 5_000).on_common_clock(np.array([5_001])).tolist() == [1]


def test_rows_by_their_names_and_codes(tmp_path: Path) -> None:
    work = read(tmp_path, EVENTS).work
    assert work.rows_named("HtoD", "gemm").tolist() == [True, True, False, False]
    assert work.rows_matching(r"^Mem.*\(Device").tolist() == [False, False, True, True]
    assert [name for name, *_ in told(work.take_rows(np.array([3, 0])))] == ["Memset (Device)", "gemm"]
    # codes of several vocabularies
    known = {"a": 0}
    assert tables.recode_words(np.array([1, 0, -1, 1], np.int32), ("a", "b"), known).tolist() == [1, 0, -1, 1]
    assert tables.recode_words(np.array([0, 1], np.int32), ("c", "a"), known).tolist() == [2, 0]
    assert known == {"a": 0, "b": 1, "c": 2}
    empty = tables.join_rows([])
    assert (len(empty), empty.names, empty.lanes) == (0, (), ())
    assert empty.rows_named("x").tolist() == []


def test_of_host_rows_that_begin_together_the_outer_one_comes_first(tmp_path: Path) -> None:
    """An operator of 40 µs, one of 10 within it from its begin on, an annotation of 90 around both."""
    rows = ("cpu_op", "aten::view", 100, 10), ("user_annotation", "forward", 100, 90)
    rows += ("cpu_op", "aten::linear", 100, 40), ("cpu_op", "aten::relu", 50, 20)
    events = [HOST | {"cat": cat, "name": name, "ts": ts, "dur": dur} for cat, name, ts, dur in rows]
    one = read(tmp_path, events)
    names = [one.host.names[code] for code in one.host.name]
    assert names == ["aten::relu", "forward", "aten::linear", "aten::view"]
    assert one.annotation.tolist() == [False, True, False, False]
