# SPDX-License-Identifier: Apache-2.0
"""A Kineto trace of a device that is always busy: operators with recorded shapes and a kernel each."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

DEVICES = {
    "a100": ("NVIDIA A100-SXM4-80GB", 80 * 10**9, 108),
    "v100": ("Tesla V100-SXM2-16GB", 16 * 10**9, 80),
    "h100": ("NVIDIA H100 80GB HBM3", 80 * 10**9, 132),
}
FLOAT, BF16 = "float", "c10::BFloat16"


class Op(NamedTuple):
    """An operator that launches one kernel of `us`; sizes of its tensors, None of unrecorded ones."""

    name: str
    kernel: str
    us: float
    shapes: Sequence[Any] | None = None
    dtype: str = FLOAT
    stream: int = 7
    values: Sequence[str] = ()
    """Of its further arguments, which are no tensors."""
    args: Mapping[str, Any] = MappingProxyType({})
    """Of the kernel's row."""


def product(size: int, kernel: str, us: float, dtype: str = FLOAT) -> Op:
    return Op("aten::mm", kernel, us, [[size, size], [size, size]], dtype)


def write_trace(
    folder: Path,
    ops: Sequence[Op],
    *,
    device: str = "a100",
    steps: int = 4,
    rank: int = 0,
    world: int = 1,
    more: Sequence[dict[str, Any]] = (),
    **outer: Any,
) -> Path:
    """The trace of steps that all run those operators, launched 1 µs after one another and far ahead."""
    name, memory, processors = DEVICES[device]
    rows: list[dict[str, Any]] = list(more)
    host, free = 1_000.0, 0.0
    correlation = 1
    for step in range(steps):
        begin = host
        for op in ops:
            listed = {} if op.shapes is None else _arguments(op.shapes, op.dtype, op.values)
            rows.append(_row("cpu_op", op.name, host, 0.9, tid=1, **{"External id": correlation, **listed}))
            told = {"External id": correlation, "correlation": correlation}
            rows.append(_row("cuda_runtime", "cudaLaunchKernel", host + 0.2, 0.5, tid=1, **told))
            start = max(free, host + 5)
            on = {"device": 0, "stream": op.stream, **told, **op.args}
            rows.append(_row("kernel", op.kernel, start, op.us, pid=0, tid=op.stream, **on))
            free, host, correlation = start + op.us, host + 1, correlation + 1
        rows.append(_row("user_annotation", f"ProfilerStep#{step}", begin, host - begin, tid=1))
    gpu = {"id": 0, "name": name, "totalGlobalMem": memory, "numSms": processors, "computeMajor": 8}
    job = {"backend": "nccl", "rank": rank, "world_size": world}
    document = {"schemaVersion": 1, "deviceProperties": [gpu], "distributedInfo": job, **outer}
    path = folder / f"rank{rank}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document | {"traceEvents": rows}))
    return path


def _arguments(shapes: Sequence[Any], dtype: str, values: Sequence[str]) -> dict[str, Any]:
    return {
        "Input Dims": [*shapes, *[[] for _ in values]],
        "Input type": [dtype] * len(shapes) + ["Scalar"] * len(values),
        "Concrete Inputs": [""] * len(shapes) + [*values],
    }


def _row(
    kind: str, name: str, start: float, us: float, *, tid: int, pid: int = 9, **args: Any
) -> dict[str, Any]:
    row = {"ph": "X", "cat": kind, "name": name, "ts": start, "dur": us, "pid": pid, "tid": tid}
    return {**row, "args": args}
