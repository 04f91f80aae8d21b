# SPDX-License-Identifier: Apache-2.0
"""`cclbench report`: a run as a page, and what cannot be reported."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from helpers.command_line import Call
from helpers.trees import files

from cclbench.findings.kept_gains import GAINS_FILE


def test_a_run_as_a_page_says_that_its_only_step_is_open(
    call: Call, trace: Path, tmp_path: Path, document: dict[str, Any]
) -> None:
    path = tmp_path / "run.html"
    answer = call("report", trace, "-o", path)
    assert (answer.code, answer.out, answer.err) == (0, "", f"wrote {path}\n")
    text = path.read_text(encoding="utf-8")
    # the kernel table, a metric, what is missing and why
    for words in ("ampere_sgemm_128x64_nn", "time.exposed_comm", "needs a workload card"):
        assert words in text
    rows = document["traceEvents"]
    document["traceEvents"] = [row for row in rows if row["name"] != "ProfilerStep#1"]
    trace.write_text(json.dumps(document))
    assert call("report", trace, "-o", tmp_path / "run.html").code == 0
    text = (tmp_path / "run.html").read_text(encoding="utf-8")
    assert "last step incomplete: its end is not in the trace" in text


def test_a_report_adds_its_replay_to_the_store_and_nothing_else(
    call: Call, trace: Path, tmp_path: Path
) -> None:
    assert call("run", trace, "-q").code == 0
    (run,) = (path for path in (tmp_path / "store").iterdir() if path.is_dir())
    before = files(run)
    assert call("report", run.name, "-q", "-o", tmp_path / "a.html").code == 0
    after = files(run)
    assert {name for name in after if after[name] != before.get(name)} == {"results.parquet", GAINS_FILE}
    assert call("report", trace, "-q", "-o", tmp_path / "b.html").code == 0
    assert call("run", trace, "-q").code == 0
    assert files(run) == after
    assert (tmp_path / "a.html").read_bytes() == (tmp_path / "b.html").read_bytes()


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ("TRACE -o x.png", 2, "error: x.png: a report is an HTML page; use .html or .htm"),
        ("TRACE -o none/x.html", 2, "error: none/x.html: there is no folder none; create it first"),
        ("TRACE -o .", 2, "is a directory"),
        ("TRACE", 2, "Missing option '-o' / '--output'"),
        ("no-such-run -o x.html", 2, "no-such-run"),
        ("empty -o x.html", 3, "empty"),
        ("cut.json -o x.html", 3, "cut.json"),
    ],
)
def test_what_cannot_be_reported(
    call: Call, trace: Path, monkeypatch: pytest.MonkeyPatch, arguments: str, code: int, message: str
) -> None:
    monkeypatch.chdir(trace.parent)
    Path("empty").mkdir()
    Path("cut.json").write_bytes(trace.read_bytes()[:900])
    answer = call("report", *arguments.replace("TRACE", trace.name).split())
    assert (answer.code, answer.out) == (code, "")
    assert message in answer.err
    assert "Traceback" not in answer.err
    assert not Path("x.html").exists()
