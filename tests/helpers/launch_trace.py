# SPDX-License-Identifier: Apache-2.0
"""Kineto traces of one thread that only launches kernels, from times worked out by hand."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import count
from pathlib import Path


def write_launches(path: Path, steps: Sequence[Sequence[tuple[float, float]]]) -> list[float]:
    """Write the trace of steps of launches, each (µs until the next launch, µs of its kernel). A step is as
    long as its host's or its device's work. Returns the steps' durations, µs."""
    events: list[dict[str, object]] = []
    number, begin_us, free_us = count(1), 0.0, 0.0

    def add(cat: str, name: str, start_us: float, dur_us: float, **args: object) -> None:
        pid, tid = (0, 7) if cat == "kernel" else (1, 1)
        fields = {"ph": "X", "cat": cat, "name": name, "ts": start_us, "dur": dur_us}
        events.append(fields | {"pid": pid, "tid": tid, "args": args})

    lengths = [max(sum(host for host, _ in calls), sum(kernel for _, kernel in calls)) for calls in steps]
    for step, (calls, length_us) in enumerate(zip(steps, lengths, strict=True)):
        add("user_annotation", f"ProfilerStep#{step}", begin_us, length_us)
        launched_us = begin_us
        for host_us, kernel_us in calls:
            correlation = next(number)
            add("cuda_runtime", "cudaLaunchKernel", launched_us, 1, correlation=correlation)
            start_us = max(free_us, launched_us + 1)
            add("kernel", "gemm", start_us, kernel_us, correlation=correlation, stream=7, device=0)
            launched_us, free_us = launched_us + host_us, start_us + kernel_us
        begin_us += length_us
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    return lengths
