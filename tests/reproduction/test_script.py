# SPDX-License-Identifier: Apache-2.0
"""The written program: what it holds, and that nothing of a trace becomes code."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cclbench.ground.errors import UsageError
from cclbench.record.facts import TraceFacts
from cclbench.reproduction.arguments import RecordedTexts
from cclbench.reproduction.recorded import RecordedCalls
from cclbench.reproduction.script import benchmark_script, call_description

HOSTILE = (
    *("'''", '"""', "'); __import__('os').system('touch hacked') #"),
    *("'''\n__import__('os').system('touch hacked')\n'''", "\\'''\\\\", "\\", "\\u0027\\u0027\\u0027"),
    *("\x00\r\n\u2028\x1b[31m", "{}", "r'''{}'''", "\ud800"),
)


def recorded(**changes: Any) -> RecordedCalls:
    """Two calls of aten::mm in fp32 on a CPU, of 1 and 3 ms."""
    texts = RecordedTexts("[[4, 8], [8, 2]]", '["float", "float"]', "[[8, 1], [2, 1]]", '["", ""]')
    values: dict[str, Any] = {"run": "run-1", "operator": "aten::mm", "texts": texts, "kernels": ()}
    values |= {"times_ns": np.array([1_000_000, 3_000_000]), "facts": TraceFacts(works_on="host")}
    return RecordedCalls(**(values | changes))


def literal_of(script: str) -> dict[str, Any]:
    """The data in a program: the argument of its only `json.loads`."""
    (found,) = [
        node.args[0]
        for node in ast.walk(ast.parse(script))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "json.loads"
    ]
    assert isinstance(found, ast.Constant)
    loaded: dict[str, Any] = json.loads(found.value)
    return loaded


def code_of(script: str) -> str:
    tree = ast.parse(script)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "json.loads":
            node.args = []
    return ast.dump(tree)


def test_the_program_holds_the_call_and_its_time_in_the_trace() -> None:
    """Median 2 ms: 2 s are 1,000 calls, of which 200 are made."""
    sizes = ([4, 8], [8, 1]), ([8, 2], [2, 1])
    tensors = [{"tensor": {"shape": a, "strides": b, "dtype": "float32"}} for a, b in sizes]
    held = {"operator": "aten::mm", "arguments": tensors, "stated_dtype": None, "device": "cpu"}
    held |= {"expected_kernels": [], "tf32": False, "warmup": 20, "repeats": 200}
    times = {"p50_s": 0.002, "mean_s": 0.002, "min_s": 0.001}
    held["trace"] = {"run": "run-1", "device_name": None, "calls": 2, **times}
    assert literal_of(benchmark_script(recorded())) == held


def test_repeats_take_some_two_seconds() -> None:
    """40 ms a call: 50 calls; 10 s a call: the fewest, 10; no time at all: the most."""
    for ns, repeats in ((40_000_000, 50), (10_000_000_000, 10), (0, 200)):
        assert call_description(recorded(times_ns=np.array([ns], np.int64)))["repeats"] == repeats


def test_a_gpu_trace_names_device_kernels_and_tf32() -> None:
    facts = TraceFacts(works_on="device", vendor="nvidia", device_name="NVIDIA A100")
    kernel = "ampere_sgemm_tf32tf32_128x128"
    described = call_description(recorded(kernels=(kernel,), facts=facts))
    assert (described["device"], described["expected_kernels"], described["tf32"]) == ("cuda", [kernel], True)


@pytest.mark.parametrize("name", HOSTILE)
def test_names_of_a_trace_are_data_alone(name: str) -> None:
    facts = TraceFacts(works_on="device", device_name=name)
    script = benchmark_script(recorded(run=name, kernels=(name,), facts=facts))
    held = literal_of(script)
    assert held["trace"]["run"] == held["trace"]["device_name"] == name
    assert held["expected_kernels"] == [name]
    assert code_of(script) == code_of(benchmark_script(recorded()))
    assert script.isascii()
    with pytest.raises(UsageError, match="cannot be reproduced"):
        benchmark_script(recorded(operator=f"aten::{name}"))


