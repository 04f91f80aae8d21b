# SPDX-License-Identifier: Apache-2.0
"""`cclbench reproduce` as a person meets it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from .conftest import PRODUCT

Call = Callable[..., Any]
KERNEL = "nvjet_tst_128x128"


def held_by(script: str) -> dict[str, Any]:
    """What a program holds of its call."""
    return dict(json.loads(script.split("r'''")[1].split("'''")[0]))


def result(script: str, **changes: Any) -> dict[str, Any]:
    """What a program would print that took 30 µs a call, 24 of them in the same kernel."""
    held = held_by(script)
    measured = {name: held[name] for name in ("operator", "arguments", "stated_dtype", "expected_kernels")}
    measured |= {"schema": "microbenchmark.v1", "overload": "default", "device": "cuda"}
    measured |= {"device_name": "NVIDIA H100 80GB HBM3", "torch": "2.13.0", "threads": None}
    measured |= {"timing": "CUDA events", "warmup": 5, "repeats": 50}
    measured |= {"p50_s": 30e-6, "mean_s": 31e-6, "min_s": 29e-6, "kernels": [KERNEL], "kernel_s": 24e-6}
    measured |= {"operand_bytes": 2 * (64 * 32 + 32 * 16), "cache_bytes": 50 << 20}
    return measured | changes


@pytest.fixture
def checked(call: Call, product_trace: Path, tmp_path: Path) -> Call:
    """`checked(**changes)`: the document of `--check` with a result that differs in these entries."""
    script = call("reproduce", product_trace, "--row", "1").out

    def check(*words: str, **changes: Any) -> Any:
        path = tmp_path / "result.json"
        path.write_text(json.dumps(result(script, **changes)))
        return call("reproduce", product_trace, "--check", path, *words)

    return check


def test_a_row_becomes_a_program(call: Call, product_trace: Path, tmp_path: Path) -> None:
    rows = json.loads(call("ops", product_trace, "--json").out)["rows"]
    assert [(row["row"], row["key"]) for row in rows] == [(1, "aten::mm")]
    answer = call("reproduce", product_trace, "--row", "1", "-o", tmp_path / "mm.py")
    assert (answer.code, answer.out) == (0, "")
    assert answer.err == f"wrote {tmp_path / 'mm.py'}: aten::mm\n"
    script = (tmp_path / "mm.py").read_text()
    assert script == call("reproduce", product_trace, "--row", "1").out
    compile(script, "mm.py", "exec")
    held = held_by(script)
    assert (held["device"], held["expected_kernels"]) == ("cuda", [KERNEL])
    assert held["trace"]["device_name"] == "NVIDIA H100 80GB HBM3"
    times = {name: held["trace"][name] for name in ("calls", "p50_s", "mean_s", "min_s")}
    assert times == {"calls": 3, "p50_s": 20e-6, "mean_s": 30e-6, "min_s": 10e-6}


def test_of_a_row_the_calls_with_most_time_are_chosen(call: Call, product_trace: Path) -> None:
    """Of three products the second, of 60 µs, has other sizes than those of 10 and 20."""
    trace = json.loads(product_trace.read_text())
    second = [event for event in trace["traceEvents"] if event["cat"] == "cpu_op"][1]
    second["args"] |= {"Input Dims": [[8, 4], [4, 2]], "Input Strides": [[4, 1], [2, 1]]}
    product_trace.write_text(json.dumps(trace))
    script = call("reproduce", product_trace, "--row", "1").out
    held = held_by(script)
    assert [argument["tensor"]["shape"] for argument in held["arguments"]] == [[8, 4], [4, 2]]
    assert (held["trace"]["calls"], held["trace"]["p50_s"]) == (1, 60e-6)
    by_shape = call("reproduce", product_trace, "--by", "shape", "--row", "2").out
    assert held_by(by_shape)["trace"]["calls"] == 2
    assert call("reproduce", product_trace, "--by", "kernel", "--row", "1").out == script
    # several keys, filters and trees: the options of `ops` give the row
    for words, calls in (
        (("--by", "kernel,shape", "--row", "2"), 2),
        (("--where", "shape~[8,4]", "--row", "1"), 1),
        (("--by", "shape", "--where", "shape~[64,32]", "--where", "kernel~nvjet", "--row", "1"), 2),
        (("--by", "class", "--tree", "--where", "shape~[64,32]", "--row", "1"), 2),
    ):
        script = call("reproduce", product_trace, *words).out
        assert held_by(script)["trace"]["calls"] == calls, words


def test_the_result_beside_the_trace(checked: Call) -> None:
    """24 µs in kernels for a median of 20 in the trace: 1.2."""
    found = json.loads(checked("--json").out)
    assert (found["schema"], found["operator"], found["calls"]) == ("reproduction.v1", "aten::mm", 3)
    assert found["ratio"] == pytest.approx(1.2)
    assert (found["same_kernels"], found["differences"]) == (True, [])
    median, mean, least = found["rows"]
    assert (median["trace"], median["reproduction"], median["ratio"]) == (20e-6, 30e-6, pytest.approx(1.5))
    assert mean["ratio"] == pytest.approx(31 / 30)
    assert least["ratio"] == pytest.approx(2.9)
    assert [line.split(":")[0] for line in found["unknown"]] == [
        "PyTorch's version in the trace; the reproduction ran 2.13.0",
        "whether the trace's operands were in the cache",
        "values, storage offsets and aliasing of the operands",
    ]
    without = json.loads(checked("--json", kernels=None, kernel_s=None).out)  # the events count
    assert (without["ratio"], without["same_kernels"]) == (pytest.approx(1.5), None)
    assert "whether the kernels are the same: no profiler was available" in "\n".join(without["unknown"])


@pytest.mark.parametrize(
    ("changes", "difference"),
    [
        ({"kernels": ["winograd"]}, f"kernels: {KERNEL} in the trace, winograd in the reproduction"),
        ({"device_name": "NVIDIA B200"}, "NVIDIA H100 80GB HBM3 in the trace, NVIDIA B200"),
        ({"device": "cpu", "device_name": None}, "the trace ran on cuda, the reproduction on cpu"),
    ],
)
def test_what_differs_is_named(checked: Call, changes: dict[str, Any], difference: str) -> None:
    (line,) = json.loads(checked("--json", **changes).out)["differences"]
    assert difference in line


def test_the_page_fits_a_terminal(checked: Call) -> None:
    shown = checked(kernels=["winograd"]).out
    assert shown.startswith("aten::mm: 1.20 times the trace's time, other kernels\n")
    assert max(map(len, shown.splitlines())) <= 80
    assert "winograd" in shown
    assert "\x1b" not in checked(kernels=["\x1b[31mred"], torch="\x1b[2J").out


ANOTHER = "with the arguments of this result"


@pytest.mark.parametrize(
    ("changes", "code", "message"),
    [
        *(({"p50_s": 0.0}, 3, "not above 0"), ({"p50_s": "fast"}, 3, "not the result of a micro-benchmark")),
        ({"schema": "operators.v1"}, 3, "not the result of a micro-benchmark"),
        *(({"arguments": []}, 2, ANOTHER), ({"operator": "aten::bmm"}, 2, ANOTHER)),
        ({"expected_kernels": ["other"]}, 2, ANOTHER),
    ],
)
def test_files_of_no_or_another_call(checked: Call, changes: dict[str, Any], code: int, message: str) -> None:
    answer = checked(**changes)
    assert (answer.code, answer.out) == (code, "")
    assert message in answer.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        *(((), "--row N to write"), (("--row", "1", "--json"), "--json are for --check")),
        *((("--row", "2"), "no row 2: the table has 1"), (("--row", "0"), "0 is not in the range")),
    ],
)
def test_a_wrong_call(call: Call, product_trace: Path, words: tuple[str, ...], message: str) -> None:
    answer = call("reproduce", product_trace, *words)
    assert (answer.code, answer.out) == (2, "")
    assert message in answer.err


def test_a_list_of_tensors_takes_a_stated_type(call: Call, gpu_trace: Callable[..., Path]) -> None:
    arguments = {"Input Dims": [[[4, 2], [4, 2]], []], "Input type": ["TensorList", "Scalar"]}
    trace = gpu_trace("aten::cat", **arguments, **{"Concrete Inputs": ["", "1"]})
    refused = call("reproduce", trace, "--row", "1")
    assert (refused.code, refused.out) == (2, "")
    assert "state it with --dtype" in refused.err
    held = held_by(call("reproduce", trace, "--row", "1", "--dtype", "float16").out)
    assert held["stated_dtype"] == "float16"
    assert held["arguments"][0]["tensors"][0] == {"shape": [4, 2], "dtype": "float16", "strides": None}


def test_a_hostile_name_is_refused_and_quoted(call: Call, gpu_trace: Callable[..., Path]) -> None:
    answer = call("reproduce", gpu_trace("aten::mm'''\n__import__('os')", **PRODUCT), "--row", "1")
    assert (answer.code, answer.out) == (2, "")
    assert "\\n__import__" in answer.err
    kernel = "'''\nimport os #"
    script = call("reproduce", gpu_trace("aten::mm", kernel=kernel, **PRODUCT), "--row", "1").out
    assert held_by(script)["expected_kernels"] == [kernel]
    compile(script, "call.py", "exec")
    assert "\nimport os #" not in script
