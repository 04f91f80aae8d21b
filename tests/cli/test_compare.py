# SPDX-License-Identifier: Apache-2.0
"""`cclbench compare`: what it prints in each form, its gate, its files."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from helpers import report_run
from helpers.command_line import Call
from rich.console import Console

from cclbench.comparison.build import compare
from cclbench.comparison.comparison import Comparison
from cclbench.ground.json_schema import packaged_schema
from cclbench.present.markdown import comparison_markdown
from cclbench.present.terminal.comparison import terminal_page

PAGE = "<!doctype html>"


@pytest.fixture
def second(tmp_path: Path, document: dict[str, Any]) -> Path:
    """Another trace: the first one's matrix product 20 µs shorter, its steps 95 µs apart."""
    for event in document["traceEvents"]:
        event["ts"] -= 5 * (event["ts"] >= 1100)
        event["dur"] -= 20 * event["name"].startswith("ampere")
    path = tmp_path / "second" / "rank0.json"
    path.parent.mkdir()
    path.write_text(json.dumps(document))
    return path


def text_of(comparison: Comparison, **options: Any) -> str:
    console = Console(width=80, highlight=False, markup=False, emoji=False, color_system=None)
    with console.capture() as captured:
        for part in terminal_page(comparison, **options):
            console.print(part)
    return captured.get()


def test_the_page_fits_80_columns_and_says_who_and_why(call: Call, trace: Path, second: Path) -> None:
    answer = call("compare", trace, second)
    assert (answer.code, answer.err) == (0, "")
    lines = answer.out.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0].startswith("A  rank0-")
    assert lines[1] == "   2 × NVIDIA A100-SXM4-80GB, 1 rank traced, 1 step, kineto"
    # The closed step of A is 100 µs long, of B 95; the second one is open.
    (whole,) = (line for line in lines if line.startswith("  total"))
    assert whole.split() == ["total", "100", "µs", "95.0", "µs", "-5.00", "µs"]
    (compute,) = (line for line in lines if line.startswith("  compute "))
    assert compute.split()[:7] == ["compute", "40.0", "µs", "20.0", "µs", "-20.0", "µs"]
    assert "░" in compute
    unmatched = next(line for line in lines if line.startswith("  exposed unmatched"))
    assert unmatched.split()[2:8] == ["10.0", "µs", "30.0", "µs", "+20.0", "µs"]
    assert "█" in unmatched
    assert "Warnings" in lines


def test_glyphs_have_an_ascii_form_quiet_is_the_verdict(trace: Path, second: Path, tmp_path: Path) -> None:
    found = compare(trace, second, store=tmp_path / "store")
    assert re.search(r"  compute .* -+$", text_of(found, unicode=False), re.MULTILINE)
    assert " ".join(text_of(found, verbosity=-1).split()) == found.versus[0].words
    assert "more: -v or --json" not in text_of(found, verbosity=1)


def test_json_follows_its_schema(call: Call, trace: Path, second: Path) -> None:
    answer = call("compare", trace, second, "--json", "--fail-on", "compute.mfu < 0.4")
    assert answer.code == 1
    found = json.loads(answer.out)
    jsonschema.validate(found, dict(packaged_schema("comparison")))
    assert not found["passed"]
    (one,) = found["versus"]
    assert one["change_ns"] == sum(change["change_ns"] for change in one["changes"]) == -5000
    assert (one["spread"]["source"], one["captures_needed"], one["low"]) == ("prior", None, None)
    assert [subject["captures"] == [subject["id"]] for subject in found["subjects"]] == [True, True]
    assert found["checks"][0]["reason"].startswith("B has no compute.mfu: ")


def test_the_gate_fails_with_1_and_the_reason(call: Call, trace: Path, second: Path) -> None:
    limits = ("--fail-on", "time.step > 99 us", "--fail-on", "time.step > 1 s")
    answer = call("compare", second, trace, *limits)
    assert answer.code == 1
    assert answer.err.count("\n") == 1
    assert "1 of 2 checks failed: time.step > 99 us: time.step of B is 100 µs" in answer.err
    assert "- FAILED  time.step > 99 us:" in answer.out
    assert "- passed  time.step > 1 s:" in answer.out
    assert call("compare", trace, second, "--fail-on", "time.step > 99 us").code == 0
    written = call("compare", second, trace, *limits, "--format", "md").out
    assert "- **failed**: `time.step > 99 us`: time.step of B is 100 µs" in written
    assert "- passed: `time.step > 1 s`: " in written


def test_files_have_the_form_of_their_suffix(call: Call, trace: Path, second: Path, tmp_path: Path) -> None:
    words = "B's step is 1.05× shorter than A's in these captures ("
    for name, start in {"a.md": words, "a.json": "{", "a.html": PAGE, "b.HTML": PAGE}.items():
        answer = call("compare", trace, second, "-q", "-o", tmp_path / name)
        assert (answer.code, answer.err) == (0, f"wrote {tmp_path / name}\n")
        assert (tmp_path / name).read_text().lower().startswith(start.lower())
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_markdown_says_what_marks_mean(tmp_path: Path) -> None:
    one, other = (report_run.subject(tmp_path / letter, letter) for letter in "AB")
    assert "† partial" in comparison_markdown(report_run.comparison(one, other))


def test_csv_is_a_row_a_metric_and_subject(call: Call, trace: Path, second: Path) -> None:
    out = call("compare", trace, second, "--format", "csv", "--metric", "time.step").out.splitlines()
    assert out[0].startswith("metric,unit,better,subject,value,status")
    cells = [line.split(",") for line in out[1:]]
    assert [row[:4] for row in cells] == [["time.step", "s", "lower", letter] for letter in "AB"]
    assert [float(row[4]) for row in cells] == pytest.approx([100e-6, 95e-6])
