# SPDX-License-Identifier: Apache-2.0
"""Version 1 to 2 on hand-made cards: every field finds its home or is named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cclbench.card import UpgradedCard, upgrade_card
from cclbench.card.read import parse_card
from cclbench.ground.errors import CheckFailed, InputError, UsageError

V1 = """\
version: 1
description: >
  A run.
hf_url: https://example.org/model
trace_url: https://example.org/trace
contributor: Ada
contact: ada@example.org
workload:
  model:
    phase: training
    moe: false
    granularity: layer
    model_family: tiny
    precision: bf16
    epochs: 2
    iteration: 5
    model_arch: {num_params: 1000, num_params_embedding: 10, vocab_size: 5, hidden_size: 2,
                 num_layers: 2, num_heads: 4, head_dim: 8}
  data:
    batch_size: 4
    batch_size_scope: global
    seq_len: 128
    dataset: c4
  hardware:
    network_topo:
      topology: slingshot
      bandwidth_gbps: [200, 2400]
    xpu_spec:
      type: GPU
      model: nvidia_a100_40gb
      total_count: 8
      count_per_node: 4
    driver_version: cuda_12.4
Model-executor:
  framework:
    name: torchtitan-0.1.0
    compiler_tool_selection: plain_pytorch
  model_plan_parallelization: {dp_replicate: 1, dp_shard: 2, tp: 2, pp: 2, cp: 1, pp_mb: 1}
  communication_library:
    name: NCCL
    version: 2.10
    env:
      NCCL_DEBUG: INFO
      NCCL_IB_QPS_PER_CONNECTION: 8
      NCCL_EMPTY: ''
      NCCL_NOTHING:
  protocol_selection: [rocev2, p2p]
metric_source:
  traces: [json]
