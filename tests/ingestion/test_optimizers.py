# SPDX-License-Identifier: Apache-2.0
"""Sizes of a fused optimizer's tensors from the gradients before it, if its kernels' blocks confirm them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import cclbench
from cclbench.operator_table import operator_costs

KERNEL = (
    "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<"
    "FusedOptimizerTensorListMetadata<4>, FusedAdamMathFunctor<float, 4, 1>>"
)
VALUES = ["", "", "", "", "", "", "0.001", "0.9", "0.999", "0.01", "1e-08", "False", "False", "", ""]
Event = dict[str, Any]


def gradient(number: int, begin: int, size: Any, name: str = "torch::autograd::AccumulateGrad") -> Event:
    """The accumulation of a gradient of that size on the thread of the backward pass."""
    args = {"External id": number, "Input Dims": [size], "Input type": ["float"]}
    return {"ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": 2, "ts": begin, "dur": 2, "args": args}


def optimizer(number: int, begin: int, *grids: int, name: str = KERNEL, **args: Any) -> list[Event]:
    """A call that launches a kernel of each number of blocks; its lists of tensors have no sizes."""
    arguments: dict[str, Any] = {"Input Dims": [[]] * 15}
    arguments |= {"Input type": ["TensorList"] * 6 + ["Scalar"] * 7 + ["", ""], "Concrete Inputs": VALUES}
    call = {"ph": "X", "cat": "cpu_op", "name": "aten::_fused_adamw_", "pid": 1, "tid": 1, "ts": begin}
    events = [{**call, "dur": 20, "args": {"External id": number, **arguments, **args}}]
    for index, grid in enumerate(grids):
        link = {"correlation": 100 * number + index, "External id": number}
        launch = {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "tid": 1, "ts": begin + index, "dur": 1}
        device = {"device": 0, "stream": 7} | ({"grid": [grid, 1, 1]} if grid else {})
        run = {"cat": "kernel", "name": name, "tid": 7, "ts": begin + 50 + 10 * index, "dur": 10}
        own = {"ph": "X", "pid": 1}
        events += [own | launch | {"args": link}, own | run | {"args": link | device}]
    return events


def shapes_of(folder: Path, *events: Event | list[Event]) -> list[Any]:
    """Recorded sizes of the optimizer's calls, in order."""
    rows = [row for event in events for row in (event if isinstance(event, list) else [event])]
    (folder / "rank0.json").write_text(json.dumps({"traceEvents": rows}))
    run = cclbench.ingest(folder, store=folder / "runs")
    query = "SELECT shapes FROM operators WHERE name LIKE '%fused_adamw%' ORDER BY start_ns"
    return [json.loads(text)[:2] for text in run.sql(query).table.to_pydict()["shapes"]]


UNKNOWN = [[], []]


def test_gradients_of_two_steps(tmp_path: Path) -> None:
    """300 x 300 = 90,000 elements are 2 blocks, 10 and a scalar are one each, none are none: 4 in 2 kernels.

    Each step has its own gradients; the second one's are smaller.
    """
    first = gradient(1, 0, [300, 300]), gradient(2, 5, [10]), gradient(3, 10, []), gradient(4, 15, [0, 7])
    second = gradient(6, 200, [8]), optimizer(7, 300, 1)
    found = shapes_of(tmp_path, *first, optimizer(5, 100, 3, 1), *second)
    assert found == [[[], [[300, 300], [10], [], [0, 7]]], [[], [[8]]]]


NOT_ITS = {
    "no gradient": [optimizer(9, 100, 1)],
    "a gradient after it": [gradient(1, 150, [10]), optimizer(9, 100, 1)],
    "two passes": [gradient(1, 0, [10]), gradient(2, 9, [10]), optimizer(9, 100, 1)],
    "a shard of each parameter": [gradient(1, 0, [10, 65_536]), optimizer(9, 100, 5)],
    "a trace that begins within a step": [gradient(1, 0, [10]), optimizer(9, 100, 2)],
    "no grid": [gradient(1, 0, [10]), optimizer(9, 100, 0)],
    "another kernel": [gradient(1, 0, [10]), optimizer(9, 100, 1, name="adam")],
    "no kernel": [gradient(1, 0, [10]), optimizer(9, 100)],
    "a size that is none": [gradient(1, 0, "x"), optimizer(9, 100, 1)],
    "a negative size": [gradient(1, 0, [-1]), optimizer(9, 100, 1)],
    "one without sizes": [gradient(1, 0, [10]), gradient(2, 9, None), optimizer(9, 100, 1)],
    "another call": [gradient(1, 0, [10], name="aten::add_"), optimizer(9, 100, 1)],
}


@pytest.mark.parametrize("events", NOT_ITS.values(), ids=NOT_ITS)
def test_gradients_that_are_not_the_optimizers(tmp_path: Path, events: list[Any]) -> None:
    """Its sizes stay unknown."""
    assert [found for found in shapes_of(tmp_path, *events) if found != UNKNOWN] == []


def test_gradients_tell_no_sizes_of_two_groups_and_change_no_recorded_ones(tmp_path: Path) -> None:
    """Two calls share the gradients before the first one, which do not say which are whose."""
    events = gradient(1, 0, [10]), gradient(2, 5, [20]), optimizer(3, 100, 1), optimizer(4, 200, 1)
    assert shapes_of(tmp_path, *events) == [UNKNOWN, UNKNOWN]
    sizes = [[[5]]] * 4 + [[], [[]]] + [[]] * 9
    recorded = gradient(1, 0, [10]), optimizer(2, 100, 1, **{"Input Dims": sizes})
    assert shapes_of(tmp_path, *recorded) == [[[[5]], [[5]]]]


@pytest.mark.parametrize("name", ["llama-train", "llama-train-compiled", "llama-train-fp8"])
def test_the_parameters_of_a_data_point(tmp_path: Path, name: str) -> None:
    """Its card states 54,010,880 parameters: AdamW takes 14 FLOPs each, reads 4 and writes 3 bf16 values."""
    run = cclbench.ingest(f"workload_cards/{name}-h100.yaml", store=tmp_path)
    parameters = run.card.raw["workload"]["model"]["parameters"]
    assert parameters == 54_010_880
    (row,) = [row for row in operator_costs(run).rows if row.operator == "aten::_fused_adamw_"]
    assert (row.calls, row.flops) == (3, 3 * 14 * parameters)
    assert row.bytes == 3 * (7 * 2 * parameters + 31 * 4)
    assert "gradients accumulated before it" in (row.assumes or "")
