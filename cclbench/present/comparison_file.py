# SPDX-License-Identifier: Apache-2.0
"""A comparison as a file: HTML, Markdown or JSON by its suffix."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from cclbench.comparison.comparison import Comparison
from cclbench.comparison.document import comparison_document
from cclbench.ground.destination import check_folder, write_whole
from cclbench.ground.errors import UsageError
from cclbench.ground.text import printable_json
from cclbench.present.markdown import comparison_markdown

_SUFFIXES: Final = (".html", ".md", ".json")


def check_file(path: Path) -> None:
    """`UsageError` if the file's suffix is not supported, or its folder does not exist."""
    if path.suffix.lower() not in _SUFFIXES:
        raise UsageError(f"{path}: unsupported suffix for a comparison", hint=f"use {', '.join(_SUFFIXES)}")
    check_folder(path)


def write_comparison(comparison: Comparison, path: Path) -> None:
    """Write the file atomically."""
    suffix = path.suffix.lower()
    if suffix == ".html":
        from cclbench.present.html import write_page
        from cclbench.present.page import comparison_page

        write_page(comparison_page(comparison), path)
    elif suffix == ".md":
        write_whole(comparison_markdown(comparison), path)
    else:
        text = printable_json(
            json.dumps(comparison_document(comparison), indent=2, allow_nan=False, ensure_ascii=False)
        )
        write_whole(f"{text}\n", path)
