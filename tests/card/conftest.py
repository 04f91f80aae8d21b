# SPDX-License-Identifier: Apache-2.0
"""A complete, valid card on disk, with its trace, to be broken in one place at a time."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest

TRACE = b"[]\n"
COMPLETE = f"""\
version: 2
id: tiny
description: A tiny run.
workload:
  phase: training
  model: {{name: Tiny, moe: true, parameters: 1000, active_parameters: 400, embedding_parameters: 100,
          tied_embeddings: false, layers: 2, heads: 4, head_dim: 8}}
  precision: bf16
  batch:
    global: 8
    sequence_length: 128
hardware:
  accelerator: nvidia-h100-sxm
  count: 16
  per_node: 8
  scale_up: {{fabric: nvlink4, bandwidth: 450 GB/s}}
  scale_out: {{fabric: infiniband-ndr, bandwidth: 400 Gb/s, nics: 8}}
software:
  framework: {{name: torchtitan, version: "0.2.0"}}
  communication:
    library: nccl
    version: "2.27"
    environment: {{NCCL_DEBUG: INFO}}
parallelism:
  dp_shard: 4
  tp: 4
  ep: 8
evidence:
  traces:
    - path: traces/tiny/rank0.json
      format: kineto
      ranks: [0]
      sha256: {hashlib.sha256(TRACE).hexdigest()}
      bytes: {len(TRACE)}
  launch: scripts/tiny/run.sh
"""


@pytest.fixture
def complete(tmp_path: Path) -> Path:
    """A valid card in a repository's layout; nothing is missing."""
    for folder in ("workload_cards", "traces/tiny", "scripts/tiny"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "traces/tiny/rank0.json").write_bytes(TRACE)
    (tmp_path / "scripts/tiny/run.sh").write_text("true\n")
    card = tmp_path / "workload_cards" / "tiny.yaml"
    card.write_text(COMPLETE)
    return card


@pytest.fixture
def changed(complete: Path) -> Callable[[str, str], Path]:
    """The complete card with one text replaced."""

    def change(old: str, new: str) -> Path:
        assert COMPLETE.count(old) == 1, old
        complete.write_text(COMPLETE.replace(old, new))
        return complete

    return change
