# SPDX-License-Identifier: Apache-2.0
"""The card of a job of 64 ranks, from which steps of other layouts are projected."""

from __future__ import annotations

from pathlib import Path

import pytest

CARD = """\
version: 2
id: neo
description: A job of 64 ranks
workload:
  phase: training
  model: {parameters: 2651307520, hidden: 2560, layers: 32, vocabulary: 50257}
  precision: fp16
  batch: {global: 1024, micro: 4, sequence_length: 2048}
hardware: {system: alps-gh200, count: 64, per_node: 4}
parallelism: {dp_replicate: 8, tp: 4, pp: 2}
"""


@pytest.fixture(name="neo")
def neo_card(tmp_path: Path) -> Path:
    path = tmp_path / "neo.yaml"
    path.write_text(CARD)
    return path
