# SPDX-License-Identifier: Apache-2.0
"""Kineto traces of a small job of two ranks on GPUs, whose figures follow by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

GEMM = "ampere_sgemm_128x64_nn<float>"
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def complete(category: str, name: str, begin_us: float, length_us: float, **args: Any) -> dict[str, Any]:
    """A row with a duration, on stream 7 or on thread 100."""
    device = category in ("kernel", "gpu_memcpy")
    place = {"pid": 0, "tid": 7} if device else {"pid": 100, "tid": 100}
    row = {"ph": "X", "cat": category, "name": name, "ts": begin_us, "dur": length_us}
    return {**row, **place, "args": args}


def events(rank: int = 0, steps: int = 2) -> list[dict[str, Any]]:
    """Steps of 100 µs: 40 µs of matrix product, then 30 + `rank` µs of all-reduce, half of it hidden."""
    rows = []
    for step in range(steps):
        at, call = 1000.0 + 100 * step, 10 * step
        nccl = {"Collective name": "allreduce", "In msg nelems": 1000, "Out msg nelems": 1000}
        nccl |= {"dtype": "Float", "Group size": 2, "Process Group Ranks": "[0, 1]"}
        rows += [
            complete("user_annotation", f"ProfilerStep#{step}", at, 95),
            complete("cpu_op", "aten::mm", at + 1, 5),
            complete("cuda_runtime", "cudaLaunchKernel", at + 2, 1, correlation=call + 1),
            complete("cuda_runtime", "cudaLaunchKernel", at + 4, 1, correlation=call + 2),
            complete("kernel", GEMM, at + 10, 40, correlation=call + 1, grid=[54, 1, 1]),
            complete("kernel", ALL_REDUCE, at + 35, 30 + rank, correlation=call + 2, **nccl),
        ]
    return rows


def write(path: Path, rows: list[dict[str, Any]], **outer: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"schemaVersion": 1, **outer, "traceEvents": rows}))
    return path


def on_rank(rank: int, world: int = 2) -> dict[str, Any]:
    """What a trace says of its place in the job."""
    return {"distributedInfo": {"backend": "nccl", "rank": rank, "world_size": world}}
