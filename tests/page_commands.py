# SPDX-License-Identifier: Apache-2.0
"""The commands of a page of the documentation, run as its reader runs them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

_BLOCK = re.compile(r'^```(\w+)(?: title="([\w./-]+)")?\n(.*?)^```$', re.DOTALL | re.MULTILINE)


def blocks(page: str) -> Iterator[tuple[str, str | None, str]]:
    """Language, file name and text of each block of code."""
    for match in _BLOCK.finditer(page):
        yield match[1], match[2] or None, match[3]


def here(folder: Path) -> dict[str, str]:
    """The environment of a person who has cclbench, keeps runs in the folder, on a terminal of 80 columns."""
    return os.environ | {
        "PATH": os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"])),
        "CCLBENCH_STORE": str(folder / "runs"),
        "COLUMNS": "80",
    }


def printed_by(block: str, folder: Path, environment: Mapping[str, str], language: str = "sh") -> str:
    """What a block of commands, or of Python, prints in the folder; fails where the block does."""
    program = ["bash", "-c", block] if language == "sh" else [sys.executable, "-c", block]
    done = subprocess.run(program, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{block}\n{done.stderr}"
    return done.stdout
