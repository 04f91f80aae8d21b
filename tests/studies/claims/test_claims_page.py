# SPDX-License-Identifier: Apache-2.0
"""The page on claims shows what its commands print."""

from __future__ import annotations

import shutil
from pathlib import Path

from page_commands import blocks, here, printed_by


def test_the_page_shows_what_its_commands_print(repository: Path, test_data: Path, tmp_path: Path) -> None:
    shutil.copy(test_data / "ccl_bench" / "benchmark_data.json", tmp_path)
    (tmp_path / "docs" / "images").mkdir(parents=True)
    text = (repository / "docs" / "claims.md").read_text()
    printed, ran, compared = "", 0, 0
    for kind, _, block in blocks(text):
        if kind == "sh":
            printed, ran = printed_by(block, tmp_path, here(tmp_path)), ran + 1
        elif kind == "text":
            assert block.removesuffix("...\n").rstrip() in printed
            compared += 1
    assert (ran, compared) == (2, 4)
    assert (tmp_path / "docs" / "images" / "claims.png").stat().st_size < 300_000
