# SPDX-License-Identifier: Apache-2.0
"""Pages that people follow step by step: their files work, and their commands print what the page shows."""

from __future__ import annotations

import re
import shutil
import tomllib
from pathlib import Path

import pytest
from helpers.packages import install, path_to
from helpers.page_commands import blocks, here, printed_by

PAGES = {
    "tour.md": 8,
    "tutorial.md": 11,
    "capture.md": 1,
    "compare.md": 9,
    "findings.md": 3,
    "beyond-one-machine.md": 2,
    "timeline-reader.md": 1,
    "stragglers.md": 2,
    "history.md": 3,
    "search.md": 4,
    "scaling.md": 3,
    "add-a-metric.md": 3,
    "add-a-finding.md": 2,
    "add-a-setting.md": 2,
    "add-a-format.md": 1,
    "add-a-machine.md": 3,
    "add-a-view.md": 3,
    "operators.md": 6,
    "export.md": 3,
    **dict.fromkeys(
        (
            *("questions/opus.md", "questions/morphlux.md", "questions/lumion.md", "questions/stragglar.md"),
            *(
                "questions/taccl.md",
                "questions/perseus.md",
                "questions/teal.md",
                "questions/disaggregated.md",
            ),
        ),
        1,
    ),
}
"""With the number of commands on each."""


def plain(text: str) -> list[str]:
    """Lines without what differs between versions: the hash in a run's id."""
    return [re.sub(r"(-)[0-9a-f]{8}\b", r"\1HASH", line).rstrip() for line in text.splitlines()]


def assert_shown(page: str, shown: str, printed: list[str]) -> None:
    """Each stretch of lines between `...` is printed as it is, one after the other."""
    at = 0
    for stretch in re.split(r"^\.\.\.$", shown, flags=re.MULTILINE):
        lines = plain(stretch.strip("\n"))
        if lines:
            places = (n for n in range(at, len(printed)) if printed[n : n + len(lines)] == lines)
            found = next(places, None)
            assert found is not None, f"{page} shows what is not printed:\n{stretch}\nprinted:\n" + "\n".join(
                printed
            )
            at = found + len(lines)


def installed(folder: Path) -> None:
    """What installing the folder's package does to entry points."""
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    install(folder, project["name"], project["version"], project["entry-points"])


def test_the_readme_shows_what_is_printed(repository: Path, tmp_path: Path) -> None:
    shown, command = 0, ""
    for language, _, block in blocks((repository / "README.md").read_text()):
        if language == "text":
            assert_shown("README.md", block, plain(printed_by(command, repository, here(tmp_path))))
            shown += 1
        command = re.sub(r".*(?=\bcclbench)", "", block.strip())  # without making an environment first
    assert shown == 1


@pytest.mark.parametrize(("page", "commands"), PAGES.items())
def test_the_page_works_as_it_says(repository: Path, tmp_path: Path, page: str, commands: int) -> None:
    text = (repository / "docs" / page).read_text()
    for folder in (
        ("workload_cards", "traces", "scripts") if "traces/tiny-" in text or "workload_cards/" in text else ()
    ):
        shutil.copytree(repository / folder, tmp_path / folder)
    environment = here(tmp_path) | {"PYTHONPATH": path_to(tmp_path)}
    printed: list[str] = []
    ran = 0
    for language, name, block in blocks(text):
        if name is not None:
            (tmp_path / name).write_text(block)
            if name == "pyproject.toml":
                installed(tmp_path)
        elif language == "text":
            assert_shown(page, block, printed)
        elif language in ("sh", "python"):
            printed = plain(printed_by(block, tmp_path, environment, language))
            ran += 1
    assert ran == commands
