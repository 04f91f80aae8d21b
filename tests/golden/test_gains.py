# SPDX-License-Identifier: Apache-2.0
"""Of real traces and of simulated jobs: what is computed in two ways agrees, gains and their what-ifs too."""

from __future__ import annotations

from pathlib import Path

import pytest

import cclbench
from cclbench.selfcheck.agreements import check_agreements
from cclbench.selfcheck.outcome import Outcome
from cclbench.selfcheck.reading import CheckedReading
from cclbench.selftest.exam import ExamItem, simulate_item
from cclbench.selftest.traces import write_traces

SOURCES = ["kineto/ddp_a100", "kineto/dlrm_8xv100", "kineto/h100_qwen", "kineto/sampled_2of128"]
SOURCES += ["graph_replay/vllm_decode_mi300x", "kineto_more/norm_layers_mi300x.json.gz"]
SOURCES += ["nsys/nsysai_mfu_2gpu_before_c8f71e.sqlite"]
"""scripts/selfcheck_all.py takes any number."""
JOBS = ["slow_loader_of_one_rank", "no_overlap", "first_calls", "odd_sizes"]


def breaches(run: cclbench.Run) -> list[Outcome]:
    """The agreements of a run that do not hold."""
    return [one for one in check_agreements(CheckedReading.from_run(run)) if one.status == "broken"]


@pytest.mark.parametrize("source", SOURCES)
def test_figures_of_real_traces_agree(source: str, test_data: Path, evidence_store: Path) -> None:
    assert breaches(cclbench.ingest(test_data / source, store=evidence_store)) == []


@pytest.mark.parametrize("cause", JOBS)
def test_figures_of_simulated_jobs_agree(cause: str, tmp_path: Path) -> None:
    job = simulate_item(ExamItem("planted", cause, 5_000))
    write_traces(job.planted.with_cause, job.truth.histories, tmp_path / "traces")
    assert breaches(cclbench.ingest(tmp_path / "traces", store=tmp_path / "store")) == []
