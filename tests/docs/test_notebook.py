# SPDX-License-Identifier: Apache-2.0
"""The notebook runs from the repository's folder, and shows what it showed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient


def shown(notebook: Any) -> list[list[str]]:
    """What each cell printed or answered; pictures by their kind alone."""
    return [[_text(output) for output in cell.outputs] for cell in notebook.cells if cell.cell_type == "code"]


def _text(output: Any) -> str:
    data = output.get("data", {})
    text = output.get("text") or data.get("text/html") or data.get("text/plain") or ""
    return re.sub(r"(-)[0-9a-f]{8}\b", r"\1HASH", text) if "image/png" not in data else "picture"


def test_the_notebook_shows_what_it_showed(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notebook = nbformat.read(repository / "docs" / "notebook.ipynb", as_version=4)
    before = shown(notebook)
    assert [output for outputs in before for output in outputs].count("picture") == 3
    monkeypatch.setenv("CCLBENCH_STORE", str(tmp_path / "runs"))
    where = {"metadata": {"path": str(repository)}}
    NotebookClient(notebook, timeout=300, kernel_name="python3", resources=where).execute()
    assert shown(notebook) == before
