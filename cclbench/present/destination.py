# SPDX-License-Identifier: Apache-2.0
"""Where a file is to go, checked before the work for it begins; and putting it there.

Pictures are PNG, SVG or PDF by the file's suffix, the same bytes for the same figure.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Final

from cclbench.errors import UsageError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Without a date and with fixed ids, the same rows give the same file.
_METADATA: Final = {".png": {}, ".svg": {"Date": None}, ".pdf": {"CreationDate": None}}


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


def check_picture(path: Path) -> None:
    """`UsageError` where the file's suffix names no format we draw, or its folder is not there."""
    if path.suffix not in _METADATA:
        raise UsageError(f"{path}: no picture format of that name", hint=f"use {', '.join(_METADATA)}")
    check_folder(path)


def save_picture(draw: Callable[[], Figure], path: Path) -> None:
    """Write the figure that `draw` makes; `UsageError` where the file's suffix names no format."""
    check_picture(path)
    import matplotlib as mpl

    with mpl.rc_context({"svg.hashsalt": "cclbench", "svg.fonttype": "none"}):
        draw().savefig(path, dpi=160, metadata=_METADATA[path.suffix])
