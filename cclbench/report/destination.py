# SPDX-License-Identifier: Apache-2.0
"""Where a file is to go, checked before the work for it begins."""

from __future__ import annotations

from pathlib import Path

from cclbench.errors import UsageError


def check_folder(path: Path) -> None:
    """`UsageError` where the file's folder is not there."""
    if not path.parent.is_dir():
        raise UsageError(f"{path}: there is no folder {path.parent}", hint="create it first")
