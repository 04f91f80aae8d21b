# SPDX-License-Identifier: Apache-2.0
"""The real leaderboard, and rows made by hand."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cclbench.studies.published.leaderboard import Publication, PublishedRow, read_leaderboard


@pytest.fixture(scope="session")
def board_file(test_data: Path) -> Path:
    """CCL-Bench's leaderboard of May 2026."""
    return test_data / "ccl_bench" / "benchmark_data.json"


@pytest.fixture(scope="session")
def board(board_file: Path) -> Publication:
    return read_leaderboard(board_file)


METADATA = {"workload_name": "tiny-fsdp4", "description": "", "model_family": "tiny", "phase": "training"}
METADATA |= {"precision": "bf16", "moe": False, "batch_size": 4, "seq_len": 512, "framework": "torchtitan"}
METADATA |= {"hardware_type": "GPU", "hardware_model": "nvidia_a100", "total_count": 4, "count_per_node": 4}
METADATA |= {"tp": 1, "pp": 1, "dp_replicate": 1, "dp_shard": 4, "cp": 1, "ep": "", "trace_types": ["json"]}


def metadata(**other: Any) -> dict[str, Any]:
    """Training of a small model on 4 GPUs, fully sharded, traced by PyTorch's profiler."""
    return {**METADATA, **other}


def published(metrics: dict[str, float | None], **other: Any) -> PublishedRow:
    return PublishedRow(1, metadata(**other), metrics, "0" * 64)


@pytest.fixture
def board_of(tmp_path: Path) -> Callable[..., Path]:
    """Writes a leaderboard of rows as they come."""

    def write(*rows: Any, **other: Any) -> Path:
        path = tmp_path / "board.json"
        document = {"generated_at": "2026-05-07T07:17:59+00:00", "rows": list(rows), **other}
        path.write_text(json.dumps(document))
        return path

    return write


SEARCH_CARD = """\
version: 1
description: Llama-3.1-8B on 16 A100 of Perlmutter
workload:
  model: {model_family: llama-3.1-8b, phase: training, precision: bf16}
  hardware:
    xpu_spec: {type: GPU, model: nvidia_a100, count_per_node: 4}
"""
