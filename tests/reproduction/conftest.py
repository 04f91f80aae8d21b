# SPDX-License-Identifier: Apache-2.0
"""A trace of a call, and the micro-benchmark as a module without PyTorch."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from helpers.command_line import call  # noqa: F401 - a fixture

Written = Callable[..., Path]


@pytest.fixture
def gpu_trace(tmp_path: Path) -> Written:
    """`gpu_trace(name, **arguments)`: three calls on an H100, with a kernel of 10, 60 and 20 µs."""

    def write(name: str, kernel: str = "nvjet_tst_128x128", **arguments: Any) -> Path:
        events = []
        for number, length in enumerate((10, 60, 20), start=1):
            at, args = 1000 * number, {"External id": number, **arguments}
            host, device = {"pid": 1, "tid": 1}, {"pid": 0, "tid": 7}
            launched = {"correlation": number}
            ran = {"device": 0, "stream": 7, "External id": number, **launched}
            events += [
                {"ph": "X", "cat": "cpu_op", "name": name, "ts": at, "dur": 9, **host, "args": args},
                {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": at + 2, "dur": 1}
                | {**host, "args": launched},
                {"ph": "X", "cat": "kernel", "name": kernel, "ts": at + 100, "dur": length}
                | {**device, "args": ran},
            ]
        properties = [
            {"id": 0, "name": "NVIDIA H100 80GB HBM3", "totalGlobalMem": 85017493504, "warpSize": 32}
        ]
        path = tmp_path / "rank0.json"
        path.write_text(json.dumps({"deviceProperties": properties, "traceEvents": events}))
        return path

    return write


PRODUCT = {"Input Dims": [[64, 32], [32, 16]], "Input type": ["c10::BFloat16", "c10::BFloat16"]}
PRODUCT |= {"Input Strides": [[32, 1], [1, 32]], "Concrete Inputs": ["", ""]}
"""Arguments of aten::mm."""


@pytest.fixture
def product_trace(gpu_trace: Written) -> Path:
    """Calls of aten::mm with recorded arguments."""
    return gpu_trace("aten::mm", **PRODUCT)


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The program's functions; those that need PyTorch cannot be called."""
    name = "cclbench.reproduction.microbenchmark"
    stand_in = SimpleNamespace(contiguous_format="contiguous", strided="strided", float32="fp32")
    monkeypatch.setitem(sys.modules, "torch", stand_in)
    monkeypatch.delitem(sys.modules, name, raising=False)
    yield importlib.import_module(name)
    monkeypatch.delitem(sys.modules, name, raising=False)
