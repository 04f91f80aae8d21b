# SPDX-License-Identifier: Apache-2.0
"""A kernel that computes and communicates in one launch, from its trace to the figures."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import cclbench

KERNELS = (
    ("ampere_sgemm_128x64_nn", 0, 40),
    ("void flashmoe::moe::forward<8192u, 2048u, 2048u, 64u>(void const*, void*)", 40, 70),
    ("void dpsk::ep::internode::dispatch<false, 8, true, 8>(int4*, float*)", 60, 100),
)
"""Name, begin and end in µs: two that compute for 70, one that communicates for 40, 10 of them at once."""


def test_a_fused_kernel_is_work_of_the_device_and_no_collective(tmp_path: Path) -> None:
    kernel = {"ph": "X", "cat": "kernel", "pid": 0}
    rows = [
        kernel | {"name": name, "ts": begin, "dur": end - begin, "tid": 7 + stream}
        for stream, (name, begin, end) in enumerate(KERNELS)
    ]
    trace = tmp_path / "trace.json"
    trace.write_text(json.dumps({"schemaVersion": 1, "traceEvents": rows}))
    run = cclbench.run(trace, store=tmp_path / "runs", window="trace")

    named = run.sql("SELECT category::VARCHAR AS category FROM events ORDER BY start_ns")
    assert named["category"].to_pylist() == ["gemm", "fused", "communication"]
    assert run.sql(
        "SELECT library::VARCHAR AS library, kind::VARCHAR AS kind FROM collectives"
    ).to_pylist() == [{"library": "deepep", "kind": "all_to_all"}]
    results = run.results
    whole = results[results["rank"].isna() & results["step"].isna() & results["stat"].isna()]
    alone = whole[whole["category"].isna() & whole["collective"].isna() & whole["group"].isna()]
    seconds = dict(zip(alone["metric"], alone["value"], strict=True))
    assert seconds["compute.time"] == pytest.approx(70e-6)
    assert seconds["comm.time"] == pytest.approx(40e-6)
    assert seconds["time.overlapped"] == pytest.approx(10e-6)
    shares = whole[whole["metric"] == "compute.category_share"]
    assert dict(zip(shares["category"], shares["value"], strict=True))["fused"] == pytest.approx(0.3)
