# SPDX-License-Identifier: Apache-2.0
"""Pages that people follow step by step: their files work, and their commands print what the page shows."""

from __future__ import annotations

import re
import shlex
import shutil
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers.command_line import Answer, call  # noqa: F401 - a fixture
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
    "is-it-the-loader.md": 5,
    "stragglers.md": 2,
    "history.md": 3,
    "search.md": 4,
    "scaling.md": 3,
    "add-a-metric.md": 3,
    "add-a-finding.md": 2,
    "add-a-setting.md": 2,
    "add-a-format.md": 2,
    "add-a-machine.md": 3,
    "add-a-view.md": 3,
    "operators.md": 6,
    "export.md": 3,
    **{f"questions/{one}.md": 1 for one in ("opus", "morphlux", "lumion", "stragglar")},
    **{f"questions/{one}.md": 1 for one in ("taccl", "perseus", "teal", "disaggregated")},
}
"""With the number of commands on each."""


def plain(text: str) -> list[str]:
    """Lines without what differs between versions: the hash in a run's id."""
    text = re.sub(r"\bx[jqvwxyz]{14}", "TOKEN", text)
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


def own_commands(block: str) -> list[list[str]]:
    """Words of the block's commands where each is one of cclbench, with nothing of a shell; else none."""
    lines = [one for one in block.replace("\\\n", " ").splitlines() if one and not one.startswith("#")]
    if all(re.fullmatch(r"cclbench [^|<>&;$`~(){}!\\]*", line) for line in lines):
        return [shlex.split(line, comments=True)[1:] for line in lines]
    return []


@pytest.mark.parametrize(("page", "commands"), PAGES.items())
def test_the_page_works_as_it_says(
    repository: Path,
    tmp_path: Path,
    page: str,
    commands: int,
    monkeypatch: pytest.MonkeyPatch,
    call: Callable[..., Answer],  # noqa: F811
) -> None:
    """In this process where neither a shell nor an installed package is needed, which takes a second each."""
    text = (repository / "docs" / page).read_text()
    shipped = ("workload_cards", "traces", "scripts")
    for folder in shipped if "traces/tiny-" in text or "workload_cards/" in text else ():
        shutil.copytree(repository / folder, tmp_path / folder)
    environment = here(tmp_path) | {"PYTHONPATH": path_to(tmp_path)}
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CCLBENCH_STORE", environment["CCLBENCH_STORE"])
    printed: list[str] = []
    ran, packaged = 0, False
    for language, name, block in blocks(text):
        if name is not None:
            (tmp_path / name).write_text(block)
            if name == "pyproject.toml":
                installed(tmp_path)
                packaged = True
        elif language == "text":
            assert_shown(page, block, printed)
        elif language in ("sh", "python"):
            own = own_commands(block) if language == "sh" and not packaged else []
            answers = [call(*words) for words in own]
            assert [answer.err for answer in answers if answer.code] == []
            told = "".join(answer.out for answer in answers)
            printed = plain(told if own else printed_by(block, tmp_path, environment, language))
            ran += 1
    assert ran == commands
