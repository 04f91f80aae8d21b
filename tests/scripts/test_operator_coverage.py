# SPDX-License-Identifier: Apache-2.0
"""The script that says how much of traces' time has an operator and a cost model."""

from __future__ import annotations

import importlib
import shutil
from pathlib import Path

import pytest


@pytest.fixture
def folder(repository: Path, tmp_path: Path) -> Path:
    """The shipped traces, and a folder with none."""
    folder = tmp_path / "traces"
    shutil.copytree(repository / "traces", folder)
    (folder / "nothing").mkdir()
    (folder / "nothing" / "notes.txt").write_text("no trace\n")
    return folder


def test_each_trace_is_a_line_with_its_shares_or_why_it_has_none(
    repository: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(repository / "scripts")
    monkeypatch.setattr("sys.argv", ["operator_coverage.py", str(folder)])
    importlib.import_module("operator_coverage").main()
    _, _, header, _, *lines = capsys.readouterr().out.splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert all(len(row) == header.count("|") - 1 for row in rows)
    by_name = {row[0]: row[1:] for row in rows}
    shipped = {path.name for path in (repository / "traces").iterdir()}
    assert set(by_name) == {f"traces/{name}" for name in (*shipped, "nothing/notes.txt")}
    count, linked, modelled, lacking, _ = by_name["traces/tiny-llama-operators-ddp2-gloo-cpu"]
    assert (int(count) > 20, linked, float(modelled.removesuffix("%")) > 95) == (True, "100.0%", True)
    assert lacking.startswith("`aten::cat`")
    assert by_name["traces/tiny-jax-dp2-tp4-cpu"][1:3] == ["100.0%", "81.9%"]
    assert by_name["traces/nothing/notes.txt"][:-1] == ["", "", "", ""]
    assert by_name["traces/nothing/notes.txt"][-1]
