# SPDX-License-Identifier: Apache-2.0
"""Of real traces and of simulated jobs: a finding's gain is what the replay of its settings says."""

from __future__ import annotations

from pathlib import Path

import pytest
from replayed_gains import gains_are_those_of_the_replay

import cclbench
from cclbench.selftest.exam import Item, make
from cclbench.selftest.traces import write_traces

SOURCES = [
    *("kineto/cuda_sync_a100", "kineto/ddp_a100", "kineto/dlrm_8xv100", "kineto/gpu_only_mi210"),
    *("kineto/h100_qwen", "kineto/nccl_meta_a100", "kineto/resnet_mi300x", "kineto/sampled_2of128"),
    *("kineto/sglang_decode_mi300x", "graph_replay/vllm_decode_mi300x"),
    "kineto_more/norm_layers_mi300x.json.gz",
    "nsys/nsysai_mfu_2gpu_before_c8f71e.sqlite",
    "nsys/pipit_saxpy_mpi_cuda_perlmutter0.sqlite",
    "xprof/mi300x_8gpu_jax_conv.xplane.pb",
]
JOBS = [
    *("slow_loader_of_one_rank", "checkpoint_every_third_step", "no_overlap", "first_calls"),
    *("unfused_optimizer", "odd_sizes", "experts_by_layer", "few_microbatches"),
]


@pytest.mark.parametrize("source", SOURCES)
def test_gains_of_real_traces(source: str, test_data: Path, tmp_path: Path) -> None:
    run = cclbench.run(test_data / source, store=tmp_path)
    gains_are_those_of_the_replay(run, cclbench.diagnose(run).findings)


@pytest.mark.parametrize("cause", JOBS)
def test_gains_of_simulated_jobs(cause: str, tmp_path: Path) -> None:
    job = make(Item("planted", cause, 5_000))
    write_traces(job.planted.sick, job.truth.histories, tmp_path / "traces")
    run = cclbench.run(tmp_path / "traces", store=tmp_path / "store")
    gains_are_those_of_the_replay(run, cclbench.diagnose(run).findings)
