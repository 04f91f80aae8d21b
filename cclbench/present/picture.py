# SPDX-License-Identifier: Apache-2.0
"""Picture files: PNG, SVG or PDF by the file's suffix, the same bytes for the same figure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cclbench.ground.destination import atomic_replacement, check_folder
from cclbench.ground.errors import UsageError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Without a date and with fixed ids, the same rows give the same file.
_DPI: Final = 160
_METADATA: Final = {".png": {}, ".svg": {"Date": None}, ".pdf": {"CreationDate": None}}


@dataclass(frozen=True, slots=True)
class Picture:
    """A drawing that notebooks show and that can be kept; `figure` is matplotlib's, to be changed."""

    figure: Figure

    def save(self, path: str | Path) -> Path:
        """Write it as PNG, SVG or PDF, as the file's suffix says; `UsageError` for another suffix."""
        target = Path(path)
        save_picture(lambda: self.figure, target)
        return target

    def _repr_png_(self) -> bytes:
        shown = BytesIO()
        self.figure.savefig(shown, format="png", dpi=_DPI // 2)
        return shown.getvalue()


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
        atomic_replacement(path) as unfinished,
    ):
        draw().savefig(unfinished, dpi=_DPI, metadata=_METADATA[path.suffix])
