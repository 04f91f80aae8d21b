# SPDX-License-Identifier: Apache-2.0
"""A part with `calls_only` has the rows that a graph's capture needs, and they equal those of a full read."""

from __future__ import annotations

import pytest

from cclbench.formats import Part

STATED_OF_OTHERS = ("kind", "side", "name", "start_ns", "dur_ns", "track")


@pytest.mark.parametrize("base", [0.25, 1.7e15], ids=["from a base", "since 1970"])
@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz"])
def test_calls_only(read, write, event, base: float, name: str) -> None:
    arguments = {"External id": 5, "Sequence number": 3, "Fwd thread id": 2, "Input type": ["float"]}
    sizes = {"Input Dims": [[4]], "Input Strides": [[1]], "Concrete Inputs": [""]}
    events = [
        event("cpu_op", "aten::relu", base, 9, **arguments, **sizes),
        event("user_annotation", "step", base, 50),
        event("python_function", "nn.Module: Net_0", base, 20, tid=1),
        event("python_function", "model.py(3): forward", base + 1, 18, tid=1),
        event("python_function", "torch/_tensor.py(600): backward", base + 2, 3),
        event("python_function", "torch/nn/functional.py(9): relu", base + 2, 3),
        event("python_function", "<built-in method relu>", base + 3, 1),
        event("cuda_runtime", "hipStreamBeginCapture", base, 1),
        event("cuda_runtime", "hipLaunchKernel", base + 4, 1, kernel="relu", correlation=8),
        event("cuda_runtime", "hipDeviceSynchronize", base + 5, 1, correlation=9),
        event("kernel", "relu", base + 9, 2, device=0, stream=7, correlation=8),
        event("gpu_memcpy", "Memcpy HtoD", base + 9, 2, device=0, stream=7, bytes=4),
        event("gpu_user_annotation", "step", base, 50, device=0, stream=7),
        {**event("cpu_instant_event", "[memory]", base, Bytes=4), "ph": "i"},
    ]
    path = write(events, name=name)
    whole, calls = read(path), read(path, part=Part(calls_only=True))
    for kind in ("op", "launch"):
        assert calls.of(kind) == whole.of(kind) != []
    assert calls.of("annotation") == [row for row in whole.of("annotation") if row["side"] == "host"] != []
    assert calls.of("python") == whole.of("python")[:3]
    assert [row["name"] for row in calls.of("other")] == ["hipStreamBeginCapture", "[memory]"]
    assert [[row[key] for key in STATED_OF_OTHERS] for row in calls.of("other")] == [
        [row[key] for key in STATED_OF_OTHERS] for row in whole.of("other")
    ]
    assert {row["kind"] for row in calls.rows} == {"op", "launch", "annotation", "python", "other"}