"""


def upgraded(tmp_path: Path, text: str, name: str = "tiny-run.yaml") -> tuple[dict[str, Any], UpgradedCard]:
    card = tmp_path / name
    card.write_text(text)
    result = upgrade_card(card)
    return dict(parse_card(result.text, "x.yaml").value), result


def warned(result: UpgradedCard) -> dict[str, str]:
    return {warning.path: warning.message for warning in result.warnings}


def test_every_field_finds_its_home(tmp_path: Path) -> None:
    card, result = upgraded(tmp_path, V1)
    assert result.problems == ()
    assert card == {
        "version": 2,
        "id": "tiny-run",
        "description": "A run.",
        "workload": {
            "phase": "training",
            "model": {
                "family": "tiny", "url": "https://example.org/model", "moe": False, "parameters": 1000,
                "embedding_parameters": 10, "vocabulary": 5, "hidden": 2, "layers": 2, "heads": 4,
                "head_dim": 8,
            },
            "precision": "bf16",
            "batch": {"global": 4, "micro": 1, "sequence_length": 128},
            "dataset": "c4",
            "steps": 10,
        },
        "hardware": {
            "accelerator": "nvidia-a100-sxm-40gb",
            "count": 8,
            "per_node": 4,
            "scale_up": {"bandwidth": "2400 Gb/s"},
            "scale_out": {"fabric": "slingshot-11", "bandwidth": "200 Gb/s"},
            "driver": "cuda_12.4",
        },
        "software": {
            "framework": {"name": "torchtitan", "version": "0.1.0"},
            "compiler": "plain_pytorch",
            "communication": {
                "library": "nccl",
                "version": "2.10",
                "protocols": ["rocev2", "p2p"],
                "environment": {"NCCL_DEBUG": "INFO", "NCCL_IB_QPS_PER_CONNECTION": "8", "NCCL_EMPTY": ""},
            },
        },
        "parallelism": {"dp_replicate": 1, "dp_shard": 2, "tp": 2, "pp": 2, "cp": 1},
        "evidence": {"source_url": "https://example.org/trace"},
        "contributor": {"name": "Ada", "contact": "ada@example.org"},
    }  # fmt: skip


def test_what_has_no_home_is_named_with_line_and_value(tmp_path: Path) -> None:
    _, result = upgraded(tmp_path, V1)
    expected = [(None, ""), (12, "workload.model.granularity"), (49, "metric_source.traces")]
    assert [(warning.line, warning.path) for warning in result.warnings] == expected
    messages = warned(result)
    assert messages["workload.model.granularity"] == '"layer" has no home in version 2; left out'
    assert "Model-executor.communication_library.env.NCCL_NOTHING" in messages[""]


def test_an_executor_inside_the_workload_is_found(tmp_path: Path) -> None:
    head, executor = V1.split("Model-executor:\n")
    executor, tail = executor.split("metric_source:")
    nested = "  Model-executor:\n" + "".join(f"  {line}\n" for line in executor.splitlines())
    card, result = upgraded(tmp_path, f"{head}{nested}metric_source:{tail}")
    assert card["parallelism"]["tp"] == 2
    assert card["software"]["communication"]["environment"]["NCCL_DEBUG"] == "INFO"
    assert result.problems == ()


@pytest.mark.parametrize(
    ("old", "new", "path", "reason"),
    [
        ("batch_size: 4", "batch_size: [1, 2]", "workload.data.batch_size", "[1, 2] is several batch sizes"),
        ("scope: global", "scope: per_gpu", "workload.data.batch_size", "not global"),
        (
            "nvidia_a100_40gb",
            "nvidia_a100",
            "workload.hardware.xpu_spec.model",
            "either nvidia-a100-sxm-40gb or",
        ),
        ("nvidia_a100_40gb", "abacus", "workload.hardware.xpu_spec.model", "no accelerator of the catalog"),
        (
            "count_per_node: 4",
            "count_per_node: 16",
            "workload.hardware.xpu_spec.count_per_node",
            "what a node holds",
        ),
        ("[200, 2400]", "[200, 2000]", "workload.hardware.network_topo.bandwidth_gbps", "2000 for scale-up"),
        ("[200, 2400]", "fast", "workload.hardware.network_topo.bandwidth_gbps", '["fast"] has 1 of the two'),
        ("topology: slingshot", "topology: cloth", "workload.hardware.network_topo.topology", "neither"),
        ("precision: bf16", "precision: bf17", "workload.model.precision", "did you mean"),
        ("seq_len: 128", "seq_len: long", "workload.data.seq_len", "must be a whole number"),
        ("trace_url: https://example.org/trace", "trace_url: /data/x", "trace_url", "does not fit"),
        ("iteration: 5", "iteration: many", "workload.model.iteration", '"many" has no home'),
        ("pp: 2", "pp: 1", "Model-executor.model_plan_parallelization.pp_mb", "without pipeline stages"),
        ("name: NCCL", "name: NCCL audit shim", "Model-executor.communication_library.name", "does not fit"),
        ("hf_url:", "num_params: 5\nhf_url:", "num_params", "5 has no home"),
        (
            "iteration: 5",
            "iteration: 5\n    num_layers: 3",
            "workload.model.model_arch.num_layers",
            "3 already",
        ),
    ],
)
def test_a_doubtful_value_is_left_out(tmp_path: Path, old: str, new: str, path: str, reason: str) -> None:
    assert V1.count(old) == 1
    _, result = upgraded(tmp_path, V1.replace(old, new))
    assert reason in warned(result)[path]


def test_a_doubt_stands_at_the_gap_too(tmp_path: Path) -> None:
    _, result = upgraded(tmp_path, V1.replace("[200, 2400]", "[2400, 200]"))
    gaps = [line for line in result.text.splitlines() if "bandwidth: " in line]
    assert len(gaps) == 2
    assert all("[2400, 200] has scale-out above scale-up" in gap for gap in gaps)


def test_a_card_with_a_fault_comes_with_the_reason(tmp_path: Path) -> None:
    card, result = upgraded(tmp_path, V1.replace("total_count: 8", "total_count: 16"))
    (problem,) = result.problems
    assert problem.path == "parallelism"
    assert "= 8, but hardware.count is 16" in problem.message
    assert card["hardware"]["count"] == 16
    _, result = upgraded(tmp_path, V1.replace("  A run.\n", ""))
    assert [problem.path for problem in result.problems] == ["description"]
    assert "\n# description: " in result.text


@pytest.mark.parametrize(
    ("name", "identity"),
    [("a.yaml.yaml", "a"), ("A_b-1.0.yml", "A_b-1.0"), ("my card (2).yaml", "my-card-2-"), ("..x.yaml", "x")],
)
def test_the_id_comes_from_the_files_name(tmp_path: Path, name: str, identity: str) -> None:
    card, result = upgraded(tmp_path, V1, name)
    assert card["id"] == identity
    assert result.problems == ()


NONE = "is no version 1 card"


@pytest.mark.parametrize(
    ("text", "error", "said"),
    [
        *((text, CheckFailed, NONE) for text in ("version: 3\n", "version: '1'\n", "name: x\n")),
        ("version: one\nworkload: {}\n", CheckFailed, NONE),
        ("version: 2\nid: tiny-run\n", UsageError, "version 2 already"),
        (V1 + "  \nversion: 1\n", CheckFailed, r":51: version: is there twice, first in line 1"),
        (
            "version: 1\nworkload:\n  a: 1\ntrace_url: a: b\n",
            InputError,
            r"tiny-run\.yaml:4:.* mapping values are not allowed here",
        ),
    ],
    ids=range(7),
)
def test_no_version_1_card_is_refused(tmp_path: Path, text: str, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        upgraded(tmp_path, text)


@pytest.mark.parametrize(
    "text", ["version: 1\n", "workload: []\n", "version: 1\nworkload: 3\nModel-executor: [1, {a: 2}]\n"]
)
def test_a_hollow_card_is_a_list_of_gaps(tmp_path: Path, text: str) -> None:
    _, result = upgraded(tmp_path, text)
    assert {"description", "workload"} <= {problem.path for problem in result.problems}
