# SPDX-License-Identifier: Apache-2.0
"""A comparison as a file: HTML, Markdown or JSON, as the file's suffix says."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from secrets import token_hex
from typing import Final

from cclbench.compare.comparison import Comparison
from cclbench.compare.document import document
from cclbench.compare.markdown import markdown
from cclbench.errors import UsageError
from cclbench.report.destination import check_folder


def _html(comparison: Comparison, path: Path) -> None:
    from cclbench.report.page import write_comparison

    write_comparison(comparison, path)


def _markdown(comparison: Comparison, path: Path) -> None:
    path.write_text(markdown(comparison), encoding="utf-8")


def _json(comparison: Comparison, path: Path) -> None:
    text = json.dumps(document(comparison), indent=2, allow_nan=False, ensure_ascii=False)
    path.write_text(f"{text}\n", encoding="utf-8")


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
    unfinished = path.with_name(f".{path.name}.{token_hex(4)}{path.suffix}")
    try:
        _WRITERS[path.suffix.lower()](comparison, unfinished)
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)
