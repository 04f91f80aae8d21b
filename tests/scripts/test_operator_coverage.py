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


def test_each_trace_is_a_line_and_the_rest_is_counted(
    repository: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(repository / "scripts")
    monkeypatch.setattr("sys.argv", ["operator_coverage.py", str(folder)])
    importlib.import_module("operator_coverage").main()
    _, sources, families, lacking_rows, without = capsys.readouterr().out.split("\n\n", 4)
    header, _, *lines = sources.splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert all(len(row) == header.count("|") - 1 for row in rows)
    by_name = {row[0]: row[1:] for row in rows}
    shipped = {path.name for path in (repository / "traces").iterdir()}
    means = f"mean of {len(shipped)} sources", f"mean of {len(shipped) - 1} of them with recorded arguments"
    assert set(by_name) == {*(f"traces/{name}" for name in shipped), *means}
    whole, recorded = (float(by_name[name][2].removesuffix("%")) for name in means)
    assert by_name["traces/llama-decode-graph-h100"][2] == "0.0%"
    assert recorded * (len(shipped) - 1) == pytest.approx(whole * len(shipped), abs=1)
    del by_name[means[1]]
    assert "| `aten::cat` |" in lacking_rows
    count, linked, modelled, above, lacking, _ = by_name["traces/tiny-llama-operators-ddp2-gloo-cpu"]
    assert (int(count) > 20, linked, float(modelled.removesuffix("%")) > 95) == (True, "100.0%", True)
    assert (above, lacking[:11]) == ("0", "`aten::cat`")
    assert by_name["traces/tiny-jax-dp2-tp4-cpu"][1:3] == ["100.0%", "100.0%"]
    shares = [float(values[n].removesuffix("%")) for values in by_name.values() for n in (1, 2)]
    assert sum(shares[:-2:2]) / len(shipped) == pytest.approx(shares[-2], abs=0.1)
    assert sum(shares[1:-2:2]) / len(shipped) == pytest.approx(shares[-1], abs=0.1)
    parts = [line.split("|")[2] for line in families.splitlines()[2:]]
    assert sum(float(part.strip(" %")) for part in parts) == pytest.approx(100, abs=1)
    assert without.startswith("Files and folders without device time: 1\n")
