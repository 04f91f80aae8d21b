# SPDX-License-Identifier: Apache-2.0
"""Whether fields agree: degrees, experts, nodes, parameters, ranks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from cclbench.card import validate_card
from cclbench.card.consistency import consistency_problems, layout_products
from cclbench.card.read import parse_card

Change = Callable[[str, str], Path]


def found(text: str) -> list[str]:
    return [
        f"{problem.path}: {problem.message}" for problem in consistency_problems(parse_card(text, "x.yaml"))
    ]


def parallel(framework: str, count: int, **degrees: int) -> list[str]:
    rows = "".join(f"  {name}: {value}\n" for name, value in degrees.items())
    return found(
        f"hardware: {{count: {count}}}\nsoftware: {{framework: {{name: {framework}}}}}\nparallelism:\n{rows}"
    )


@pytest.mark.parametrize(
    ("framework", "count", "degrees"),
    [
        ("torchtitan", 16, {"dp_replicate": 2, "dp_shard": 2, "tp": 2, "pp": 2}),
        ("torchtitan", 8, {"cp": 2, "dp_shard": 4}),
        ("torchtitan", 16, {"dp_shard": 2, "tp": 4, "pp": 2, "ep": 8}),
        ("torchtitan", 16, {"dp_shard": 2, "cp": 2, "tp": 4, "ep": 4}),
        ("Megatron-LM", 8, {"dp_replicate": 4, "tp": 2, "ep": 4}),
        ("megatron_lm", 8, {"dp_replicate": 4, "tp": 2, "ep": 8}),
        ("vllm", 4, {"dp_replicate": 2, "tp": 2, "ep": 4}),
        ("vllm", 8, {"tp": 8, "cp": 4}),
        ("vllm", 8, {"tp": 4, "cp": 2, "ep": 8}),
        ("sglang", 4, {"tp": 4, "ep": 2}),
        ("sglang", 8, {"tp": 8, "dp_replicate": 4, "ep": 8}),
        ("sglang", 8, {"tp": 4, "dp_replicate": 2}),
        ("maxtext", 8, {"tp": 2, "ep": 4}),
        ("my own", 6, {"dp_shard": 6, "ep": 3}),
    ],
)
def test_degrees_that_a_framework_can_run(framework: str, count: int, degrees: dict[str, int]) -> None:
    assert parallel(framework, count, **degrees) == []


@pytest.mark.parametrize(
    ("framework", "count", "degrees", "expected"),
    [
        (
            "torchtitan",
            8,
            {"dp_shard": 2, "tp": 2},
            "dp_replicate × dp_shard × tp × pp × cp = 4, but hardware.count is 8",
        ),
        ("torchtitan", 8, {"dp_shard": 8, "ep": 3}, "in torchtitan ep divides dp_shard × cp × tp = 8"),
        ("torchtitan", 8, {"dp_replicate": 4, "dp_shard": 2, "ep": 4}, "dp_shard × cp × tp = 2"),
        ("torchtitan", 8, {"dp_shard": 2, "cp": 4, "ep": 2}, "a multiple of cp = 4"),
        ("megatron-lm", 8, {"dp_replicate": 4, "pp": 2, "ep": 8}, "in Megatron-LM ep divides"),
        ("vllm", 4, {"tp": 4, "ep": 2}, "in vLLM ep is tp × dp_replicate × dp_shard = 4"),
        ("vllm", 4, {"tp": 2, "ep": 4}, "= 2, but hardware.count is 4"),
        ("vllm", 8, {"tp": 8, "cp": 3}, "= 24, but hardware.count is 8"),
        ("sglang", 8, {"tp": 4, "pp": 2, "ep": 8}, "in SGLang ep divides tp = 4"),
        (
            "maxtext",
            8,
            {"tp": 2, "ep": 2},
            "dp_replicate × dp_shard × tp × pp × cp × ep = 4, but hardware.count is 8",
        ),
        ("my own", 6, {"dp_shard": 6, "ep": 4}, "ep divides hardware.count = 6"),
    ],
)
def test_degrees_of_no_run(framework: str, count: int, degrees: dict[str, int], expected: str) -> None:
    assert expected in "\n".join(parallel(framework, count, **degrees))


def test_every_way_to_count_the_devices_is_offered() -> None:
    card = {
        "software": {"framework": {"name": "sglang"}},
        "parallelism": {"tp": 8, "dp_replicate": 2, "cp": 2},
    }
    assert set(layout_products(card).values()) == {32, 16, 8}


@pytest.mark.parametrize(("per_node", "expected"), [(8, []), (32, ["more than"]), (3, ["does not divide"])])
def test_a_node_holds_a_part_of_the_accelerators(per_node: int, expected: list[str]) -> None:
    messages = found(f"hardware: {{count: 16, per_node: {per_node}}}\n")
    assert len(messages) == len(expected)
    assert all(text in message for text, message in zip(expected, messages, strict=True))


def test_a_part_of_the_parameters_is_no_more_than_all() -> None:
    messages = found("workload: {model: {parameters: 10, active_parameters: 11, embedding_parameters: 12}}\n")
    expected = ["workload.model.active_parameters", "workload.model.embedding_parameters"]
    assert [message.split(":")[0] for message in messages] == expected


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("vocabulary: 50257, hidden: 768, embedding_parameters: 39383808, tied_embeddings: true", []),
        (
            "vocabulary: 50257, hidden: 800, embedding_parameters: 39383808",
            ["vocabulary: × hidden = 40,205,600"],
        ),
        (
            "vocabulary: 10, hidden: 10, parameters: 200, embedding_parameters: 100, tied_embeddings: false",
            [],
        ),
        (
            "vocabulary: 10, hidden: 10, parameters: 199, embedding_parameters: 100, tied_embeddings: false",
            ["tied_embeddings: is false, but embedding_parameters + vocabulary × hidden = 200"],
        ),
        (
            "vocabulary: 10, hidden: 10, parameters: 900, active_parameters: 150, embedding_parameters: 100,"
            " tied_embeddings: false",
            ["tied_embeddings: is false, but embedding_parameters + vocabulary × hidden = 200"],
        ),
        ("vocabulary: 10, hidden: 10, parameters: 100, embedding_parameters: 100, tied_embeddings: true", []),
        ("attention: window, attention_window: 4096", []),
        ("attention: window", ["attention: is window, but"]),
        ("attention: causal, attention_window: 4096", ["attention_window: belongs to"]),
        ("attention_window: 4096", ["attention_window: belongs to"]),
    ],
)
def test_the_heads_size_and_the_window_agree_with_the_rest(model: str, expected: list[str]) -> None:
    messages = found(f"workload: {{model: {{{model}}}}}\n")
    assert len(messages) == len(expected)
    for text, message in zip(expected, messages, strict=True):
        assert message.startswith(f"workload.model.{text}")


def test_ranks_of_the_evidence_are_within_the_count(changed: Change) -> None:
    (problem,) = validate_card(changed("ranks: [0]", "ranks: [0, 16]"))
    assert (problem.line, problem.path) == (32, "evidence.traces[0].ranks")
    assert "rank 16" in problem.message


@pytest.mark.parametrize(
    "text",
    [
        "hardware: {count: 8}\n",
        "parallelism: {tp: 8}\n",
        # of the wrong type: left to the schema
        "hardware: [1]\nparallelism: {tp: x}\nevidence: {traces: [1, {ranks: 3}, {ranks: [x]}]}\n",
        "hardware: {count: true, per_node: 2}\nworkload: 3\n",
    ],
)
def test_what_is_not_stated_contradicts_nothing(text: str) -> None:
    assert found(text) == []
