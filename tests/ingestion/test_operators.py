# SPDX-License-Identifier: Apache-2.0
"""What launched each device row: operator, phase, module, line of Python, worked out by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.xplane_files import Plane, array, environment, hlo_field, instruction, programs, space, write

import cclbench
from cclbench.formats import Names, Rows
from cclbench.ingestion import operator_rows, rank_operators
from cclbench.ingestion.launches import read_launches
from cclbench.normalize.rows import Categories, events_table
from cclbench.record.files import EventFile

MAIN, ENGINE = 1, 2
Event = dict[str, Any]


def event(cat: str, name: str, begin: int, length: int, thread: int = MAIN, **args: Any) -> Event:
    """A row of `length` µs on a host thread, or a stream."""
    row = {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": thread}
    return row | {"ts": begin, "dur": length, "args": args}


def op(number: int, name: str, begin: int, length: int, thread: int = MAIN, **args: Any) -> Event:
    """A call of an operator."""
    return event("cpu_op", name, begin, length, thread, **{"External id": number, **args})


def kernel(
    correlation: int, launched: int, begin: int, length: int, thread: int = MAIN, **args: Any
) -> list[Event]:
    """A launch of 1 µs and its kernel; the kernel states no operator unless `args` do."""
    link = {"correlation": correlation}
    return [
        event("cuda_runtime", "cudaLaunchKernel", launched, 1, thread, **link),
        event("kernel", f"kernel_{correlation}", begin, length, 7, **link, device=0, stream=7, **args),
    ]


# One step: data [0, 10), forward of a model with two layers [10, 50), loss [50, 60), backward on a thread of
# its own [70, 100) where the second layer's product is recomputed, optimizer [110, 120), a copy [130).
STEP: list[Event] = [
    event("user_annotation", "ProfilerStep#3", 0, 140),
    event("user_annotation", "enumerate(DataLoader)#_SingleProcess.__next__", 0, 10),
    op(1, "aten::stack", 2, 6),
    *kernel(1, 3, 200, 10, **{"External id": 1}),
    event("python_function", "train.py(7): step", 9, 100),
    event("python_function", "torch/nn/modules/module.py(1): _call_impl", 10, 40),
    event("python_function", "nn.Module: Net_0", 10, 40),
    *(event("python_function", "nn.Module: Linear_0", 12, 10), op(2, "aten::linear", 13, 8)),
    op(3, "aten::mm", 14, 6, **{"Sequence number": 40, "Fwd thread id": 0, "Input Dims": [[2, 3], [3, 4]],
       "Input type": ["float", "float"], "Concrete Inputs": ["", ""], "Input Strides": [[3, 1], [4, 1]]}),
    *kernel(2, 15, 210, 20),
    *kernel(3, 17, 225, 10),
    event("python_function", "nn.Module: Linear_1", 24, 10),
    op(4, "aten::mm", 26, 6, **{"Sequence number": 41, "Fwd thread id": 0}),
    *kernel(4, 27, 240, 10),
    op(5, "aten::relu", 38, 6, **{"Sequence number": 42, "Fwd thread id": 0}),
    *kernel(5, 39, 250, 10),
    op(6, "aten::mse_loss", 51, 8, **{"Sequence number": 43, "Fwd thread id": 0}),
    *kernel(6, 52, 260, 10),
    op(7, "autograd::engine::evaluate_function: MmBackward0", 70, 20, ENGINE,
       **{"Sequence number": 41, "Fwd thread id": 1}),
    op(8, "MmBackward0", 71, 18, ENGINE, **{"Sequence number": 41, "Fwd thread id": 1}),
    op(9, "aten::mm", 72, 6, ENGINE, **{"Sequence number": 44, "Fwd thread id": 0}),
    *kernel(7, 73, 270, 10, ENGINE),
    op(10, "aten::mm", 80, 6, ENGINE),
    *kernel(8, 81, 280, 10, ENGINE),
    op(11, "aten::copy_", 95, 4, ENGINE),
    *kernel(9, 96, 290, 10, ENGINE),
    *(event("user_annotation", "Optimizer.step#SGD.step", 110, 10), op(12, "aten::_foreach_add_", 111, 6)),
    *kernel(10, 112, 300, 10),
    *kernel(11, 131, 310, 10),
]  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> cclbench.Run:
    folder = tmp_path_factory.mktemp("operators")
    (folder / "trace.json").write_text(json.dumps({"traceEvents": STEP}))
    return cclbench.ingest(folder / "trace.json", store=folder / "store")


def column(run: cclbench.Run, query: str) -> list[Any]:
    """The one column of an answer."""
    return list(run.sql(query).column(0).to_pylist())


KERNELS = "FROM events WHERE kind = 'kernel' ORDER BY correlation"


def test_each_kernel_has_its_operator_phase_and_module(run: cclbench.Run) -> None:
    """One that states no operator belongs to the innermost call around its launch; the module of a backward
    one is that of its forward call."""
    one, two = "Net_0/Linear_0", "Net_0/Linear_1"
    assert [(*row.values(),) for row in run.sql(f"SELECT operator, phase, module {KERNELS}").to_pylist()] == [
        (1, "data", None),
        *[(3, "forward", one)] * 2,
        *((4, "forward", two), (5, "forward", "Net_0"), (6, "loss", None), (9, "backward", two)),
        *((10, "backward", two), (11, "backward", None), (12, "optimizer", None), (None, "other", None)),
    ]


def test_calls_have_a_line_of_python_outside_the_framework_and_may_be_recomputed(run):
    site = "train.py(7): step"
    told = [None, *[site] * 9, None, None]
    assert column(run, "SELECT call_site FROM operators ORDER BY operator") == told
    assert column(run, "SELECT operator FROM operators WHERE recomputed") == [9]


def test_device_time_is_the_union_of_a_calls_own_kernels(run: cclbench.Run) -> None:
    """[210, 230) and [225, 235) µs overlap; `linear` launched nothing itself."""
    table = run.sql(
        "SELECT operator, parent, kernels, device_ns FROM operators WHERE operator < 4 ORDER BY 1"
    )
    assert table.to_pylist() == [
        {"operator": 1, "parent": None, "kernels": 1, "device_ns": 10_000},
        {"operator": 2, "parent": None, "kernels": 0, "device_ns": 0},
        {"operator": 3, "parent": 2, "kernels": 2, "device_ns": 25_000},
    ]


def test_arguments_are_kept_as_the_trace_records_them(run: cclbench.Run) -> None:
    table = run.sql("SELECT shapes, dtypes, strides, values, step FROM operators WHERE operator = 3")
    told = {"shapes": "[[2,3],[3,4]]", "dtypes": '["float","float"]', "strides": "[[3,1],[4,1]]"}
    assert table.to_pylist() == [told | {"values": '["",""]', "step": 3}]


def test_several_row_groups(run: cclbench.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rank_operators, "ROW_GROUP", 5)
    monkeypatch.setattr(operator_rows, "ROW_GROUP", 5)
    (tmp_path / "trace.json").write_text(json.dumps({"traceEvents": STEP}))
    again = cclbench.ingest(tmp_path / "trace.json", store=tmp_path / "store", jobs=1)
    (path,) = (again.path / "operators").iterdir()
    assert pq.ParquetFile(path).metadata.num_row_groups == 3
    query = "SELECT * FROM operators"
    assert again.sql(query).to_pylist() == run.sql(query).to_pylist()


def test_a_cpus_ops_have_their_own_time(tmp_path: Path) -> None:
    """Without a device all calls are kept: `linear` takes 8 µs, 6 of them in `mm`; a wrapper takes none."""
    host = [row for row in STEP if row["cat"] in ("cpu_op", "user_annotation")]
    (tmp_path / "trace.json").write_text(json.dumps({"traceEvents": host}))
    run = cclbench.ingest(tmp_path / "trace.json", store=tmp_path / "store")
    query = "SELECT device_ns FROM operators WHERE operator IN (2, 3, 7, 8, 9) ORDER BY operator"
    assert column(run, query) == [2_000, 6_000, 0, 0, 6_000]


def test_calls_that_a_cost_model_reads_are_kept_without_a_launch(tmp_path: Path) -> None:
    """Views inside of an index that launches; not outside of it, in an index without a launch, or others."""
    rows = [
        *(op(1, "aten::as_strided", 0, 2), op(2, "aten::index", 10, 10), op(3, "aten::as_strided", 11, 2)),
        *(op(4, "aten::reshape", 14, 3), op(5, "aten::view", 15, 1)),
        *kernel(1, 18, 200, 10),
        *(op(6, "aten::index", 30, 10), op(7, "aten::reshape", 31, 2)),
    ]
    (tmp_path / "rank0.json").write_text(json.dumps({"traceEvents": rows}))
    run = cclbench.ingest(tmp_path, store=tmp_path / "runs")
    kept = run.sql("SELECT name, parent, start_ns FROM operators ORDER BY start_ns").table.to_pydict()
    assert kept["name"] == ["aten::index", "aten::as_strided", "aten::reshape"]
    assert kept["parent"][1:] == [2, 2]


def write_part(folder: Path, part: int, *launches: tuple[str, int, int | None]) -> None:
    """A part's launches: name, start and correlation of each; its thread is the part's number."""
    names, count = Names(), len(launches)
    rows = Rows(
        kind="launch",
        side="host",
        names=names,
        codes=np.array([names[name] for name, _, _ in launches], np.int32),
        track=np.full(count, part),
        start_ns=np.array([start for _, start, _ in launches]),
        dur_ns=np.ones(count, np.int64),
        correlation=pa.array([correlation for *_, correlation in launches], pa.int64()),
    )
    file = EventFile(folder, "launch", part)
    file.write(events_table([rows], Categories("launch")))
    file.close()


def test_launches_of_all_parts_by_correlation(tmp_path: Path) -> None:
    """Those without a correlation launch nothing; of two with one correlation the first comes first."""
    assert len(read_launches(tmp_path)) == 0
    write_part(tmp_path, 0, ("cudaLaunchKernel", 50, 7), ("cudaMemcpyAsync", 10, 3), ("cudaFree", 5, None))
    write_part(tmp_path, 1, ("hipExtLaunchKernel", 20, 5), ("cudaMemcpyAsync", 40, 7))
    found = read_launches(tmp_path)
    assert len(found) == 4
    assert found.correlation.tolist() == [3, 5, 7, 7]
    assert found.start_ns.tolist() == [10, 20, 50, 40]
    assert found.track.tolist() == [0, 1, 0, 1]
    assert found.of_kernel.tolist() == [False, True, True, False]


ONE = hlo_field(36, b"\x01\x01")
BOTH = instruction("a", "add", array(4), 2, ONE), instruction("b", "multiply", array(4), 3, ONE)
PROGRAM = programs([[0]], instruction("p", "parameter", array(4), 1), *BOTH)


def ran(op: str, name: str, at: int, length: int, number: int, scope: int) -> tuple[str, int, int, dict]:
    told = {"program_id": 7, "hlo_op": op, "correlation_id": number, "scope_range_id": scope}
    return name, at, length, told


def test_kernels_of_an_execution_are_one_call_with_the_union_of_their_times(tmp_path: Path) -> None:
    """b runs as two kernels that overlap by 5 ns in two streams, and again; a as one."""
    first = [
        *(ran("a", "k1", 0, 10, 1, 1), ran("b", "k2", 20, 10, 2, 2), ran("a", "k1", 50, 10, 4, 3)),
        *(ran("b", "k2", 70, 10, 5, 4), ran("b", "k3", 85, 5, 6, 4)),
    ]
    second = [ran("b", "k3", 25, 15, 3, 2)]
    plane = Plane("/device:GPU:0", device_vendor="Nvidia")
    plane.line("Stream #7(Kernel)", first).line("Stream #8(Kernel)", second, track=2)
    run = cclbench.ingest(write(tmp_path, space(plane, PROGRAM, environment())), store=tmp_path / "store")
    begin = min(run.operators().column("start_ns").to_pylist())
    found = run.sql("SELECT name, start_ns, end_ns, kernels, device_ns FROM operators ORDER BY start_ns")
    assert [(*row.values(),) for row in found.table.to_pylist()] == [
        *(("add", begin, begin + 10, 1, 10), ("multiply", begin + 20, begin + 40, 2, 20)),
        *(("add", begin + 50, begin + 60, 1, 10), ("multiply", begin + 70, begin + 90, 2, 15)),
    ]
    works = run.sql("SELECT name, kernels, dur_ns, flops FROM operator_work ORDER BY ALL").table.to_pylist()
    expected = [("add", 1, 10, 4.0), ("add", 1, 10, 4.0), ("multiply", 2, 15, 4.0), ("multiply", 2, 20, 4.0)]
    assert [(*row.values(),) for row in works] == expected


FUSED = (
    ("ampere_sgemm_128x64_nn", 0, 40),
    ("void flashmoe::moe::forward<8192u, 2048u, 2048u, 64u>(void const*, void*)", 40, 70),
    ("void dpsk::ep::internode::dispatch<false, 8, true, 8>(int4*, float*)", 60, 100),
)
"""Name, begin and end in µs: two that compute for 70, one that communicates for 40, 10 of them at once."""


def test_a_fused_kernel_is_work_of_the_device_and_no_collective(tmp_path: Path) -> None:
    kernel = {"ph": "X", "cat": "kernel", "pid": 0}
    rows = [
        kernel | {"name": name, "ts": begin, "dur": end - begin, "tid": 7 + stream}
        for stream, (name, begin, end) in enumerate(FUSED)
    ]
    trace = tmp_path / "trace.json"
    trace.write_text(json.dumps({"schemaVersion": 1, "traceEvents": rows}))
    run = cclbench.run(trace, store=tmp_path / "runs", window="trace")

    named = run.sql("SELECT category::VARCHAR AS category FROM events ORDER BY start_ns")
    assert named["category"].to_pylist() == ["gemm", "fused", "communication"]
    assert run.sql(
        "SELECT library::VARCHAR AS library, kind::VARCHAR AS kind FROM collectives"
    ).to_pylist() == [{"library": "deepep", "kind": "all_to_all"}]
    known = {"compute.time": 70e-6, "comm.time": 40e-6, "time.overlapped": 10e-6}
    assert {metric: run.figures.value(metric) for metric in known} == pytest.approx(known)
    assert run.figures.value("compute.category_share", category="fused") == pytest.approx(0.3)
