# SPDX-License-Identifier: Apache-2.0
"""A new card says what the traces hold and marks what they don't."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from cclbench.card import CardFacts, CardTrace, infer_card, load_card, relative_to_root, validate_card
from cclbench.card.read import parse_card
from cclbench.ground.errors import UsageError

ONE = CardTrace("traces/tiny/rank0.json.gz", "kineto", (0,), "0" * 64, 10)
FULL = CardFacts(
    traces=(ONE, structs.replace(ONE, path="traces/tiny/rank1.json.gz", ranks=(1,))),
    world_size=4,
    accelerator="nvidia-h100-sxm",
    accelerator_name="NVIDIA H100 80GB HBM3",
    per_node=4,
    framework="torchtitan",
    framework_version="0.2.0",
    communication_library="nccl",
    communication_version="2.27.3",
    groups=(
        ("mesh_dp_shard", (0, 2)),
        ("mesh_tp", (0, 1)),
        ("mesh_tp", (2, 3)),
        ("default_pg", (0, 1, 2, 3)),
    ),
    precision="bf16",
    phase="training",
    steps=3,
)


def degrees(*groups: tuple[str, int], world_size: int | None = None) -> dict[str, Any]:
    members = tuple((description, tuple(range(size))) for description, size in groups)
    text = infer_card(CardFacts(traces=(ONE,), groups=members, world_size=world_size))
    return dict(parse_card(text, "x.yaml").value.get("parallelism", {}))


def test_everything_that_traces_hold_is_in_the_card(tmp_path: Path) -> None:
    card = tmp_path / "tiny.yaml"
    card.write_text(infer_card(FULL))
    loaded = load_card(card)
    assert loaded.id == "tiny"
    assert loaded.workload.phase == "training"
    assert (loaded.workload.precision, loaded.workload.steps) == ("bf16", 3)
    hardware, software = loaded.hardware, loaded.software
    assert (hardware.accelerator, hardware.count, hardware.per_node) == ("nvidia-h100-sxm", 4, 4)
    assert (software.framework.name, software.framework.version) == ("torchtitan", "0.2.0")
    assert (software.communication.library, software.communication.version) == ("nccl", "2.27.3")
    assert (loaded.parallelism.dp_shard, loaded.parallelism.tp) == (2, 2)
    assert [trace.ranks for trace in loaded.evidence.traces] == [(0,), (1,)]
    assert loaded.evidence.traces[0].sha256 == "0" * 64


def test_the_rest_is_marked(tmp_path: Path) -> None:
    text = infer_card(FULL)
    gaps = ("  #   name: Llama", "  #   global: 32", "  #   bandwidth: ", "  # launch: ", "#   name: Ada")
    for gap in gaps:
        assert re.search(rf"^{re.escape(gap)}.*# to fill in: ", text, re.MULTILINE), gap
    card = tmp_path / "tiny.yaml"
    card.write_text(text)
    assert {"workload.model.parameters", "workload.batch.global"} <= {
        problem.path for problem in validate_card(card)
    }


def test_a_bare_trace_makes_a_card_that_says_what_it_lacks(tmp_path: Path) -> None:
    card = tmp_path / "bare.yaml"
    card.write_text(infer_card(CardFacts(traces=(structs.replace(ONE, path="rank0.json.gz"),))))
    errors = [problem.path for problem in validate_card(card) if problem.severity == "error"]
    assert {"id", "workload"} <= set(errors)
    lines = card.read_text().splitlines()
    assert any(line.startswith("# id: ") for line in lines)
    assert "#   phase: training  # to fill in: training, inference or serving" in lines


def test_an_unknown_accelerator_is_left_to_the_reader_with_the_traces_word() -> None:
    text = infer_card(replace(FULL, accelerator=None))
    (gap,) = [line for line in text.splitlines() if line.startswith("  # accelerator: ")]
    assert gap.endswith('; the trace says "NVIDIA H100 80GB HBM3"')
    name = {"accelerator": None, "accelerator_name": 'x"\n- y: #'}  # which cannot break the card
    hostile = replace(FULL, **name, framework="a: b\n#", framework_version="1.0")
    document = parse_card(infer_card(hostile), "x.yaml")
    assert document.value["software"]["framework"] == {"name": "a: b\n#", "version": "1.0"}


@pytest.mark.parametrize(
    ("groups", "expected"),
    [
        ([("mesh_tp", 4)], {"tp": 4}),
        ([("tp:0", 4), ("pp:1", 2)], {"tp": 4, "pp": 2}),
        ([("TENSOR_MODEL_PARALLEL_GROUP", 4), ("PIPELINE_MODEL_PARALLEL_GROUP", 2)], {"tp": 4, "pp": 2}),
        (
            [("mesh_dp_replicate", 2), ("mesh_dp_shard_cp", 8), ("mesh_cp", 2)],
            {"dp_replicate": 2, "dp_shard": 4, "cp": 2},
        ),
        ([("mesh_fsdp", 8)], {"dp_shard": 8}),
        ([("mesh_dp", 2), ("mesh_dp_shard", 2)], {"dp_shard": 2}),
        ([("mesh_tp", 4), ("mesh_tp", 2)], {}),
        ([("default_pg", 8), ("undefined", 8), ("", 8)], {}),
        ([("mesh_ep", 8), ("mesh_tp", 1)], {"ep": 8, "tp": 1}),
    ],
)
def test_groups_name_their_dimension(groups: list[tuple[str, int]], expected: dict[str, int]) -> None:
    assert degrees(*groups) == expected


@pytest.mark.parametrize(("holds", "ranks", "written"), [(8, 16, 8), (8, 8, 8), (8, 2, None), (8, 12, None)])
def test_a_node_that_is_not_filled_is_left_to_the_reader(holds: int, ranks: int, written: int | None) -> None:
    text = infer_card(replace(FULL, per_node=holds, world_size=ranks))
    assert parse_card(text, "x.yaml").value["hardware"].get("per_node") == written
    assert ("a node has 8" in text) == (written is None)


@pytest.mark.parametrize(
    ("groups", "line", "said"),
    [
        ((("mesh_dp", (0, 2)), ("mesh_tp", (0, 1))), "  dp_replicate: 2", "if it shards"),
        ((("mesh_tp", (0, 1)),), "parallelism:", "account for 2 of 4 ranks"),
    ],
)
def test_groups_that_leave_a_question_ask_it(groups: tuple[Any, ...], line: str, said: str) -> None:
    lines = infer_card(replace(FULL, groups=groups), "mine").splitlines()
    assert said in lines[lines.index(line) - 1]
    assert "id: mine" in lines  # a given one wins


def test_paths_are_made_relative_to_the_cards_root(tmp_path: Path) -> None:
    facts = CardFacts(traces=(structs.replace(ONE, path=str(tmp_path / "traces/tiny/rank0.json.gz")),))
    assert relative_to_root(facts, tmp_path).traces[0].path == "traces/tiny/rank0.json.gz"
    with pytest.raises(UsageError, match="is outside"):
        relative_to_root(facts, tmp_path / "elsewhere")
