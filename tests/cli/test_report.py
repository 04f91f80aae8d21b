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


def test_a_run_as_a_page(call: Call, trace: Path, tmp_path: Path) -> None:
    path = tmp_path / "run.html"
    answer = call("report", trace, "-o", path)
    assert (answer.code, answer.out, answer.err) == (0, "", f"wrote {path}\n")
    text = path.read_text(encoding="utf-8")
    assert "ampere_sgemm_128x64_nn" in text  # the kernel table
    assert "time.exposed_comm" in text
    assert "needs a workload card" in text  # what is missing, and why


def test_the_only_step_is_said_to_be_open(call: Call, document: dict[str, Any], tmp_path: Path) -> None:
    steps = [row for row in document["traceEvents"] if row["name"].startswith("ProfilerStep#")]
    document["traceEvents"] = [row for row in document["traceEvents"] if row not in steps[1:]]
    (tmp_path / "rank0.json").write_text(json.dumps(document))
    assert call("report", tmp_path / "rank0.json", "-o", tmp_path / "run.html").code == 0
    assert "last step incomplete: its end is not in the trace" in (tmp_path / "run.html").read_text(
        encoding="utf-8"
    )


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
        (["TRACE", "-o", "x.png"], 2, "error: x.png: a report is an HTML page; use .html or .htm"),
        (["TRACE", "-o", "none/x.html"], 2, "error: none/x.html: there is no folder none; create it first"),
        (["TRACE", "-o", "."], 2, "is a directory"),
        (["TRACE"], 2, "Missing option '-o' / '--output'"),
        (["no-such-run", "-o", "x.html"], 2, "no-such-run"),
        (["EMPTY", "-o", "x.html"], 3, "empty"),
        (["CUT", "-o", "x.html"], 3, "cut.json"),
    ],
)
def test_what_cannot_be_reported(
    call: Call,
    trace: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    code: int,
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "cut.json").write_bytes(trace.read_bytes()[:900])
    places = {"TRACE": trace, "EMPTY": tmp_path / "empty", "CUT": tmp_path / "cut.json"}
    answer = call("report", *(places.get(argument, argument) for argument in arguments))
    assert (answer.code, answer.out) == (code, "")
    assert message in answer.err
    assert "Traceback" not in answer.err
    assert not (tmp_path / "x.html").exists()


def test_a_hostile_trace_makes_a_harmless_page(call: Call, document: dict[str, Any], tmp_path: Path) -> None:
    document["traceEvents"][4]["name"] = "<script>alert(1)</script>\u202e$(id)" + "n" * 1_000_000
    folder = tmp_path / "<img src=x>"
    folder.mkdir()
    (folder / "rank0.json").write_text(json.dumps(document))
    assert call("report", folder, "-o", tmp_path / "x.html").code == 0
    text = (tmp_path / "x.html").read_text(encoding="utf-8")
    assert text.count("<script>") == 1
    assert "&lt;script&gt;alert(1)&lt;/script&gt;\\u202e$(id)" in text
    assert "<img" not in text
    assert len(text) < 500_000
