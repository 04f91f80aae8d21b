# SPDX-License-Identifier: Apache-2.0
"""Bytes by cost models against what Nsight Compute counted of the same kernels (tests/golden/h100)."""

from __future__ import annotations

import csv
import gzip
from collections import Counter
from pathlib import Path

import pytest

import cclbench
from cclbench.operator_table import operator_costs

Moved = dict[str, tuple[float, float, float]]
"""By operator bytes of the model, of L2 and of DRAM in a step, MB."""


def counted(repository: Path) -> list[tuple[float, float]]:
    """Bytes that L2 and DRAM moved for each kernel of a step, in the order of their launches."""
    text = gzip.decompress((repository / "tests/golden/h100/kernel_counters.csv.gz").read_bytes()).decode()
    rows = [*csv.DictReader(line for line in text.splitlines() if line.startswith('"'))][1:]

    def number(row: dict[str, str], name: str) -> float:
        return float(row[name].replace(",", ""))

    return [
        (
            number(row, "lts__t_bytes.sum"),
            number(row, "dram__bytes_read.sum") + number(row, "dram__bytes_write.sum"),
        )
        for row in rows
    ]


@pytest.fixture(scope="module")
def moved(repository: Path, evidence_store: Path) -> dict[str, tuple[float, float, float]]:
    """Those of the step that was counted."""
    run = cclbench.ingest(repository / "workload_cards/llama-train-h100.yaml", store=evidence_store)
    kernels = run.sql(
        "SELECT o.name FROM events e LEFT JOIN operators o ON e.operator = o.operator AND e.rank = o.rank"
        " WHERE e.kind = 'kernel' AND e.step = 13 ORDER BY e.start_ns"
    )["name"].to_pylist()
    counts = counted(repository)
    assert len(kernels) == len(counts) == 327
    l2, dram = Counter[str](), Counter[str]()
    for name, (of_l2, of_dram) in zip(kernels, counts, strict=True):
        l2[name] += of_l2
        dram[name] += of_dram
    rows = operator_costs(run, "op", steps=(13, 14)).rows
    return {
        row.key: (row.bytes / 1e6, l2[row.key] / 1e6, dram[row.key] / 1e6)
        for row in rows
        if row.bytes and row.key in l2
    }


def test_no_model_counts_more_than_the_device_moves(moved: Moved) -> None:
    """Compulsory traffic is a lower bound of what passes L2."""
    assert len(moved) > 15
    for name, (model, l2, _) in moved.items():
        assert model <= l2, name


@pytest.mark.parametrize(
    "name", ["aten::silu_backward", "aten::_log_softmax_backward_data", "aten::silu", "aten::_log_softmax"]
)
def test_large_tensors_come_from_memory(moved: Moved, name: str) -> None:
    """What an operator reads and writes is DRAM's traffic but for what L2 keeps of each call."""
    model, _, dram = moved[name]
    assert dram <= model * 1.02
    assert dram >= model * 0.7
