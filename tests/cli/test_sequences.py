# SPDX-License-Identifier: Apache-2.0
"""`cclbench sequences` as a person meets it."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from helpers.command_line import Call, Told

KERNELS = (
    ("void scale<float>(float*)", 0, 10),
    ("bias", 12, 15),
    ("void scale<half>(half*)", 20, 30),
    ("bias", 31, 35),
    ("norm", 40, 42),
)
"""Name, begin and end in µs, of one stream: 29 µs of kernels."""


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """A trace of one rank, without steps."""
    row = {"ph": "X", "cat": "kernel", "pid": 0, "tid": 7, "args": {"stream": 7, "device": 0}}
    events = [row | {"name": name, "ts": begin, "dur": end - begin} for name, begin, end in KERNELS]
    path = tmp_path / "rank0.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    return path


@pytest.fixture
def document(told: Told, trace: Path) -> Any:
    return told("sequences", trace, "--length", "2")


def test_the_sequences_are_those_of_the_trace(document: dict[str, Any]) -> None:
    assert (document["schema"], document["length"], document["window"]) == ("sequences.v1", 2, "trace")
    assert (document["ranks"], document["kernels"], document["windows"]) == ([0], 5, 1)
    assert document["kernel_time_s"] == pytest.approx(29e-6)
    first, second, third = document["rows"]
    assert (first["kernels"], first["count"]) == (["scale", "bias"], 2)
    assert (first["time_s"], first["gap_s"]) == (pytest.approx(27e-6), pytest.approx(3e-6))
    assert first["share"] == pytest.approx(27 / 29)
    assert (second["kernels"], second["gap_s"]) == (["bias", "scale"], pytest.approx(5e-6))
    assert third["kernels"] == ["bias", "norm"]
    assert document["distinct"] == 3


def test_every_form_has_the_same_rows(call: Call, trace: Path, document: dict[str, Any]) -> None:
    """A page has a line a kernel; of a length that no stream has there are none."""
    form = ("sequences", trace, "--length", "2")
    rows = list(csv.DictReader(io.StringIO(call(*form, "--format", "csv").out)))
    assert [row["kernels"] for row in rows] == ["scale, bias", "bias, scale", "bias, norm"]
    assert [float(row["time_s"]) for row in rows] == [row["time_s"] for row in document["rows"]]
    assert len(call(*form, "--format", "md").out.splitlines()) == 2 + 3
    lines = call(*form, "--top", "1").out.splitlines()
    assert lines[0].endswith(": 1 rank, the whole trace, 5 kernels that take 29.0 µs")
    assert lines[1] == "1 of 3 sequences of 2 kernels on a stream, by time"
    assert lines[3].split() == ["time", "share", "count", "gaps", "kernels"]
    assert lines[-2].split() == ["27.0", "µs", "93.1", "%", "2", "3.00", "µs", "scale"]
    assert lines[-1].split() == ["bias"]
    none = call("sequences", trace, "--length", "6")
    assert none.code == 0
    assert none.out.splitlines()[1:] == ["0 of 0 sequences of 6 kernels on a stream, by time"]


def test_without_kernels_the_reason_is_told(call: Call, repository: Path, told: Told, trace: Path) -> None:
    answer = call("sequences", repository / "traces" / "tiny-llama-ddp4-gloo-cpu")
    assert answer.code == 2
    assert "no kernel sequences: the CPU is the device: it runs operators, not kernels" in answer.err
    row = {"ph": "X", "cat": "gpu_memset", "name": "Memset (Device)", "pid": 0, "tid": 7, "ts": 0, "dur": 5}
    events = [row | {"args": {"stream": 7, "device": 0}}]
    (trace.parent / "rank1.json").write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    first = call("sequences", trace.parent, "--length", "2").out.splitlines()[0]
    assert first.split(": ")[1].startswith("1 rank,")
    document = told("run", trace.parent, "--metric", "time.step")
    assert "rank 1 is none: the device in rank1.json ran no kernel" in document["run"]["notes"]
