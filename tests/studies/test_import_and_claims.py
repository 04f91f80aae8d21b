# SPDX-License-Identifier: Apache-2.0
"""`cclbench import` and `cclbench claims` as people call them."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from helpers.command_line import Call

HOSTILE = "\x1b]0;owned\x07<script>|`x`$(id)\u202e"


@pytest.fixture
def board(tmp_path: Path) -> Path:
    """Two rows of equal work, the one with more overlap the slower; a hostile one."""
    known: dict[str, Any] = {"phase": "training", "hardware_type": "GPU", "total_count": 4, "batch_size": 4}
    known |= {"seq_len": 512, "trace_types": ["json"], "model_family": "tiny"}
    known["hardware_model"] = "nvidia_a100"

    def row(name: str, step: float, overlap: float, **other: Any) -> dict[str, Any]:
        facts = {**known, "workload_name": name, "framework": name, **other}
        metrics = {"avg_step_time": step, "compute_comm_overlap": overlap, "scale_up_bw_utility": 2.5}
        return {"trace": "t", "metadata": facts, "metrics": metrics | {"beauty": 1.0}}

    rows = [row("calm", 2.0, 80.0, tp=2), row("swift", 1.0, 40.0)]
    rows.append(row(HOSTILE, 1.5, 50.0, model_family=HOSTILE, hardware_model=HOSTILE))
    path = tmp_path / "board.json"
    path.write_text(json.dumps({"rows": rows}))
    return path


@pytest.fixture
def brought_in(call: Call, board: Path) -> Call:
    """The command line, after the import."""
    assert call("import", "ccl-bench", board).code == 0
    return call


def test_import_tells_what_came_in(call: Call, board: Path) -> None:
    answer = call("import", "ccl-bench", board)
    assert (answer.code, answer.err) == (0, "")
    assert "3 new, 0 unchanged" in " ".join(answer.out.split())
    assert "9 published numbers, 3 of them flagged; 0 more mean no data" in answer.out
    assert "left out: 3 numbers of beauty, which has no corresponding metric" in answer.out
    assert max(map(len, answer.out.splitlines())) <= 80
    told = json.loads(call("import", "ccl-bench", board, "--json").out)
    assert told["schema"] == "import.v1"
    assert [run["new"] for run in told["runs"]] == [False] * 3
    assert [(flag["flag"], flag["values"]) for flag in told["flags"]] == [("simulated", 3)]
    assert told["unknown_columns"] == {"beauty": 3}


def test_published_runs_are_listed_as_such(brought_in: Call) -> None:
    rows = json.loads(brought_in("list", "runs", "--json").out)["rows"]
    assert [(row["published"], row["ranks"]) for row in rows] == [("ccl-bench", 0)] * 3
    squeezed = "".join(brought_in("list", "runs").out.split())
    for row in rows:
        # Folded over lines, nothing of a name is lost.
        assert all(part in squeezed for part in (row["run"][:10], row["run"][-4:]))


def test_claims_on_the_terminal(brought_in: Call, tmp_path: Path) -> None:
    answer = brought_in("claims")
    assert (answer.code, answer.err) == (0, "")
    words = " ".join(answer.out.split())
    assert "Holds: in 1 of 1 pair of equal work on equal hardware" in words
    assert "Largest: tiny on 4 nvidia_a100, tp2 80.00 % and 2.00 s against unknown plan 40.00 %" in words
    assert "Cannot be examined: 3 of 3 published GPU runs have a gain: median 2.5 %" in words
    assert "Not shown: the largest gap in step time is 2.00× on 4 nvidia_a100" in words
    for text in (answer.out, brought_in("claims", "-v").out, brought_in("claims", "--format", "md").out):
        assert not set(text) & {"\x1b", "\x07", "\u202e"}
    assert "&lt;script&gt;" in brought_in("claims", "-o", tmp_path / "c.svg", "--format", "md").out


def test_one_claim_in_every_form(brought_in: Call, tmp_path: Path) -> None:
    quiet = brought_in("claims", "frameworks", "-q").out
    assert "tokens/s/device" not in quiet
    assert "Not shown" in quiet
    told = json.loads(brought_in("claims", "overlap", "--json").out)
    assert [claim["key"] for claim in told["claims"]] == ["overlap"]
    assert told["claims"][0]["rows"][0]["higher_step_s"] == 2.0
    lines = list(csv.DictReader(io.StringIO(brought_in("claims", "--format", "csv").out)))
    counts = {"overlap": 1, "bandwidth": 3, "frameworks": 3, "figures": 9}
    assert [line["claim"] for line in lines] == [key for key, n in counts.items() for _ in range(n)]
    assert {line["provenance"] for line in lines[:4]} == {"published"}
    picture = tmp_path / "claims.png"
    answer = brought_in("claims", "-o", picture)
    assert (answer.code, answer.err) == (0, f"wrote {picture}\n")
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert "Holds" in answer.out


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("claims",), 2, "cclbench import ccl-bench benchmark_data.json"),
        (("claims", "overlop"), 2, "did you mean overlap?"),
        (("claims", "-o", "claims.gif"), 2, "use .png, .svg, .pdf"),
        (("import", "ccl-search", "x.csv"), 2, "Missing option '--script'"),
        (("import", "mlcommons", "x.json"), 2, "No such command 'mlcommons'"),
        (("import", "mlperf", "x.json"), 3, "there is no result of MLPerf"),
        (("import", "inferencex", "x.json"), 3, "cannot be read"),
        (("import", "ccl-bench", "none.json"), 3, "cannot be read"),
        (("import", "ccl-bench", "."), 3, "is not a file"),
    ],
)
def test_wrong_calls_say_what_to_do(call: Call, arguments: tuple[str, ...], code: int, words: str) -> None:
    answer = call(*arguments)
    assert (answer.code, answer.out) == (code, "")
    assert words in answer.err
    assert len(answer.err.splitlines()) <= 3
