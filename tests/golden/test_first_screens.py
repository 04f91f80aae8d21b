# SPDX-License-Identifier: Apache-2.0
"""What the first screen says of every real trace: what a person gives who looks at its timeline."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from cclbench.findings.diagnosis import diagnose_run
from cclbench.findings.finding import Finding
from cclbench.present.headline import first_findings
from cclbench.present.terminal.run import first_screen
from cclbench.record.run import Run

from .conftest import Measure

FIRST = {
    "kineto/cpu_only": ["exposed_communication"],
    "kineto/cuda_sync_a100": ["host_bound"],
    "kineto/ddp_a100": ["short_kernels", "synchronization", "unfused_activation"],
    "kineto/distributed_info_missing": [],
    "kineto/dlrm_8xv100": ["short_kernels", "uneven_ranks", "host_bound"],
    "kineto/gpu_only_mi210": ["host_bound", "short_kernels"],
    "kineto/h100_qwen": ["unfused_norm", "unfused_rotary", "low_attention_efficiency"],
    "kineto/nccl_meta_a100": ["host_bound"],
    "kineto/resnet50_2021/resnet50_num_workers_0_2d19c6_worker0.pt.trace.json.gz": [
        *("short_kernels", "data_loading", "tensor_cores")
    ],
    "kineto/resnet50_2021/resnet50_num_workers_4_29dba6_worker0.pt.trace.json.gz": [
        *("tensor_cores", "short_kernels")
    ],
    "kineto/resnet_mi300x": ["exposed_communication", "below_roofline", "exposed_copies"],
    "kineto/sampled_2of128": ["host_bound", "device_stalls"],
    "kineto/sglang_decode_mi300x": ["before_capture"],
    "graph_replay/sglang_decode_mi300x": ["before_capture"],
    "graph_replay/vllm_decode_mi300x": [],
    "kineto_more/norm_layers_mi300x.json.gz": ["cold_start", "host_bound"],
    "nsys/nsysai_mfu_2gpu_before_c8f71e.sqlite": ["host_bound"],
    "nsys/pipit_saxpy_mpi_cuda_perlmutter0.sqlite": ["host_bound", "synchronization", "exposed_copies"],
    "nsys/synthetic/nsysai_healthy_1pct_710487.sqlite": ["memory_bound"],
    "xprof/mi300x_8gpu_jax_conv.xplane.pb": ["host_bound"],
    "xprof/tpu_v6e_4plane.DERIVED_by_xprof2.24.2.trace.json.gz": ["exposed_copies"],
    "xprof/tpu_v6e_4plane_host_offload_psum.xplane.pb": ["exposed_copies"],
}
"""docs/findings.md says why, in the same order."""


def screen_and_findings(run: Run) -> tuple[list[str], list[Finding]]:
    """The first screen, line by line, and what is found."""
    findings = diagnose_run(run).findings
    console = Console(width=80, color_system=None, force_terminal=False)
    with console.capture() as page:
        for part in first_screen(run.record, run.figures, run.window, findings):
            console.print(part)
    return page.get().splitlines(), findings


@pytest.mark.parametrize("source", FIRST)
def test_what_is_found_first(source: str, test_data: Path, measure: Measure) -> None:
    lines, findings = screen_and_findings(measure(test_data / source))
    wanted = FIRST[source]
    found = [one.name for one in first_findings(findings) if one.lost_s]
    assert found[: len(wanted)] == wanted if wanted else found == []
    assert len(lines) <= 40
    assert max(len(line.rstrip()) for line in lines) <= 80


def test_the_page_names_what_stands_first(repository: Path) -> None:
    page = (repository / "docs" / "findings.md").read_text()
    table = page.split("## What it says of real traces")[1].split("\n## ")[0]
    rows = [line.split(" | ")[:2] for line in table.splitlines() if line.startswith("| `")]
    wanted = list(FIRST.items())[:-1]  # both forms of the last one are one line
    assert len(rows) == len(wanted)
    for (trace, named), (source, names) in zip(rows, wanted, strict=True):
        assert source.startswith(trace.split("`")[1])
        told = re.findall("`(.*?)`", named)
        assert told == names[: len(told)] if names else named == "nothing"


def test_a_step_that_is_not_known_is_no_healthy_one(test_data: Path, measure: Measure) -> None:
    said = " ".join(screen_and_findings(measure(test_data / "kineto/distributed_info_missing"))[0])
    assert "No step time" in said
    assert "none of the accelerator" in said
    assert "needlessly" not in said


def test_in_one_step_of_dlrm_no_rank_is_accused(test_data: Path, measure: Measure) -> None:
    """Rank 7 is the latest in the one window there is."""
    _, found = screen_and_findings(measure(test_data / "kineto/dlrm_8xv100"))
    (uneven,) = [one for one in found if one.name == "uneven_ranks"]
    assert uneven.ranks == []
    assert "no rank stands out: rank 7 is late by 6.47 ms a step" in uneven.claim
    assert "one step does not show whether it is late again" in uneven.claim


def test_a_run_without_its_loader_gains_at_least_what_is_stated(test_data: Path, measure: Measure) -> None:
    folder = test_data / "kineto" / "resnet50_2021"
    slow, quick = (measure(next(folder.glob(f"*num_workers_{workers}_*"))) for workers in (0, 4))
    (loading,) = [one for one in diagnose_run(slow).findings if one.name == "data_loading"]
    least, most = loading.gain_s or (0.0, 0.0)
    steps = [run.figures.value("time.step") or 0.0 for run in (slow, quick)]
    # its operators are faster, too, where no loader shares their cores: that is no part of the trace
    assert 0.04 < least <= most < steps[0] - steps[1] < 0.1


@pytest.mark.parametrize("card", ["ddp4-gloo", "fsdp2-tp2-gloo", "fsdp4-gloo", "operators-ddp2-gloo", None])
def test_the_first_screen_of_a_data_point_fits_and_blames_nobody(card, repository, measure):
    name = "tiny-jax-dp2-tp4-cpu" if card is None else f"tiny-llama-{card}-cpu"
    lines, found = screen_and_findings(measure(repository / "workload_cards" / f"{name}.yaml"))
    assert len(lines) <= 40
    assert found
    assert card is None or [one.name for one in found if one.ranks] == []


def test_findings_do_not_depend_on_the_order_of_sets(kineto: Path, tmp_path: Path) -> None:
    """Two seeds of Python's hashes that put the kinds of this trace's collectives in different orders."""
    answers = []
    for seed in ("0", "2"):
        words = ("diagnose", str(kineto / "ddp_a100"), "--store", str(tmp_path / seed), "--json")
        hashed = {**os.environ, "PYTHONHASHSEED": seed}
        command = [sys.executable, "-m", "cclbench", *words]
        answers.append(subprocess.run(command, env=hashed, check=True, stdout=subprocess.PIPE).stdout)
    assert answers[0] == answers[1]