@pytest.mark.parametrize("value", HOSTILE[:-1])
def test_values_of_arguments_are_data_alone(value: str) -> None:
    texts = RecordedTexts("[[4], []]", '["float", "Str"]', None, json.dumps(["", value]))
    script = benchmark_script(recorded(texts=texts))
    assert literal_of(script)["arguments"][1] == {"value": value}
    assert code_of(script) == code_of(benchmark_script(recorded()))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"texts": None, "operator": "triton_kernel"}, "no operator call is linked"),
        ({"kernels": ("Memcpy HtoD (Pinned -> Device)",)}, "between host and device"),
        ({"facts": TraceFacts(works_on="device", vendor="google")}, "not google"),
        ({"operator": "c10d::allreduce_"}, "collective"),
        ({"texts": RecordedTexts(None, None, None, None)}, "record_shapes=True"),
    ],
)
def test_what_cannot_be_reproduced_says_why(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        benchmark_script(recorded(**changes))


def run_program(script: str, folder: Path, *words: str) -> dict[str, Any]:
    if find_spec("torch") is None:
        pytest.skip("torch is not installed")
    (folder / "call.py").write_text(script)
    command = [sys.executable, "call.py", "--device", "cpu", "--repeats", "3", "--warmup", "1", *words]
    how: dict[str, Any] = {"cwd": folder, "env": os.environ | {"OMP_NUM_THREADS": "1"}}
    done = subprocess.run(command, capture_output=True, text=True, check=False, **how)
    assert done.returncode == 0, done.stderr
    printed: dict[str, Any] = json.loads(done.stdout)
    return printed


def test_the_program_runs_where_pytorch_is(tmp_path: Path) -> None:
    printed = run_program(benchmark_script(recorded()), tmp_path)
    assert (printed["operator"], printed["overload"], printed["device"]) == ("aten::mm", "default", "cpu")
    assert (printed["repeats"], printed["operand_bytes"], printed["kernels"]) == (3, 4 * (32 + 16), None)
    assert 0 < printed["min_s"] <= printed["p50_s"]


CALLS = """
aten::embedding        | [[5, 4], [7], [], [], []]         | f l s s s             | , , -1, False, False
aten::gather           | [[5, 4], [], [3, 4], []]          | f s l s               | , 0, , False
aten::nll_loss_forward | [[6, 4], [6], [], [], []]         | f l - s s             | , , , 1, -100
aten::mul_             | [[3], []]                         | f double              | ,
aten::gelu             | [[3], []]                         | f Str                 | , tanh
aten::_to_copy         | [[3], [], [], [], [], [], []]     | f s s - - s -         | , 15, 0, , , False,
aten::cat              | [[[2, 3], [2, 3]], []]            | TensorList s          | , 1
aten::sum              | [[4, 3], [], [], []]              | f ScalarList s -      | , [0], False,
aten::masked_fill      | [[4, 3], [4, 3], []]              | f bool s              | , , -inf
aten::arange           | [[], [], [], [], []]              | s s s - -             | 8, 4, 0, ,
aten::batch_norm | [[2,3,4],[3],[3],[3],[3],[],[],[],[]] | f f f f f s s s s | ,,,,, True, 0.1, 1e-05, False
"""
TYPES = {"f": "float", "l": "long int", "s": "Scalar", "-": ""}


@pytest.mark.parametrize("line", CALLS.strip().splitlines(), ids=lambda line: line.partition(" ")[0])
def test_operands_fit_their_operator(line: str, tmp_path: Path) -> None:
    operator, shapes, types, values = (cell.strip() for cell in line.split("|"))
    dtypes = [TYPES.get(word, word) for word in types.split()]
    texts = RecordedTexts(
        shapes, json.dumps(dtypes), "[]", json.dumps([v.strip() for v in values.split(",")])
    )
    calls = recorded(operator=operator, texts=texts)
    assert run_program(benchmark_script(calls, "float32"), tmp_path)["operator"] == operator


def argument(name: str, kind: str, default: bool = False) -> Any:
    return SimpleNamespace(name=name, type=kind, real_type=kind, has_default_value=lambda: default)


def overload(*arguments: Any) -> Any:
    return SimpleNamespace(_schema=SimpleNamespace(arguments=arguments))


def test_the_overload_is_the_one_that_takes_the_arguments(program: Any) -> None:
    """add(Tensor, Tensor), add(Tensor, number) and a newer one with one more argument that has a default."""
    self_, other = argument("self", "Tensor"), argument("other", "Tensor")
    packet = SimpleNamespace(overloads=lambda: ["newer", "Tensor", "Scalar"], Tensor=overload(self_, other))
    packet.newer = overload(self_, other, argument("alpha", "number", True))
    packet.Scalar = overload(self_, argument("other", "number"))
    # no operator that takes the name of a file is called
    assert "not allowed" in program.mismatch(argument("filename", "str"), {"value": "/etc/passwd"})
    tensor, number = {"tensor": {}}, {"value": 2}
    assert program.matching_overload(packet, [tensor, tensor]) is packet.Tensor
    assert program.matching_overload(packet, [tensor, number]) is packet.Scalar
    assert program.matching_overload(packet, [tensor, tensor, number]) is packet.newer
    with pytest.raises(program.NotReproducible, match="self is a Tensor"):
        program.matching_overload(packet, [number, number])
    with pytest.raises(program.NotReproducible, match="none takes 4 arguments"):
        program.matching_overload(packet, [tensor] * 4)


def tensor_of(*shape: int) -> dict[str, Any]:
    return {"tensor": {"shape": list(shape), "dtype": "int64", "strides": None}}


EMBEDDED = {"indices": tensor_of(4), "num_weights": {"value": 9}}
GATHERED = {"self": tensor_of(5, 7), "dim": {"value": -1}, "index": tensor_of(5, 2)}
POOLED = {"self": tensor_of(2, 3, 8, 9), "kernel_size": {"value": [2, 2]}, "indices": tensor_of(1)}


@pytest.mark.parametrize(
    ("operator", "arguments", "name", "end"),
    [
        ("embedding", {"weight": tensor_of(50, 8), "indices": tensor_of(4)}, "indices", 50),
        ("embedding_dense_backward", EMBEDDED, "indices", 9),
        ("gather", GATHERED, "index", 7),
        ("take", {"self": tensor_of(5, 7), "index": tensor_of(2)}, "index", 35),
        ("nll_loss", {"self": tensor_of(6, 11), "target": tensor_of(6)}, "target", 11),
        ("nll_loss", {"self": tensor_of(11), "target": tensor_of()}, "target", 11),
        ("max_pool2d_with_indices_backward", POOLED, "indices", 72),
        ("add", {"self": tensor_of(5), "other": tensor_of(5)}, "other", None),
    ],
)
def test_indices_are_within_what_they_select_from(
    program: Any, operator: str, arguments: dict[str, Any], name: str, end: int | None
) -> None:
    schema = overload(*(argument(key, "Tensor") for key in arguments))
    operands = program.Operands(f"aten::{operator}", schema, list(arguments.values()), "cpu")
    assert operands.index_end(name) == end
