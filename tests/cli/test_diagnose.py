# SPDX-License-Identifier: Apache-2.0
"""`cclbench diagnose`, and the first screen of `cclbench run`."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.command_line import Call, Told


def test_findings_are_listed_with_evidence_and_queries(call: Call, told: Told, trace: Path) -> None:
    """And explained."""
    answer = call("diagnose", trace)
    assert (answer.code, answer.err) == (0, "")
    assert max(map(len, answer.out.splitlines())) <= 80
    for word in ("host_bound", "gain: ", "confidence: ", "try: ", "time.idle_host_by", "cclbench sql "):
        assert word in answer.out
    assert "try with pytorch" in call("explain", "host_bound").out
    both = told("explain", "host_bound", "time.idle")
    assert [one["name"] for one in both["metrics"]] == ["time.idle"]
    assert [one["name"] for one in both["findings"]] == ["host_bound"]
    assert "late_rank" in call("list", "findings").out


def test_as_json_and_rows(call: Call, told: Told, trace: Path) -> None:
    """Each finding's query runs."""
    document = told("diagnose", trace)
    assert document["schema"] == "findings.v1"
    assert document["run"] == told("run", trace)["run"]
    assert [one["name"] for one in document["findings"]][:1] == ["tensor_cores"]
    assert told("diagnose", trace, "--top", "1")["findings"] == document["findings"][:1]
    header, first, *_ = call("diagnose", trace, "--format", "csv").out.splitlines()
    assert header.startswith("name,claim,gain_share")
    assert first.startswith("tensor_cores,")
    for found in document["findings"]:
        if found["query"] is not None:
            assert told("sql", document["run"]["id"], found["query"])["rows"]


@pytest.mark.parametrize(
    ("limit", "code", "says"),
    [
        ("host_bound>10%", 1, "above 10.0 % of the step"), ("any>10%", 1, "above 10.0 % of the step"),
        ("host_bound>99%", 0, ""), ("slow_link>1%", 0, ""), ("host_bound", 2, ""),
        ("host_buond>1%", 2, "host_bound"), ("host_bound>-1%", 2, ""),
    ],
)  # fmt: skip
def test_a_limit_is_checked(call: Call, trace: Path, limit: str, code: int, says: str) -> None:
    answer = call("diagnose", trace, "--fail-on", limit)
    assert (answer.code, answer.out != "") == (code, code < 2)
    assert says in answer.err
    assert (" may gain" in answer.err) is (code == 1)


def test_the_first_screen_says_why(call: Call, trace: Path) -> None:
    out = call("run", trace).out
    lines = out.splitlines()
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 80
    at = lines.index("Main findings")
    assert lines[at + 1].startswith("1 ")
    assert any(line.startswith("  gain: ") for line in lines[at:])
    assert any(line.startswith("cclbench diagnose ") for line in lines)
    assert "not applicable" in lines[-1]
    every = call("run", trace, "-v").out
    assert "Main findings" in every
    assert "  time.idle  " in every
    chosen = call("run", trace, "--metric", "time.*").out
    assert "Main findings" not in chosen
