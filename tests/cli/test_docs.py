# SPDX-License-Identifier: Apache-2.0
"""What the documentation shows is what its commands print."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from cclbench.readers import READERS

PAGE = "is-it-the-network-or-the-straggler.md"


def plain(text: str) -> list[str]:
    """Lines without what differs from one version of cclbench to the next: the hash in a run's id."""
    return [re.sub(r"dlrm-[0-9a-f]{8}", "dlrm-ID", line).rstrip() for line in text.splitlines()]


def test_every_figure_of_the_page_comes_from_a_command_on_it(
    repository: Path, test_data: Path, tmp_path: Path
) -> None:
    shutil.copytree(test_data / "kineto" / "dlrm_8xv100", tmp_path / "traces" / "dlrm")
    (tmp_path / "docs" / "images").mkdir(parents=True)
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    environment = os.environ | {"PATH": path, "CCLBENCH_STORE": str(tmp_path / "runs"), "COLUMNS": "80"}
    blocks = re.findall(r"```(sh|text)\n(.*?)```", (repository / "docs" / PAGE).read_text(), re.DOTALL)
    assert [kind for kind, _ in blocks].count("sh") == 9
    printed: list[str] = []
    for kind, block in blocks:
        if kind == "sh":
            ran = subprocess.run(
                ["bash", "-c", block],  # noqa: S607
                cwd=tmp_path,
                env=environment,
                capture_output=True,
                text=True,
                check=True,
            )
            printed = plain(ran.stdout)
        else:
            assert [line for line in plain(block) if line not in [*printed, "..."]] == []
    assert (tmp_path / "docs" / "images" / "dlrm-timeline.png").stat().st_size < 200_000


def test_links_and_pictures_of_the_docs_are_there(repository: Path) -> None:
    for page in (repository / "README.md", *(repository / "docs").glob("*.md")):
        for target in re.findall(r"\]\((?!https?://|#)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_every_reader_is_documented(repository: Path) -> None:
    page = (repository / "docs" / "what-cclbench-reads.md").read_text()
    assert [name for name in READERS if f"| `{name}` |" not in page] == []
