# SPDX-License-Identifier: Apache-2.0
"""`cclbench ops` as a person meets it."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
from helpers.command_line import Call, Told

BF16 = ["c10::BFloat16", "c10::BFloat16"]


def rows() -> list[dict[str, Any]]:
    """One step on an A100: a product of 2 GFLOP in 10 µs, an addition in 5, one kernel nobody launched."""

    def row(cat: str, name: str, begin: int, length: int, tid: int = 1, **args: Any) -> dict[str, Any]:
        place = {"pid": 0 if cat == "kernel" else 1, "tid": tid, "ts": begin, "dur": length}
        return {"ph": "X", "cat": cat, "name": name, **place, "args": args}

    square = {"Input Dims": [[1000, 1000], [1000, 1000]], "Input type": BF16}
    vectors = {"Input Dims": [[1000], [1000], []], "Input type": [*BF16, "Scalar"]}
    found = [row("cpu_op", "aten::mm", 0, 10, **{"External id": 1, **square})]
    found += [row("cpu_op", "aten::add", 20, 10, **{"External id": 2, **vectors})]
    for n, (launched, begin, length, external) in enumerate(
        ((2, 100, 10, 1), (22, 120, 5, 2), (40, 130, 15, None))
    ):
        found.append(row("cuda_runtime", "cudaLaunchKernel", launched, 1, correlation=n))
        own = {"External id": external} if external else {}
        found.append(row("kernel", f"kernel_{n}", begin, length, 7, correlation=n, device=0, stream=7, **own))
    return found


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """That trace, which names its device."""
    device = {"id": 0, "name": "NVIDIA A100-SXM4-80GB", "totalGlobalMem": 85097971712, "warpSize": 32}
    path = tmp_path / "rank0.json"
    path.write_text(json.dumps({"deviceProperties": [device], "traceEvents": rows()}))
    return path


@pytest.fixture
def document(told: Told, trace: Path) -> Any:
    return told("ops", trace)


def test_the_operators_and_what_they_cost(document: dict[str, Any]) -> None:
    """312 TFLOP/s and 2.039 TB/s: the product's least time is 6.41 µs, the addition's 3 · 2 kB / 2.039e12."""
    assert (document["schema"], document["by"], document["ranks"]) == ("operators.v1", "op", [0])
    assert document["time_s"] == pytest.approx(30e-6)
    assert (document["linked_share"], document["modelled_share"]) == (0.5, 0.5)
    kernel, product, addition = document["rows"]
    assert (kernel["key"], kernel["flops"], kernel["bound"]) == ("kernel_2", None, "unknown")
    assert kernel["why_not"] == "no operator call is linked to it"
    assert (product["key"], product["calls"], product["flops"], product["bytes"]) == ("aten::mm", 1, 2e9, 6e6)
    assert product["flops_per_s"] == pytest.approx(2e14)
    assert product["roofline_s"] == pytest.approx(2e9 / 312e12)
    assert product["gap_s"] == pytest.approx(10e-6 - 2e9 / 312e12)
    assert (product["bound"], addition["bound"]) == ("compute", "memory")
    assert addition["roofline_s"] == pytest.approx(6000 / 2.039e12, rel=1e-3)
    times = [product[name] for name in ("mean_s", "p50_s", "p90_s", "max_s")]
    assert times == pytest.approx([10e-6] * 4)
    assert (product["precision"], product["peak_flops_per_s"]) == ("bf16", 312e12)
    assert [product[name] for name in ("batch", "m", "n", "k", "layout")] == [1, 1000, 1000, 1000, None]
    assert [addition[name] for name in ("m", "layout", "assumes")] == [None] * 3
    assert document["unmodelled_s"] == pytest.approx(15e-6)
    (kernels,) = document["unmodelled"]
    assert (kernels["kernel"], kernels["operator"], kernels["calls"]) == ("kernel_2", None, 1)
    assert (kernels["time_s"], kernels["share"]) == (pytest.approx(15e-6), 0.5)


def test_every_form_has_the_same_rows(call: Call, told: Told, trace: Path, document: dict[str, Any]) -> None:
    """The first have most of what is asked for."""
    listed = csv.DictReader(io.StringIO(call("ops", trace, "--format", "csv").out))
    assert [row["key"] for row in listed] == [row["key"] for row in document["rows"]]
    assert len(call("ops", trace, "--format", "md").out.splitlines()) == 2 + 3
    found = told("ops", trace, "--sort", "gap", "--top", "2")
    assert [row["key"] for row in found["rows"]] == ["aten::add", "aten::mm"]
    assert found["all_rows"] == 3


def test_a_workbook_is_for_a_file(call: Call, trace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = [sys.executable, "-m", "cclbench", "ops", str(trace), "--format", "xlsx"]
    written = subprocess.run(command, capture_output=True, check=True).stdout
    assert ZipFile(io.BytesIO(written)).testzip() is None
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    refused = call("ops", trace, "--format", "xlsx")
    assert (refused.code, refused.out) == (2, "")
    assert "write to a file: > FILE.xlsx" in refused.err


def test_the_table_fits_and_says_what_has_no_cost(call: Call, trace: Path) -> None:
    shown, verbose = call("ops", trace).out, call("ops", trace, "-v").out
    assert max(map(len, [*shown.splitlines(), *verbose.splitlines()])) <= 80
    for words in (
        "linked to operators 50.0 %; of compute time 50.0 % has FLOPs and bytes",
        "- kernel_2: 15.0 µs, 50.0 %: no operator call is linked to it",
        "above the roofline 8.59 µs, 28.6 %; without a model 15.0 µs, 50.0 %",
    ):
        assert words in shown
    assert any("kernel_2" in line and "no model" in line for line in shown.splitlines())
    # though it is the third row by time
    assert "largest gap: row 3, aten::add: 5.00 µs, 16.7 %" in call("ops", trace, "--top", "1").out
    assert "largest gap" not in call("ops", trace, "--by", "module", "--tree").out
    lines = call("ops", trace, "--by", "module").out.splitlines()
    assert any("none" in line and "~" in line for line in lines)
    assert "~: a part has no model; rate, roofline and gap are of the rest" in lines
    for heading in ("model", "p90", "M·N·K", "peak", "FLOP/s", "1000·1000·1000"):
        assert heading in verbose


def test_filters_and_several_keys(call: Call, trace: Path) -> None:
    arguments = ("--by", "op,phase", "--where", "op~aten", "--where", "phase=forward", "--format")
    document = json.loads(call("ops", trace, *arguments, "json").out)
    assert (document["by"], document["where"]) == ("op,phase", ["op~aten", "phase=forward"])
    assert [(row["op"], row["phase"], row["key"]) for row in document["rows"]] == [
        ("aten::mm", "forward", "aten::mm | forward"),
        ("aten::add", "forward", "aten::add | forward"),
    ]
    # shares are of all device time, of which half is chosen
    assert document["rows"][0]["share"] == pytest.approx(10 / 30)
    assert (document["time_s"], document["chosen_s"]) == (pytest.approx(30e-6), pytest.approx(15e-6))
    shown = call("ops", trace, *arguments, "table").out
    assert "op~aten and phase=forward: 15.0 µs, 50.0 % of it" in shown
    header, *_ = csv.reader(io.StringIO(call("ops", trace, *arguments, "csv").out))
    assert set(header) == set(document["rows"][0])


def test_a_run_without_work_says_so(call: Call, trace: Path) -> None:
    host = [row for row in rows() if row["cat"] == "cuda_runtime"]
    trace.write_text(json.dumps({"traceEvents": host}))
    answer = call("ops", trace)
    assert (answer.code, "no operators: " in answer.err) == (2, True)


def test_a_tree_by_several_keys(call: Call, told: Told, trace: Path) -> None:
    """Of 312 TFLOP/s in 10 µs the product computes 2 GFLOP, of 19.5 in 5 µs the addition 1,000."""
    arguments = ("--by", "phase,op", "--tree", "--sort", "wasted")
    found = told("ops", trace, *arguments)["rows"]
    listed = [(row["depth"], row["phase"], row["op"], row["own_s"]) for row in found]
    forward = [(1, "forward", None, None), *((2, "forward", f"aten::{op}", None) for op in ("mm", "add"))]
    assert listed == [*forward, (1, "other", None, None), (2, "other", "kernel_2", None)]
    wasted = [row["wasted_flops"] for row in found]
    assert wasted[1:3] == [pytest.approx(1.12e9), pytest.approx(97.5e6 - 1000)]
    assert (wasted[0], wasted[3:]) == (pytest.approx(sum(wasted[1:3])), [None, None])
    assert found[1]["peak_share"] == pytest.approx(2 / 3.12)
    lines = call("ops", trace, *arguments).out.splitlines()
    numbered = [line.split()[1] for line in lines if line.lstrip().startswith(("1 ", "2 "))]
    assert numbered == ["forward", "aten::mm"]
    assert any(line.startswith("  2   aten::mm") for line in lines)
    assert "wasted: FLOPs that the peak allows" in call("ops", trace, *arguments, "-v").out
