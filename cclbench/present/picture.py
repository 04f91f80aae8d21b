# SPDX-License-Identifier: Apache-2.0
"""Picture files: PNG, SVG or PDF by the file's suffix, with equal bytes for equal figures."""

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

# Without a date and with fixed ids, equal figures give equal files.
_DPI: Final = 160
_METADATA: Final = {".png": {}, ".svg": {"Date": None}, ".pdf": {"CreationDate": None}}


@dataclass(frozen=True, slots=True)
class Picture:
    """A drawing that notebooks show and that can be saved; `figure` is the matplotlib figure."""

    figure: Figure

    def save(self, path: str | Path) -> Path:
        """Write it as PNG, SVG or PDF by the file's suffix; `UsageError` for any other."""
        target = Path(path)
        save_picture(lambda: self.figure, target)
        return target

    def _repr_png_(self) -> bytes:
        shown = BytesIO()
        self.figure.savefig(shown, format="png", dpi=_DPI // 2)
        return shown.getvalue()


def check_picture(path: Path) -> None:
    """`UsageError` if the file's suffix is not supported, or its folder does not exist."""
    if path.suffix not in _METADATA:
        raise UsageError(f"{path}: unsupported picture format", hint=f"use {', '.join(_METADATA)}")
    check_folder(path)


def save_picture(draw: Callable[[], Figure], path: Path) -> None:
    """Write the figure that `draw` returns; `UsageError` if the file's suffix is not supported."""
    check_picture(path)
    import matplotlib as mpl

    with (
        mpl.rc_context({"svg.hashsalt": "cclbench", "svg.fonttype": "none"}),
        atomic_replacement(path) as unfinished,
    ):
        draw().savefig(unfinished, dpi=_DPI, metadata=_METADATA[path.suffix])
