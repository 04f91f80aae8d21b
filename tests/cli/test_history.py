# SPDX-License-Identifier: Apache-2.0
"""`cclbench history` and `cclbench remove --keep`: exit codes, forms and the plot."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.command_line import Call, Told
from helpers.machine_trace import product, write_trace


@pytest.fixture(autouse=True)
def nightly_runs(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Thirteen nights of 3.00 to 3.01 ms, the last of 3.3 ms."""
    monkeypatch.setenv("CCLBENCH_STORE", str(tmp_path / "store"))
    for night, us in enumerate([1000.0, 1004.0] * 6 + [1100.0]):
        trace = tmp_path / f"night-{night:02d}"
        write_trace(trace, [product(1024, "gemm", us)] * 3)
        answer = call("ingest", trace, "--label", f"date=2026-10-{night + 1:02d}", "-q")
        assert answer.code == 0


def test_the_exit_code_tells_regressed_from_could_not_be_judged(call: Call, tmp_path: Path) -> None:
    assert call("history", "night-*").code == 0
    regressed = call("history", "night-*", "--fail-on", "time.step > +3%")
    assert (regressed.code, "1 of 1 checks failed" in regressed.err) == (1, True)
    unjudged = call("history", "night-1[12]*", "--fail-on", "time.step > +3%")
    assert (unjudged.code, "1 of 1 checks refused" in unjudged.err) == (5, True)
    both = call("history", "night-1[12]*", "--fail-on", "time.step > +3%", "--fail-on", "time.step > 3.2 ms")
    assert both.code == 1
    assert call("history", "nightly-*").code == 2
    plot = tmp_path / "history.svg"
    assert call("history", "--plot", plot, "-q").code == 0
    assert "time.step" in plot.read_text()


def test_the_forms_agree(call: Call, told: Told, tmp_path: Path) -> None:
    """A shard has no labels."""
    document = told("history")["histories"][0]
    lines = call("history", "--format", "csv").out.splitlines()
    assert len(lines) == 1 + len(document["runs"]) == 14
    assert [line.split(",")[1] for line in lines[1:]] == [run["run"] for run in document["runs"]]
    table = call("history").out
    assert all(run["run"] in table for run in document["runs"])
    assert "noise between runs" in table
    answer = call("ingest", tmp_path / "night-00", "--shard", "1/2", "--label", "commit=a")
    assert (answer.code, "a shard has no labels" in answer.err) == (2, True)
    assert call("run", tmp_path / "night-00", "--label", "commit").code == 2


def test_a_run_is_named_by_its_ids_beginning_or_as_last(call: Call, told: Told, tmp_path: Path) -> None:
    """Removal keeps the newest."""
    ids = [run["run"] for run in told("list", "runs")["rows"]]
    third = next(run for run in ids if run.startswith("night-03"))
    for name, run in (("night-03", third), (ids[5][:-1], ids[5]), ("@last", ids[0])):
        assert told("metrics", name)["run"]["id"] == run
    several = call("metrics", "night-0")
    assert (several.code, "10 runs in" in several.err, "night-00" in several.err) == (2, True, True)
    assert call("metrics", "@last", "--store", tmp_path / "empty").code == 2
    assert call("remove", "night-*", "--keep", "3", "--yes").code == 0
    left = [run["run"][:8] for run in told("list", "runs")["rows"]]
    assert left == ["night-12", "night-11", "night-10"]
    assert call("remove", "other-*", "--yes").code == 2
