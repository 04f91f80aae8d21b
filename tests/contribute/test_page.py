# SPDX-License-Identifier: Apache-2.0
"""docs/contribute.md: its commands run in their order, and print what the page shows."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.page_commands import here

ID = "tiny-llama-ddp4-gloo-cpu"
_COUNTS = (
    (r"all [\d,]+ result rows", "all N result rows"),
    (r"; \d+(\s+)metrics are", r"; N\1metrics are"),
    (r"(?<=files, )[\d.]+ MB", "N MB"),
    (r"\d+ kB(?= at$)", "N kB"),
    (r"(?<=[a-z] {7}4) +\d+ +\d+(?= +\d)", " N N"),
    (r"x[jqvwxyz]{14}", "TOKEN"),
)
"""What grows with every metric that is added, depends on who compresses, or is salted."""


def plain(text: str) -> list[str]:
    """Lines without the counts of rows and metrics."""
    for pattern, stand_in in _COUNTS:
        text = re.sub(pattern, stand_in, text)
    return [line.rstrip() for line in text.splitlines()]


@pytest.fixture
def one_core() -> Iterator[None]:
    """Where there is one core cclbench starts no processes, which takes longer than so small a job."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    yield
    os.sched_setaffinity(0, cores)


def shell(command: str, folder: Path) -> list[str]:
    """What a block of commands prints, errors too."""
    roles = [f"GIT_{role}_{what}" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")]
    environment = {**here(folder), **dict.fromkeys(roles, "ada@example.org"), "GIT_CONFIG_GLOBAL": os.devnull}
    ran = subprocess.run(
        ["bash", "-c", f"exec 2>&1\nset -e\n{command}"],  # noqa: S607
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, f"{command}\n{ran.stdout}"
    return plain(ran.stdout)


@pytest.mark.usefixtures("one_core")
def test_the_walk_prints_what_the_page_shows(repository: Path, tmp_path: Path) -> None:
    shutil.copytree(repository / "traces" / ID, tmp_path / "traces" / ID)
    shell("git init -q -b main . && git add traces && git commit -q -m 'a collection'", tmp_path)
    page = (repository / "docs" / "contribute.md").read_text()
    blocks = re.findall(r"```(sh|text)\n(.*?)```", page, re.DOTALL)
    assert [kind for kind, _ in blocks].count("sh") == 11
    printed: list[str] = []
    shown = 0
    for kind, block in blocks:
        if kind == "sh":
            printed = shell(block, tmp_path)
        else:
            assert [line for line in printed if line] == [line for line in plain(block) if line]
            shown += 1
    assert shown >= 6


def test_the_page_names_every_status(repository: Path) -> None:
    from cclbench.contribute.verify import MEANING

    page = (repository / "docs" / "contribute.md").read_text()
    assert [status for status in MEANING if f"| `{status}` |" not in page] == []
