# SPDX-License-Identifier: Apache-2.0
"""`cclbench hardware probe`: answers, and what cannot be probed."""

from __future__ import annotations

import json
import os
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any

import pytest
from helpers.command_line import Call


def test_answers_from_a_file_and_from_standard_input(
    call: Call, test_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same bands; two nodes were measured and are narrow, one node was not."""
    path = test_data / "nccl_tests" / "aws_p5_2n16_allreduce.csv"
    words = ("--collective", "all_reduce", "--json")
    by_file = call("hardware", "probe", "aws-p5", path, *words)
    monkeypatch.setattr("sys.stdin", TextIOWrapper(BytesIO(path.read_bytes())))
    assert call("hardware", "probe", "aws-p5", "-", *words).out == by_file.out
    assert by_file.code == 0
    rows = {(row["nodes"], row["sizes"]): row for row in json.loads(by_file.out)["rows"]}
    assert rows[2, "above 16 MiB"]["after"] < 1.2
    assert rows[1, "above 16 MiB"]["after"] == rows[1, "above 16 MiB"]["before"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("nowhere",), "nowhere"),
        (("aws-p5", "--collective", "gossip"), "no program for 'gossip'"),
        (("aws-p5", "--run", "x.txt"), "--run and answers exclude each other"),
        (("aws-p5", "missing.txt"), "missing.txt"),
        (("aws-p5", "-"), ""),
    ],
)
def test_what_cannot_be_probed(
    call: Call, words: tuple[str, ...], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", TextIOWrapper(BytesIO(b"\x1b[2J\0 not a sweep\n")))
    answer = call("hardware", "probe", *words)
    assert answer.code != 0
    assert message in answer.err
    assert "\x1b" not in answer.out + answer.err


def test_run_here(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, test_data: Path) -> None:
    """The program's output is read; a failure and a missing program are errors."""
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}/usr/bin{os.pathsep}/bin")
    program = tmp_path / "all_reduce_perf"

    def run(script: str | None) -> Any:
        if script is not None:
            program.write_text(f"#!/bin/sh\n{script}\n")
            program.chmod(0o755)
        words = ("--nodes", "1", "--collective", "all_reduce", "--commands", "1", "--run", "--json")
        return call("hardware", "probe", "dgx-h100", *words)

    missing = run(None)
    assert missing.code != 0
    assert "all_reduce_perf is not in PATH" in missing.err
    read = run(f"cat {test_data / 'nccl_logs' / 'h100_8gpu_all_reduce.txt'}")
    assert read.code == 0, read.err
    rows = json.loads(read.out)["rows"]
    assert all(row["after"] < row["before"] for row in rows)
    failed = run("exit 3")
    assert failed.code == 1
    assert "all_reduce_perf failed with exit status 3" in failed.err
