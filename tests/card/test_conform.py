# SPDX-License-Identifier: Apache-2.0
"""The schema itself, and what it says about a card that departs from it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft7Validator

from cclbench.card import card_schema, load_card, validate_card
from cclbench.card.json_schema import value_misfit
from cclbench.ground.errors import CheckFailed


def parts(part: Mapping[str, Any], name: str = "card") -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Every property, item and free value of the schema."""
    yield name, part
    for key, below in part.get("properties", {}).items():
        yield from parts(below, f"{name}.{key}")
    if "items" in part:
        yield from parts(part["items"], f"{name}[]")
    if isinstance(part.get("additionalProperties"), Mapping):
        yield from parts(part["additionalProperties"], f"{name}.*")


PARTS = dict(parts(card_schema()))


def test_the_schema_is_valid_and_every_part_helps_an_editor() -> None:
    Draft7Validator.check_schema(dict(card_schema()))
    assert card_schema()["$schema"] == "http://json-schema.org/draft-07/schema#"
    for name, part in PARTS.items():
        assert part["title"].strip(), name
        assert part["description"].endswith("."), name
        assert part["type"] != "object" or "additionalProperties" in part, name
        unit = "Unit: " in part["description"] or name.endswith("[]") or name == "card.version"
        assert part["type"] != "integer" or unit, name
        assert name == "card" or part["examples"], name
        for example in part.get("examples", []):
            Draft7Validator(dict(part)).validate(example)
            is_value = name != "card" and "properties" not in part and "[]" not in name and "*" not in name
            assert not is_value or fits(example, name), name


def fits(example: object, name: str) -> bool:
    return value_misfit(example, name.removeprefix("card.")) is None


Change = Callable[[str, str], Path]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("version: 2\n", "version: 3\n", "1: version: is 3 but must be 2"),
        ("id: tiny\n", "", "1: id: is missing: name of the data point"),
        ("A tiny run.", '"  "', '3: description: is "  ", which does not fit'),
        ("  phase: training\n", "", "4: workload.phase: is missing: training, inference or serving"),
        ("phase: training", "phase: trainig", '5: workload.phase: is "trainig"; did you mean training'),
        (
            "precision: bf16",
            "precision: 16",
            "8: workload.precision: is 16 but must be text; put it in quotes",
        ),
        ("moe: true", "moe: yes", '6: workload.model.moe: is "yes" but must be true or false'),
        ("layers: 2", "layers: two", '7: workload.model.layers: is "two" but must be a whole number'),
        ("global: 8", "global: 0", "10: workload.batch.global: is 0 but must be at least 1"),
        ("global: 8", "global:", "10: workload.batch.global: is empty; fill it in or delete the line"),
        ("global: 8", "global: [8, 16]", "10: workload.batch.global: is [8, 16] but must be a whole number"),
        ("global: 8", "global: true", "10: workload.batch.global: is true but must be a whole number"),
        ("global: 8", "globl: 8", "10: workload.batch.globl: unknown key; did you mean global?"),
        ("count: 16", "tp: 16", "14: hardware.tp: unknown key; it belongs at parallelism.tp"),
        ("count: 16", "zzz: 16", "14: hardware.zzz: unknown key; known: accelerator, calibration, count"),
        ("nvidia-h100-sxm", "NVIDIA H100", '13: hardware.accelerator: is "NVIDIA H100", which does not fit'),
        (
            "450 GB/s",
            "450 GBps",
            "16: hardware.scale_up.bandwidth: '450 GBps' has no known unit of bandwidth",
        ),
        ("450 GB/s", "450", "16: hardware.scale_up.bandwidth: is 450 but must be text"),
        ("400 Gb/s", "0 Gb/s", "17: hardware.scale_out.bandwidth: '0 Gb/s' is zero"),
        ('version: "2.27"', "version: 2.27", "22: software.communication.version: is 2.27 but must be text"),
        ("{NCCL_DEBUG: INFO}", "{NCCL_DEBUG: 1}", "environment.NCCL_DEBUG: is 1 but must be text"),
        (
            "{NCCL_DEBUG: INFO}",
            "{NCCL DEBUG: x}",
            "environment.NCCL DEBUG: is not the name of an environment variable",
        ),
        ("ranks: [0]", "ranks: []", "32: evidence.traces[0].ranks: is empty"),
        (
            "ranks: [0]",
            "ranks: [0, 0]",
            "32: evidence.traces[0].ranks: is [0, 0], which names something twice",
        ),
        ("ranks: [0]", "ranks: [-1]", "32: evidence.traces[0].ranks[0]: is -1 but must be at least 0"),
        (
            "format: kineto",
            "format: Kineto",
            '31: evidence.traces[0].format: is "Kineto", which does not fit',
        ),
        ("id: tiny\n", 'id: "tiny\\n"\n', '2: id: is "tiny\\n", which does not fit'),
        ("id: tiny\n", "id: ../tiny\n", '2: id: is "../tiny", which does not fit'),
        ("evidence:\n", "evidence: {}\nproof:\n", "29: proof: unknown key"),
        ("parallelism:\n", "parallelism: []\nx:\n", "24: parallelism: is [] but must be a mapping"),
    ],
)
def test_a_departure_has_line_path_and_remedy(changed: Change, old: str, new: str, expected: str) -> None:
    card = changed(old, new)
    errors = [str(problem) for problem in validate_card(card) if problem.severity == "error"]
    assert any(expected in error for error in errors), errors
    assert all(error.startswith(f"{card}:") for error in errors)


def test_all_problems_come_at_once_in_the_order_of_the_file(changed: Change) -> None:
    card = changed(
        "  precision: bf16\n", "  precision: bf61\n  presicion: bf16\n  phase: serving\n  steps: x\n"
    )
    with pytest.raises(CheckFailed) as caught:
        load_card(card)
    assert [line.removeprefix(f"{card}:").split(": ")[0:2] for line in str(caught.value).splitlines()] == [
        ["8", "workload.precision"],
        ["9", "workload.presicion"],
        ["10", "workload.phase"],
        ["11", "workload.steps"],
    ]


def test_a_card_is_valid_as_it_is_and_sent_to_upgrade_as_version_1(complete: Path, changed: Change) -> None:
    assert validate_card(complete) == []
    (problem,) = validate_card(changed("version: 2\n", "version: 1\n"))
    assert "cclbench card upgrade" in problem.message


def test_hostile_keys_are_printed_safely(changed: Change) -> None:
    card = changed("id: tiny\n", 'id: tiny\n"\\u202Eevil\\u0007": 1\n')
    errors = [str(problem) for problem in validate_card(card)]
    assert any("\\u202eevil\\x07: unknown key" in error for error in errors)
    assert all(error.isprintable() for error in errors)
