# SPDX-License-Identifier: Apache-2.0
"""Every view of the SQL library answers what is worked out by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from helpers.sql_run import answers, hand_made, host_row, stored

from cclbench.record.run import Run
from cclbench.sql import VIEWS

UNKNOWN = (None, None, None, None, None, None)
MARKED = (1024.0, 896.0, None, "memory", "cache", 896.0)
"""Work that is faster than the memory, as a cache explains."""
ANSWERS: dict[str, tuple[str, list[tuple[Any, ...]]]] = {
    "step_windows": (
        "SELECT rank, step, start_ns, end_ns, dur_ns, source FROM step_windows WHERE rank = 0 ORDER BY step",
        [(0, 1, 1000, 2000, 1000, "device"), (0, 2, 2000, 3000, 1000, "device")],
    ),
    "device_rows": (
        "SELECT rank, step, in_window, name, end_ns FROM device_rows WHERE track = 7 ORDER BY rank, start_ns",
        [
            (0, 1, True, "void gemm<1>(int)", 1300),
            (0, 2, True, "void gemm<1>(int)", 2300),
            (1, 1, True, "void gemm<1>(int)", 1400),
        ],
    ),
    "activity": (
        "SELECT start_ns, end_ns, dur_ns, state FROM activity WHERE rank = 0 ORDER BY start_ns",
        [
            (1000, 1200, 200, "compute"),
            (1200, 1300, 100, "overlapped"),
            (1300, 1600, 300, "communication"),
            (1600, 2100, 500, "idle"),
            (2100, 2300, 200, "compute"),
            (2300, 2350, 50, "idle"),
            (2350, 2400, 50, "copy"),
        ],
    ),
    "busy": (
        "SELECT * FROM busy ORDER BY rank, step",
        [
            (0, 1, 1000, 200, 100, 300, 0, 600, 400),
            (0, 2, 1000, 200, 0, 0, 50, 250, 750),
            (1, 1, 1000, 400, 0, 100, 0, 500, 500),
            (1, 2, 1000, 0, 0, 0, 0, 0, 1000),
        ],
    ),
    "idle_gaps": (
        "SELECT rank, step, start_ns, end_ns, gap_ns, name, track FROM idle_gaps ORDER BY rank, end_ns",
        [
            (0, 2, 1600, 2100, 500, "void gemm<1>(int)", 7),
            (0, 2, 2300, 2350, 50, "set", 8),
            (1, 1, 1400, 1500, 100, "ncclAllReduce", 9),
        ],
    ),
    "track_gaps": (
        "SELECT * FROM track_gaps ORDER BY rank, start_ns",
        [
            (0, "host", 100, "aten::mm", 2000, 1000),
            (0, "device", 7, "void gemm<1>(int)", 2100, 800),
            (0, "device", 8, "set", 2350, 950),
        ],
    ),
    "exposed_communication": (
        "SELECT * FROM exposed_communication ORDER BY rank",
        [(0, 0, 1, "all_reduce", "0-1", 1200, 400, 300), (1, 0, 1, "all_reduce", "0-1", 1500, 100, 100)],
    ),
    "collective_instances": (
        "SELECT * FROM collective_instances",
        [(5, "all_reduce", "0-1", 2, 1, 1, 2, True, True, 800, 1200, 1500, 300, 1, 300, 100)],
    ),
    "late_arrivals": (
        "SELECT rank, instance, arrival_ns, late_ns, wait_ns, is_last FROM late_arrivals ORDER BY rank",
        [(0, 5, 1200, 0, 300, False), (1, 5, 1500, 300, 0, True)],
    ),
    "waits": (
        "SELECT * FROM waits ORDER BY rank, step",
        [(0, 1, 300, 100), (0, 2, 0, 0), (1, 1, 0, 100), (1, 2, 0, 0)],
    ),
    "bandwidth_by_collective": (
        "SELECT * FROM bandwidth_by_collective ORDER BY rank",
        [(rank, "all_reduce", "0-1", 2, True, 800, 1, 100, 8e9, 8e9) for rank in (0, 1)],
    ),
    "launches": (
        "SELECT rank, step, start_ns, dur_ns, kernels, first_kernel_ns, delay_ns, kernel_ns FROM launches"
        " ORDER BY rank, start_ns",
        [
            (0, 1, 900, 20, 1, 1000, 100, 300),
            (0, 1, 1100, 10, 1, 1200, 100, 400),
            (0, 2, 2050, 30, 1, 2100, 50, 200),
            (1, 1, 950, 20, 1, 1000, 50, 400),
        ],
    ),
    "copies": (
        "SELECT * FROM copies ORDER BY step",
        [
            (0, 1, True, "copy", "h2d", 1, 1000, 100, 100, 1e10),
            (0, 2, True, "memset", None, 1, None, 50, 50, None),
        ],
    ),
    "kernel_summary": (
        "SELECT * FROM kernel_summary WHERE rank = 0 ORDER BY category",
        [
            (0, "communication", "ncclAllReduce", 1, 400, 400.0, 400, 400.0, 400, 400 / 900),
            (0, "gemm", "void gemm<1>(int)", 2, 500, 250.0, 200, 250.0, 300, 500 / 900),
        ],
    ),
    "category_time": (
        "SELECT * FROM category_time WHERE rank = 0 ORDER BY step, category",
        [(0, 1, "communication", 1, 400), (0, 1, "gemm", 1, 300), (0, 2, "gemm", 1, 200)],
    ),
    "stream_summary": (
        "SELECT * FROM stream_summary WHERE rank = 0 ORDER BY track",
        [
            (0, 0, 7, 2, 1000, 2300, 500, 500, 0, 0),
            (0, 0, 8, 2, 1300, 2400, 150, 0, 0, 150),
            (0, 0, 9, 1, 1200, 1600, 400, 0, 400, 0),
        ],
    ),
    "host_calls": (
        "SELECT * FROM host_calls WHERE rank = 0 ORDER BY name",
        [
            (0, "launch", "cudaLaunchKernel", 3, 60, 20.0, 10, 30),
            (0, "other", "cudaMalloc", 1, 100, 100.0, 100, 100),
            (0, "sync", "cudaStreamSynchronize", 1, 390, 390.0, 390, 390),
        ],
    ),
    "syncs": (
        "SELECT rank, track, name, start_ns, end_ns, dur_ns FROM syncs",
        [(0, 100, "cudaStreamSynchronize", 1610, 2000, 390)],
    ),
    "annotations": ("SELECT * FROM annotations", [(0, "forward", 2, 550, 275.0, 100, 450)]),
    "operator_owners": (
        "SELECT * FROM operator_owners ORDER BY operator",
        [(0, 1, 1, False), (0, 2, 2, False), (0, 9, 9, True)],
    ),
    "operator_work": (
        "SELECT rank, step, operator, name, module, category, kernels, dur_ns, computes, flops, bytes,"
        " round(roofline_ns, 3), bound, mark, round(marked_roofline_ns, 3) FROM operator_work"
        " ORDER BY rank, step, operator, name",
        [
            # 2·16·8·4 FLOPs on (16·8 + 8·4 + 16·4)·4 bytes, at 1 GB/s: as fast as they are, a cache helped
            (0, 1, 1, "aten::mm", "layer", "gemm", 1, 300, True, *MARKED),
            (0, 1, None, "HtoD", None, "other", 1, 100, False, *UNKNOWN),
            (0, 1, None, "ncclAllReduce", None, "communication", 1, 400, False, *UNKNOWN),
            (0, 2, 2, "aten::mm", "layer", "gemm", 1, 200, True, *MARKED),
            (0, 2, None, "set", None, "other", 1, 50, False, *UNKNOWN),
            (1, 1, None, "gemm", None, "gemm", 1, 400, True, *UNKNOWN),
            (1, 1, None, "ncclAllReduce", None, "communication", 1, 100, False, *UNKNOWN),
        ],
    ),
    "memory_timeline": (
        "SELECT * FROM memory_timeline ORDER BY time_ns",
        [(0, 0, 900, 100, None, 400), (0, 0, 950, 300, 200, 400)],
    ),
    "results_by_rank": (
        "SELECT metric, unit, rank, value, round(mean, 9), round(ratio, 9) FROM results_by_rank"
        " ORDER BY rank",
        [("time.step", "s", 0, 0.1, 0.2, 0.5), ("time.step", "s", 1, 0.3, 0.2, 1.5)],
    ),
    "step_spread": (
        "SELECT * FROM step_spread ORDER BY step",
        [(1, 2, 1000, 1000.0, 1000, 0, 0), (2, 2, 1000, 1000.0, 1000, 0, 0)],
    ),
}
"""By view: a query, and its rows as worked out by hand."""


def test_operator_work_has_sizes_and_what_figures_are_compared_with(run: Run) -> None:
    """The product (16, 8) times (8, 4) in fp32; the machine has a dense peak and no measured one."""
    query = (
        "SELECT DISTINCT batch, m, n, k, layout, precision, attainable_flops_per_s, assumes,"
        " peak_flops_per_s = (SELECT flops_per_s FROM device_peaks AS p WHERE p.precision = w.precision)"
        " FROM operator_work AS w WHERE operator IS NOT NULL"
    )
    assert answers(run, query) == [(1, 16, 4, 8, None, "fp32", None, None, True)]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return hand_made(tmp_path_factory.mktemp("views") / "hand")


def test_every_view_has_an_answer_by_hand() -> None:
    assert sorted(ANSWERS) == [name for name in VIEWS if VIEWS.origin(name) == "cclbench.sql"]


@pytest.mark.parametrize("name", ANSWERS)
def test_a_view_answers_what_is_worked_out_by_hand(name: str, run: Run) -> None:
    query, rows = ANSWERS[name]
    assert answers(run, query) == rows


def test_on_a_cpu_rank_operators_compute_and_the_librarys_threads_communicate(tmp_path: Path) -> None:
    events = (
        host_row(0, "op", "aten::mm", 1000, 1100, track=1, category="gemm"),
        host_row(0, "op", "autograd::engine::evaluate_function: MmBackward0", 990, 1110, track=1),
        host_row(0, "op", "c10d::allreduce_", 1050, 1080, track=1, category="communication"),
        host_row(0, "op", "gloo:all_reduce", 1070, 1160, track=2, category="communication", collective=0),
    )
    found = stored(tmp_path / "cpu", events, works_on="host")
    assert answers(found, "SELECT start_ns, end_ns, state FROM activity ORDER BY start_ns") == [
        (1000, 1050, "compute"),
        (1050, 1070, "idle"),
        (1070, 1080, "communication"),
        (1080, 1100, "overlapped"),
        (1100, 1160, "communication"),
    ]
