# SPDX-License-Identifier: Apache-2.0
"""Where a file is to go, checked before the work for it begins; and putting it there."""

from __future__ import annotations

import os
from pathlib import Path
from secrets import token_hex

from cclbench.errors import UsageError


def check_folder(path: Path) -> None:
    """`UsageError` where the file's folder is not there."""
    if not path.parent.is_dir():
        raise UsageError(f"{path}: there is no folder {path.parent}", hint="create it first")


def write_whole(text: str, path: Path) -> None:
    """The file, whole or as it was before."""
    unfinished = path.with_name(f".{path.name[:80]}.{token_hex(4)}")
    try:
        unfinished.write_text(text, encoding="utf-8")
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)
