# SPDX-License-Identifier: Apache-2.0
"""The campaign of planted secrets, once: some classes in every format, and none is published."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path


def table(repository: Path, folder: Path, *words: str) -> tuple[int, dict[str, tuple[int, int]], str]:
    """Exit code, planted and survived by class, and messages."""
    ran = subprocess.run(
        [sys.executable, str(repository / "scripts" / "campaign" / "planted_secrets.py"), *words],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    rows = re.findall(r"^\| (.*?) \| (\d+) \| (\d+) \|", ran.stdout, re.MULTILINE)
    counts = {kind: (int(planted), int(survived)) for kind, planted, survived in rows}
    return ran.returncode, counts, ran.stderr


def test_no_class_of_secrets_survives_in_any_format(repository: Path, tmp_path: Path) -> None:
    code, rows, told = table(repository, tmp_path, "--rounds", "1", "--every", "12", "--seed", "7")
    assert (code, told) == (0, "")
    whole = rows.pop("all, in 3 jobs")
    assert whole == (3 * len(rows), 0)
    assert len(rows) > 15
    assert set(rows.values()) == {(3, 0)}


def test_halves_of_the_classes_are_drawn_and_apart(repository: Path) -> None:
    sys.path.insert(0, str(repository / "scripts" / "campaign"))
    try:
        from secret_classes import HALVES, classes
    finally:
        sys.path.pop(0)
    every, halves = classes(), [classes(half) for half in HALVES]
    assert sorted(one.name for half in halves for one in half) == sorted(one.name for one in every)
    assert len({one.name for one in every}) == len(every) > 200
    assert abs(len(halves[0]) - len(halves[1])) < 2
    assert all(one.source and one.texts for one in every)
