# SPDX-License-Identifier: Apache-2.0
"""A comparison as a file: HTML, Markdown or JSON, as the file's suffix says."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Final

from cclbench.comparison.comparison import Comparison
from cclbench.comparison.document import document
from cclbench.destination import check_folder, write_whole
from cclbench.errors import UsageError
from cclbench.present.markdown import markdown


def _html(comparison: Comparison, path: Path) -> None:
    from cclbench.present.page import write_comparison

    write_comparison(comparison, path)


def _markdown(comparison: Comparison, path: Path) -> None:
    write_whole(markdown(comparison), path)


def _json(comparison: Comparison, path: Path) -> None:
    text = json.dumps(document(comparison), indent=2, allow_nan=False, ensure_ascii=False)
    write_whole(f"{text}\n", path)


_WRITERS: Final[dict[str, Callable[[Comparison, Path], None]]] = {
    ".html": _html,
    ".md": _markdown,
    ".json": _json,
}


def check_file(path: Path) -> None:
    """`UsageError` where the file's suffix names no form of a comparison, or its folder is not there."""
    if path.suffix.lower() not in _WRITERS:
        raise UsageError(f"{path}: no form of a comparison of that name", hint=f"use {', '.join(_WRITERS)}")
    check_folder(path)


def write(comparison: Comparison, path: Path) -> None:
    """Write the file, whole or not at all."""
    _WRITERS[path.suffix.lower()](comparison, path)
