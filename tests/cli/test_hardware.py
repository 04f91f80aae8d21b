# SPDX-License-Identifier: Apache-2.0
"""`cclbench hardware show`, what the catalog says with its sources, and `probe`, answers to it."""

from __future__ import annotations

import json
import os
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any

import pytest
from helpers.command_line import Call, Told

LINK = """\
id: lab-link
kind: fabric
tier: scale_up
topology: mesh
link_bytes_per_s: 25 GB/s (bench)
sources:
  bench: {title: 'our own measurement', date: 2026-11}
"""


def test_an_entry_with_the_source_of_every_figure(call: Call, told: Told) -> None:
    """Where sources disagree, that is shown; JSON has base SI."""
    lines = [" ".join(line.split()) for line in call("hardware", "show", "aws-p5en").out.splitlines()]
    assert lines[0] == "aws-p5en: 8 × nvidia-h200-sxm; nvlink4 switch 450 GB/s; efa-v3 16 × 25.0 GB/s"
    assert "scale_out.transport_latency_s 35.0 µs aws-ofi-nccl" in lines
    assert "host_cpu intel unverified" in lines
    assert any(line.startswith("aws-ofi-nccl: aws-ofi-nccl, src/platform-aws.cpp") for line in lines)
    a100 = call("hardware", "show", "nvidia-a100-sxm-80gb").out
    assert "ml-engineering states for hbm_bytes_per_s: 2 TB/s" in a100
    document = told("hardware", "show", "aws-p5en")
    (entry,) = document["entries"]
    assert document["schema"] == "hardware.v1"
    assert entry["scale_out"]["bytes_per_s"] == 25e9
    assert entry["scale_up"]["fabric"]["usable_fraction"] == 0.824
    assert entry["cited"]["scale_out.transport_latency_s"] == "aws-ofi-nccl"


def test_all_are_listed(call: Call) -> None:
    found = json.loads(call("hardware", "show", "--json").out)["entries"]
    assert {"nvidia-h100-sxm", "nvlink4", "dgx-h100"} <= {entry["id"] for entry in found}
    rows = call("hardware", "show", "--format", "csv").out.splitlines()
    assert rows[0] == "id,kind,summary"
    assert len(rows) == len(found) + 1
    assert any(row.startswith("nvlink3,fabric,") for row in rows)


def test_a_file_of_ones_own(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "link.yaml"
    path.write_text(LINK)
    shown = call("hardware", "show", "lab-link", "--hardware", path)
    assert (shown.code, "25.0 GB/s" in shown.out) == (0, True)
    assert call("hardware", "show", "lab-link").code == 2


def test_a_broken_file_is_refused_with_the_line(call: Call, tmp_path: Path, monkeypatch: Any) -> None:
    path = tmp_path / "link.yaml"
    path.write_text(LINK.replace("25 GB/s", "-25 GB/s"))
    refused = call("hardware", "show", "--hardware", path)
    assert refused.code == 3
    assert f"{path}:5: link_bytes_per_s: '-25 GB/s' is not a number" in " ".join(refused.err.split())
    monkeypatch.setenv("CCLBENCH_HARDWARE", str(path))
    assert call("list", "hardware").code == 3
    assert call("hardware", "show").code == 3


def test_answers_of_a_file_or_stdin(call: Call, test_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_answers_that_are_no_sweep_steer_no_terminal(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", TextIOWrapper(BytesIO(b"\x1b[2J\0 not a sweep\n")))
    answer = call("hardware", "probe", "aws-p5", "-")
    assert (answer.code, answer.out) == (3, "")
    assert "\x1b" not in answer.err


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
