# SPDX-License-Identifier: Apache-2.0
"""Real runs replayed unchanged: the measured step within 1 %, and waiting that is not copied."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import cclbench
from cclbench.replay import nodes as n
from cclbench.replay.answer import Replay

OURS = (
    "tiny-llama-ddp4-gloo-cpu",
    "tiny-llama-fsdp4-gloo-cpu",
    "tiny-llama-fsdp2-tp2-gloo-cpu",
    "tiny-jax-dp2-tp4-cpu",
)


@pytest.mark.parametrize("name", OURS)
def test_our_data_points(name: str, repository: Path, evidence_store: Path) -> None:
    run = cclbench.ingest(repository / "traces" / name, store=evidence_store)
    replay = Replay(run)
    assert replay.unchanged.step_ns == pytest.approx(replay.measured_ns, rel=0.01)
    nodes = replay.graph.nodes
    assert replay.graph.transfers.known.all()
    none = replay._replay_outcome(replay.graph, np.where(nodes.kind == n.TRANSFER, 0.0, 1.0))
    assert none.step_ns < 0.99 * replay.measured_ns


def test_eight_gpus(test_data: Path, evidence_store: Path) -> None:
    run = cclbench.ingest(test_data / "kineto" / "dlrm_8xv100", store=evidence_store)
    replay = Replay(run)
    assert replay.unchanged.step_ns == pytest.approx(replay.measured_ns, rel=0.01)
    assert int((replay.graph.nodes.kind == n.RENDEZVOUS).sum()) == 8


@pytest.mark.parametrize(
    "path",
    [
        *("kineto/nccl_meta_a100", "kineto/h100_qwen", "kineto/sampled_2of128", "kineto/cuda_sync_a100"),
        *("kineto/gpu_only_mi210", "kineto/ddp_a100", "kineto/resnet_mi300x"),
        *("graph_replay/sglang_decode_mi300x", "graph_replay/vllm_decode_mi300x"),
        *("nsys/nsysai_mfu_2gpu_before_c8f71e.sqlite", "xprof/mi300x_8gpu_jax_conv.xplane.pb"),
    ],
)
def test_fixtures_with_launches(path: str, test_data: Path, evidence_store: Path) -> None:
    run = cclbench.ingest(test_data / path, store=evidence_store)
    replay = Replay(run)
    assert replay.unchanged.step_ns == pytest.approx(replay.measured_ns, rel=0.01)
