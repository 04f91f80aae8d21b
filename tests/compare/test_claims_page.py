# SPDX-License-Identifier: Apache-2.0
"""The page on claims shows what its commands print."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path


def test_the_page_shows_what_its_commands_print(repository: Path, test_data: Path, tmp_path: Path) -> None:
    shutil.copy(test_data / "ccl_bench" / "benchmark_data.json", tmp_path)
    (tmp_path / "docs" / "images").mkdir(parents=True)
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    environment = os.environ | {"PATH": path, "CCLBENCH_STORE": str(tmp_path / "runs"), "COLUMNS": "80"}
    text = (repository / "docs" / "claims.md").read_text()
    printed, ran, compared = "", 0, 0
    for kind, block in re.findall(r"^```(sh|text)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
        if kind == "sh":
            done = subprocess.run(
                ["bash", "-c", block],  # noqa: S607
                cwd=tmp_path,
                env=environment,
                capture_output=True,
                text=True,
                check=True,
            )
            printed, ran = done.stdout, ran + 1
        else:
            assert block.removesuffix("...\n").rstrip() in printed
            compared += 1
    assert (ran, compared) == (2, 4)
    assert (tmp_path / "docs" / "images" / "claims.png").stat().st_size < 300_000
