# SPDX-License-Identifier: Apache-2.0
"""The page on claims shows what its commands print."""

from __future__ import annotations

import shutil
from pathlib import Path

from helpers.page_commands import blocks, here, printed_by


def test_the_page_shows_what_its_commands_print(repository: Path, test_data: Path, tmp_path: Path) -> None:
    shutil.copy(test_data / "ccl_bench" / "benchmark_data.json", tmp_path)
    jobs = test_data / "job_logs_ccl"
    shutil.copytree(jobs / "megatron_logs", tmp_path / "logs")
    for folder, search, script in (
        ("titan", "20260429_093910_titan_best", "perlmutter_torchtitan_llama8b/scripts/train_llama8b.sh"),
        ("megatron", "20260429_115146_megatron_best", "megatron_llama8b/scripts/run.sh"),
    ):
        (tmp_path / folder).mkdir()
        shutil.copy(jobs / "agent" / "ccl_bench_agent" / "runs" / search / "results.csv", tmp_path / folder)
        shutil.copy(jobs / "agent" / script, tmp_path / folder)
    (tmp_path / "docs" / "images").mkdir(parents=True)
    text = (repository / "docs" / "claims.md").read_text()
    printed, ran, compared = "", 0, 0
    for kind, name, block in blocks(text):
        if name:
            (tmp_path / name).write_text(block)
        elif kind == "sh":
            printed, ran = printed_by(block, tmp_path, here(tmp_path)), ran + 1
        elif kind == "text":
            assert block.removesuffix("...\n").rstrip() in printed
            compared += 1
    assert (ran, compared) == (4, 6)
    assert (tmp_path / "docs" / "images" / "claims.png").stat().st_size < 400_000
