# SPDX-License-Identifier: Apache-2.0
"""InferenceX's results: rates per GPU become rates of the whole, by the GPUs that they are over."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from helpers.refused import refused

from cclbench.formats.inferencex import InferenceX

ONE_NODE: dict[str, Any] = {"hw": "h200", "conc": 64, "image": "registry.somebody.example/vllm:1"}
ONE_NODE |= {"model": "openai/gpt-oss-120b", "framework": "vllm", "precision": "fp4", "isl": 1024}
ONE_NODE |= {"osl": 8192, "is_multinode": False, "disagg": False}
ONE_NODE |= {"tp": 4, "pp": 2, "pcp_size": 1, "dcp_size": 2, "tput_per_gpu": 300.0}
ONE_NODE |= {"output_tput_per_gpu": 100.0, "input_tput_per_gpu": 200.0, "mean_ttft": 0.5}
ONE_NODE |= {"median_ttft": 0.4, "p99_tpot": 0.02, "p99_intvty": 50.0, "p99_e2el": 30.0}
DISAGGREGATED = ONE_NODE | {"is_multinode": True, "disagg": True, "num_prefill_gpu": 4}
DISAGGREGATED |= {"num_decode_gpu": 8, "tput_per_gpu": 150.0, "input_tput_per_gpu": 250.0}


def figures(tmp_path: Path, content: object) -> tuple[list[dict[tuple[str, str | None], float]], Any]:
    """Figures of each benchmark, and the evidence."""
    path = tmp_path / "agg_bmk.json"
    path.write_text(json.dumps(content))
    found = InferenceX().read(path)
    rows = found.serving.to_pylist()
    numbers = sorted({row["benchmark"] for row in rows})
    return [
        {(row["figure"], row["stat"]): row["value"] for row in rows if row["benchmark"] == number}
        for number in numbers
    ], found


def test_one_node(tmp_path: Path) -> None:
    """Context parallelism of decoding shares GPUs: 8 of them, 2,400 tokens/s."""
    (found,), evidence = figures(tmp_path, ONE_NODE)
    counts = {"devices": 8, "max_concurrency": 64, "total_throughput": 2400, "output_throughput": 800}
    times = {("ttft", "mean"): 0.5, ("ttft", "p50"): 0.4, ("tpot", "p99"): 0.02, ("e2e_latency", "p99"): 30}
    assert found == {(figure, None): value for figure, value in counts.items()} | times
    assert evidence.facts["workloads"] == ["gpt-oss-120b, 1,024 input tokens, 8,192 output tokens"]
    assert evidence.left_out == {}


def test_rates_are_over_the_gpus_that_work(tmp_path: Path) -> None:
    """12 GPUs of 150 tokens/s; 100 tokens/s of output on each of 8; 250 of input on each of 4."""
    (_, found), evidence = figures(tmp_path, [ONE_NODE, DISAGGREGATED])
    assert (found["devices", None], found["total_throughput", None]) == (12, 1800)
    assert found["output_throughput", None] == 800
    assert evidence.left_out == {}
    alone = DISAGGREGATED | {"num_decode_gpu": 0, "tput_per_gpu": 350.0, "input_tput_per_gpu": 250.0}
    (found,), evidence = figures(tmp_path, alone)
    assert (found["devices", None], found["output_throughput", None], evidence.left_out) == (4, 400, {})
    _, evidence = figures(tmp_path, [ONE_NODE, ONE_NODE | {"tput_per_gpu": 400.0}])
    assert evidence.left_out == {"results whose rates per GPU contradict their numbers of GPUs": 1}


def test_results_of_2025_and_of_agents(tmp_path: Path) -> None:
    old = {key: ONE_NODE[key] for key in ("hw", "conc", "model", "tp", "tput_per_gpu")}
    (found,), evidence = figures(tmp_path, [{"hw": "h200", "users": 4, "metrics": {}}, old])
    assert (found["devices", None], found["total_throughput", None]) == (4, 1200)
    assert evidence.facts["workloads"] == ["gpt-oss-120b"]
    assert evidence.left_out == {"results without tput_per_gpu, as those of agents": 1}


def but(**changes: Any) -> str:
    return json.dumps(ONE_NODE | changes)


BAD: dict[str, tuple[str, str]] = {
    "cut": (json.dumps([ONE_NODE])[:-9], "is not JSON"),
    "empty": ("", "the file is empty"),
    "no result": ("[]", "has no result with tput_per_gpu"),
    "a number": ("[3]", "entry 1: is not a JSON object"),
    "no model": (but(model=None), "does not name its model"),
    "no GPUs": (but(tp=None), "does not state tp"),
    "half a GPU": (but(tp=1.5), "tp is not a whole number"),
    "no load": (but(conc=0), "does not state conc"),
    "a rate of text": (but(tput_per_gpu="300"), "tput_per_gpu is not a number"),
    "no rate": (but(tput_per_gpu=None), "tput_per_gpu is not a number"),
    "a negative latency": (but(p99_tpot=-1), "is not a number from 0 to"),
    "no decoding GPUs": (but(**DISAGGREGATED | {"num_prefill_gpu": 0}), "does not state num_prefill_gpu"),
}


@pytest.mark.parametrize("case", BAD)
def test_damage_is_an_error_that_says_where(tmp_path: Path, case: str) -> None:
    text, says = BAD[case]
    path = tmp_path / "agg.json"
    path.write_text(text)
    refused(InferenceX().read, path, says)
