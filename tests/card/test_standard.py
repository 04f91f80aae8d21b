# SPDX-License-Identifier: Apache-2.0
"""Standard workloads: what a card that names one must state, and the published rows that they stand for."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cclbench.card import validate_card
from cclbench.card.json_schema import schema_part, value_misfit
from cclbench.card.standard import StandardWorkload, standard_workloads

Change = Callable[[str, str], Path]
TRAINING = "ccl-bench-llama-3.1-8b-training"
OUR_CARD = "batch:\n    global: 8\n    sequence_length: 128"
THEIR_BATCH = "batch:\n    global: 4\n    sequence_length: 512"
ROWS = {
    "ccl-bench-qwen3-4b-inference": 13,
    "ccl-bench-llama-3.1-8b-inference": 11,
    "ccl-bench-deepseek-moe-16b-inference": 6,
    "ccl-bench-llama-3.1-8b-training": 11,
    "ccl-bench-deepseek-v3-16b-training-8x1024": 10,
    "ccl-bench-deepseek-v3-16b-training-64x2048": 1,
    "ccl-bench-deepseek-v3-236b-training": 1,
}
"""Published rows of each, counted by hand."""


def errors(card: Path) -> list[tuple[str, str]]:
    return [(p.path, p.message) for p in validate_card(card) if p.severity == "error"]


def named(
    changed: Change, name: str = TRAINING, batch: str = THEIR_BATCH, model: str = "Llama-3.1-8B"
) -> Path:
    """The complete card with the name of a standard, and with the batch and model given."""
    card = changed(OUR_CARD, batch)
    text = card.read_text().replace("phase: training", f"phase: training\n  standard: {name}")
    card.write_text(text.replace("name: Tiny,", f"name: {model},"))
    return card


@pytest.mark.parametrize("model", ["Llama-3.1-8B", "meta-llama/llama_3.1_8b"])
def test_a_card_that_states_its_work_is_valid_whatever_may_vary(changed: Change, model: str) -> None:
    assert validate_card(named(changed, model=model)) == []


def test_each_difference_is_an_error_with_both_values(changed: Change) -> None:
    card = named(changed, batch=OUR_CARD, model="Llama-3.1-70B")
    card.write_text(card.read_text().replace("  precision: bf16\n", ""))
    by = f"by the standard workload {TRAINING}"
    assert dict(errors(card)) == {
        "workload.model.name": f'is "Llama-3.1-70B", but "Llama-3.1-8B" {by}',
        "workload.precision": f'is not filled in; "bf16" {by}',
        "workload.batch.global": f"is 8, but 4 {by}",
        "workload.batch.sequence_length": f"is 128, but 512 {by}",
    }


def test_an_unknown_one_is_an_error_with_the_nearest(changed: Change) -> None:
    ((path, message),) = errors(named(changed, name="ccl-bench-llama-3-8b-training"))
    assert path == "workload.standard"
    assert f"did you mean {TRAINING}" in message


def test_the_input_length_of_inference_may_be_stated_as_the_sequence_length() -> None:
    standard = standard_workloads()["ccl-bench-qwen3-4b-inference"]

    def differing(**batch: int) -> list[str]:
        model = {"name": "Qwen/Qwen3-4B"}
        workload = {
            "phase": "inference",
            "model": model,
            "precision": "bf16",
            "batch": {"global": 128, **batch},
        }
        return [path for path, _ in standard.contradictions({"workload": workload})]

    assert differing(sequence_length=1024) == []
    assert differing(input_length=1024, sequence_length=1152) == []
    assert differing(input_length=512, sequence_length=1024) == ["workload.batch.input_length"]
    assert differing() == ["workload.batch.input_length"]


@pytest.mark.parametrize("standard", standard_workloads().values(), ids=list(standard_workloads()))
def test_its_fields_are_those_of_cards(standard: StandardWorkload) -> None:
    assert {path: value_misfit(value, path) for path, value in standard.equal.items()} == dict.fromkeys(
        standard.equal
    )
    assert value_misfit(standard.name, "workload.standard") is None
    for path in (*standard.vary, *standard.open):
        assert schema_part(path)["title"]
        assert not any(f"{equal}.".startswith(f"{path}.") for equal in standard.equal)
    assert len(standard.capture) >= 3


def test_they_stand_for_the_published_rows(test_data: Path) -> None:
    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in standard_workloads()}
    document = json.loads((test_data / "ccl_bench" / "benchmark_data.json").read_text())
    for row in (row["metadata"] for row in document["rows"]):
        batch = {"global": row["batch_size"], "sequence_length": row["seq_len"]}
        if row["phase"] == "inference" and row["input_len"]:
            batch |= {"input_length": row["input_len"]}
        model = {"name": row["model_family"]}
        work = {"phase": row["phase"], "precision": "bf16", "model": model, "batch": batch}
        for standard in standard_workloads().values():
            if not list(standard.contradictions({"workload": work})):
                rows[standard.name].append(row)
    assert {name: len(found) for name, found in rows.items()} == ROWS
    assert {row["precision"] for found in rows.values() for row in found} == {"bf16"}
    for name, found in rows.items():
        if "deepseek-v3" in name:
            assert {row["hf_url"].rpartition("/")[2] for row in found} == {"deepseek-moe-16b-base"}
        if name.endswith("-inference"):
            lengths = {(row["hardware_type"], row["output_len"]) for row in found}
            on_tpu = set() if "moe" in name else {("TPU", "")}
            assert lengths == {("GPU", 128)} | on_tpu
