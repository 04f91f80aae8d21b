# SPDX-License-Identifier: Apache-2.0
"""A rank's metrics are the same where no columns of its tables are kept."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

import cclbench
from cclbench.record.run import Run

TRACES = (
    *("kineto/h100_qwen/Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz", "kineto/ddp_a100/control.json.gz"),
    *("kineto/resnet_mi300x/resnet_act_checkpoint.json.gz", "kineto/cuda_sync_a100", "kineto/dlrm_8xv100"),
    "nsys/nsysai_mfu_2gpu_before_c8f71e.sqlite",
)
DATA_POINTS = ("tiny-llama-operators-ddp2-gloo-cpu", "tiny-jax-dp2-tp4-cpu")
LITTLE = {"cclbench.record.rank": {"MOST_KEPT": 0}}
"""By module what bounds memory, and how little it is here."""


def equal_in_little_memory(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = cclbench.metrics(run).rows
    for module, bounds in LITTLE.items():
        for name, bound in bounds.items():
            assert getattr(importlib.import_module(module), name) > bound
            monkeypatch.setattr(f"{module}.{name}", bound)
    (run.path / "results.parquet").unlink()
    found = cclbench.metrics(run).rows
    assert [row for row, other in zip(found, expected, strict=True) if row != other] == []


@pytest.mark.parametrize("trace", TRACES)
def test_accelerators(test_data: Path, trace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    equal_in_little_memory(cclbench.ingest(test_data / trace, store=tmp_path), monkeypatch)


@pytest.mark.parametrize("name", DATA_POINTS)
def test_on_a_cpu(repository: Path, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    card = repository / "workload_cards" / f"{name}.yaml"
    equal_in_little_memory(cclbench.ingest(card, store=tmp_path), monkeypatch)
