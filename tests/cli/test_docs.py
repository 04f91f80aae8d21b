# SPDX-License-Identifier: Apache-2.0
"""What the documentation shows is what its commands print."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from helpers.page_commands import blocks, here, printed_by

from cclbench.formats import READERS

PAGE = "is-it-the-network-or-the-straggler.md"


def plain(text: str) -> list[str]:
    """Lines without what differs from one version of cclbench to the next: the hash in a run's id."""
    return [re.sub(r"dlrm-[0-9a-f]{8}", "dlrm-ID", line).rstrip() for line in text.splitlines()]


def test_every_figure_of_the_page_comes_from_a_command_on_it(
    repository: Path, test_data: Path, tmp_path: Path
) -> None:
    shutil.copytree(test_data / "kineto" / "dlrm_8xv100", tmp_path / "traces" / "dlrm")
    (tmp_path / "docs" / "images").mkdir(parents=True)
    found = list(blocks((repository / "docs" / PAGE).read_text()))
    assert [kind for kind, _, _ in found].count("sh") == 9
    printed: list[str] = []
    for kind, _, block in found:
        if kind == "sh":
            printed = plain(printed_by(block, tmp_path, here(tmp_path)))
        elif kind == "text":
            assert [line for line in plain(block) if line not in [*printed, "..."]] == []
    assert (tmp_path / "docs" / "images" / "dlrm-timeline.png").stat().st_size < 200_000


def test_links_and_pictures_of_the_docs_are_there(repository: Path) -> None:
    for page in (repository / "README.md", *(repository / "docs").glob("*.md")):
        for target in re.findall(r"\]\((?!https?://|#)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_every_reader_is_documented_with_how_to_capture_it(repository: Path) -> None:
    page = (repository / "docs" / "what-cclbench-reads.md").read_text()
    without_links = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", page)
    rows = {name: f"| `{name}` | {READERS.get(name).capture} |" for name in READERS}
    assert [name for name, row in rows.items() if row not in without_links] == []
