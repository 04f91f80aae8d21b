# SPDX-License-Identifier: Apache-2.0
"""The campaign of planted secrets, once: every class in every format, and none is published."""

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
    return (
        ran.returncode,
        {kind: (int(planted), int(survived)) for kind, planted, survived in rows},
        ran.stderr,
    )


def test_no_class_of_secrets_survives_in_any_format(repository: Path, tmp_path: Path) -> None:
    code, rows, told = table(repository, tmp_path, "--secrets", "39", "--seed", "7")
    assert (code, told) == (0, "")
    whole = rows.pop("all, in 3 jobs")
    assert whole == (3 * 39, 0)
    assert len(rows) == 39
    assert set(rows.values()) == {(3, 0)}
