# SPDX-License-Identifier: Apache-2.0
"""Picture files: PNG, SVG or PDF by the file's suffix, the same bytes for the same figure."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cclbench.destination import check_folder, replacing
from cclbench.errors import UsageError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Without a date and with fixed ids, the same rows give the same file.
_METADATA: Final = {".png": {}, ".svg": {"Date": None}, ".pdf": {"CreationDate": None}}


def check_picture(path: Path) -> None:
    """`UsageError` where the file's suffix names no format we draw, or its folder is not there."""
    if path.suffix not in _METADATA:
        raise UsageError(f"{path}: no picture format of that name", hint=f"use {', '.join(_METADATA)}")
    check_folder(path)


def save_picture(draw: Callable[[], Figure], path: Path) -> None:
    """Write the figure that `draw` makes; `UsageError` where the file's suffix names no format."""
    check_picture(path)
    import matplotlib as mpl

    with (
        mpl.rc_context({"svg.hashsalt": "cclbench", "svg.fonttype": "none"}),
        replacing(path) as unfinished,
    ):
        draw().savefig(unfinished, dpi=160, metadata=_METADATA[path.suffix])
