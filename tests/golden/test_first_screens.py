# SPDX-License-Identifier: Apache-2.0
"""What the first screen says of every real trace: what a person gives who looks at its timeline."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

import cclbench
from cclbench.present.terminal.run import first_screen

FIRST = {
    # Tiny kernels, the device idle half of its step; rank 7, launched later by its host, is waited for.
    "kineto/dlrm_8xv100": ["short_kernels", "late_rank", "host_bound"],
    # 91 % busy, 39 % of it elementwise and 22 % copies of an eager model.
    "kineto/h100_qwen": ["memory_bound", "host_bound"],
    # One rank of eight: 63 % of the step in an all-reduce that nobody can divide.
    "kineto/resnet_mi300x": ["exposed_communication", "memory_bound", "recompute"],
    # Half of the step idle for its host, before anything else.
    "kineto/sampled_2of128": ["host_bound", "exposed_communication", "device_stalls"],
    "kineto/ddp_a100": ["host_bound", "memory_bound", "exposed_communication"],
    # A CPU that waits in one gloo all-reduce.
    "kineto/cpu_only": ["exposed_communication"],
}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("first")
    yield folder
    shutil.rmtree(folder)


@pytest.mark.parametrize("source", FIRST)
def test_what_is_found_first(source: str, test_data: Path, store: Path) -> None:
    run = cclbench.run(test_data / source, store=store)
    found = cclbench.diagnose(run).findings
    assert [one.name for one in found if one.gain_s][: len(FIRST[source])] == FIRST[source]
    console = Console(width=80, color_system=None, force_terminal=False)
    with console.capture() as page:
        for part in first_screen(run.record, run.figures, run.window):
            console.print(part)
    lines = page.get().splitlines()
    assert len(lines) <= 40
    assert max(len(line.rstrip()) for line in lines) <= 80


def test_rank_7_of_dlrm_is_late_for_its_host(test_data: Path, store: Path) -> None:
    found = cclbench.diagnose(test_data / "kineto/dlrm_8xv100", store=store).findings
    (late,) = [one for one in found if one.name == "late_rank"]
    assert late.ranks == [7]
    assert "its host launches later" in late.claim
    assert late.gain_s is not None
    assert 0 < late.gain_s[0] < late.gain_s[1] < 0.018


@pytest.mark.parametrize("card", ["ddp4", "fsdp2-tp2", "fsdp4", "operators-ddp2"])
def test_nobody_is_blamed_on_gloo(card: str, repository: Path, store: Path) -> None:
    path = repository / "workload_cards" / f"tiny-llama-{card}-gloo-cpu.yaml"
    found = cclbench.diagnose(path, store=store).findings
    assert found
    assert [one.name for one in found if one.ranks] == []
