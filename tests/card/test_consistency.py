# SPDX-License-Identifier: Apache-2.0
"""Cards that contradict themselves, their loading, and what is inferred."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec import structs

from cclbench.card import CardFacts, CardTrace, infer_card, load_card, relative_to_root, validate_card
from cclbench.card.consistency import consistency_problems
from cclbench.card.read import parse_card
from cclbench.ground.errors import CheckFailed, InputError, UsageError
from cclbench.ground.yaml_file import parse

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
        ("torchtitan", 8, {"dp_shard": 2, "tp": 2},
         "dp_replicate × dp_shard × tp × pp × cp = 4, but hardware.count is 8"),
        ("torchtitan", 8, {"dp_shard": 8, "ep": 3}, "in torchtitan ep divides dp_shard × cp × tp = 8"),
        ("torchtitan", 8, {"dp_replicate": 4, "dp_shard": 2, "ep": 4}, "dp_shard × cp × tp = 2"),
        ("torchtitan", 8, {"dp_shard": 2, "cp": 4, "ep": 2}, "a multiple of cp = 4"),
        ("megatron-lm", 8, {"dp_replicate": 4, "pp": 2, "ep": 8}, "in Megatron-LM ep divides"),
        ("vllm", 4, {"tp": 4, "ep": 2}, "in vLLM ep is tp × dp_replicate × dp_shard = 4"),
        ("vllm", 4, {"tp": 2, "ep": 4}, "= 2, but hardware.count is 4"),
        ("vllm", 8, {"tp": 8, "cp": 3}, "= 24, but hardware.count is 8"),
        ("sglang", 8, {"tp": 4, "pp": 2, "ep": 8}, "in SGLang ep divides tp = 4"),
        *(("sglang", 4, {"tp": 8, "dp_replicate": 2, "cp": 2}, f"= {product}") for product in (32, 16, 8)),
        ("maxtext", 8, {"tp": 2, "ep": 2},
         "dp_replicate × dp_shard × tp × pp × cp × ep = 4, but hardware.count is 8"),
        ("my own", 6, {"dp_shard": 6, "ep": 4}, "ep divides hardware.count = 6"),
    ],
)  # fmt: skip
def test_degrees_of_no_run(framework: str, count: int, degrees: dict[str, int], expected: str) -> None:
    assert expected in "\n".join(parallel(framework, count, **degrees))


@pytest.mark.parametrize(("per_node", "expected"), [(8, []), (32, ["more than"]), (3, ["does not divide"])])
def test_a_node_holds_a_part_of_the_accelerators(per_node: int, expected: list[str]) -> None:
    messages = found(f"hardware: {{count: 16, per_node: {per_node}}}\n")
    assert len(messages) == len(expected)
    assert all(text in message for text, message in zip(expected, messages, strict=True))


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("vocabulary: 50257, hidden: 768, embedding_parameters: 39383808, tied_embeddings: true", []),
        ("vocabulary: 50257, hidden: 800, embedding_parameters: 39383808",
         ["vocabulary: × hidden = 40,205,600"]),
        ("vocabulary: 10, hidden: 10, parameters: 200, embedding_parameters: 100, tied_embeddings: false",
         []),
        ("vocabulary: 10, hidden: 10, parameters: 199, embedding_parameters: 100, tied_embeddings: false",
         ["tied_embeddings: is false, but embedding_parameters + vocabulary × hidden = 200"]),
        (
            "vocabulary: 10, hidden: 10, parameters: 900, active_parameters: 150, embedding_parameters: 100,"
            " tied_embeddings: false",
            ["tied_embeddings: is false, but embedding_parameters + vocabulary × hidden = 200"],
        ),
        ("vocabulary: 10, hidden: 10, parameters: 100, embedding_parameters: 100, tied_embeddings: true", []),
        *(("parameters: 10, active_parameters: 11, embedding_parameters: 12",
           ["active_parameters:", "embedding_parameters:"]),),
        ("attention: window, attention_window: 4096", []),
        ("attention: window", ["attention: is window, but"]),
        ("attention: causal, attention_window: 4096", ["attention_window: belongs to"]),
        ("attention_window: 4096", ["attention_window: belongs to"]),
    ],
)  # fmt: skip
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


def test_every_part_is_an_attribute(complete: Path) -> None:
    card = load_card(complete)
    assert card.id == "tiny"
    assert card.workload.phase == "training"
    assert card.workload.model.active_parameters == 400
    assert card.workload.batch.global_ == 8
    assert card.hardware.accelerator == "nvidia-h100-sxm"
    assert card.hardware.scale_up.bytes_per_s == 450e9
    assert card.hardware.scale_out.bytes_per_s == 50e9
    assert card.hardware.scale_out.nics == 8
    assert card.software.communication.version == "2.27"
    assert card.software.communication.environment == {"NCCL_DEBUG": "INFO"}
    assert (card.parallelism.dp_shard, card.parallelism.tp, card.parallelism.pp) == (4, 4, 1)
    assert card.evidence.traces[0].ranks == (0,)
    assert (card.root / card.evidence.traces[0].path).is_file()
    assert card.raw["workload"]["batch"] == {"global": 8, "sequence_length": 128}


BARE = "version: 2\nid: bare\ndescription: x\nworkload: {phase: inference}\n"


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """A card that states what it must."""
    card = tmp_path / "bare.yaml"
    card.write_text(BARE)
    return card


def test_what_is_left_out_is_none(bare: Path) -> None:
    card = load_card(bare)
    assert card.workload.batch.global_ is None
    assert card.workload.model.parameters is None
    assert card.hardware.accelerator is None
    assert card.hardware.scale_up.bytes_per_s is None
    assert card.software.framework.name is None
    assert card.parallelism.tp == 1
    assert card.evidence.traces == ()
    for part, name in ((card, "id"), (card.workload, "phase")):  # which does not change
        with pytest.raises(AttributeError):
            setattr(part, name, "serving")


@pytest.mark.parametrize("number", ["8e9", "8.0", "true", ".inf"])
def test_a_count_is_written_out(bare: Path, number: str) -> None:
    bare.write_text(BARE.replace("inference", f"training, steps: {number}"))
    with pytest.raises(CheckFailed, match=r"workload\.steps: .* must be a whole number, written out"):
        load_card(bare)


def test_an_incomplete_card_is_valid_and_says_what_is_missing(bare: Path) -> None:
    bare.write_text(f"{BARE}hardware:\n  count: 8\n")
    problems = {problem.path: problem for problem in validate_card(bare)}
    assert {problem.severity for problem in problems.values()} == {"warning"}
    assert problems["hardware.accelerator"].line == 5
    assert "compute.mfu" in problems["hardware.accelerator"].message
    assert {"parallelism", "workload.precision", "evidence.traces"} <= set(problems)
    bare.write_text(f"{BARE}hardware: {{count: 1}}\n")  # which needs no degrees
    paths = {problem.path for problem in validate_card(bare)}
    assert "workload.precision" in paths
    assert not paths & {"parallelism", "hardware.per_node", "software.communication.library"}


OLD = """\
version: 2
id: old
description: x
workload:
  phase: training
  model: {parameters: 1000, embedding_parameters: 100, layers: 2, heads: 4, head_dim: 8}
"""


@pytest.mark.parametrize(
    ("old", "new", "missing"),
    [
        ("", "", {"tied_embeddings"}),
        ("heads", "tied_embeddings: false, heads", set()),
        ("heads", "tied_embeddings: true, heads", {"vocabulary", "hidden"}),
        ("heads", "tied_embeddings: true, vocabulary: 25, hidden: 4, heads", set()),
        ("training", "inference", {"tied_embeddings", "vocabulary", "hidden"}),
        ("head_dim: 8", "query_key_dim: 12, value_dim: 8", {"tied_embeddings"}),
        ("head_dim: 8", "query_key_dim: 12", {"tied_embeddings", "head_dim"}),
    ],
)
def test_an_older_card_says_what_is_missing(tmp_path: Path, old: str, new: str, missing: set[str]) -> None:
    card = tmp_path / "old.yaml"
    card.write_text(OLD.replace(old, new, 1))
    assert load_card(card).workload.model.layers == 2
    of_model = [p for p in validate_card(card) if p.path.startswith("workload.model.")]
    assert {p.path.rpartition(".")[2] for p in of_model} == missing
    assert all("compute.mfu" in p.message and p.severity == "warning" for p in of_model)


def test_what_is_not_quite_a_card_is_told(complete: Path) -> None:
    """An id that is not the file's name is a warning, a repeated key an error; no YAML is not read."""
    other = complete.rename(complete.with_name("other.yaml"))
    (problem,) = validate_card(other)
    assert (problem.severity, problem.line, problem.path) == ("warning", 2, "id")
    other.write_text(other.read_text() + "id: tiny\n")
    with pytest.raises(CheckFailed, match="id: is there twice, first in line 2"):
        load_card(other)
    other.write_text("version: 2\n  id: x\n")
    for read in (load_card, validate_card):
        with pytest.raises(InputError, match=r"other\.yaml:2:5: is not valid YAML"):
            read(other)


@pytest.mark.parametrize("text", ["id: dgx\tb200\n", "  id: dgx\n\ufeff name: b200\n"])
def test_what_libyaml_would_take_is_refused_as_without_it(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    messages = []
    for with_libyaml in (True, False):
        monkeypatch.setattr(yaml, "__with_libyaml__", with_libyaml)
        with pytest.raises(InputError, match="is not valid YAML") as refused:
            parse(text, "card.yaml", "workload card")
        messages.append(str(refused.value))
    assert messages[0] == messages[1]


def test_libyaml_reads_what_pythons_parser_reads(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [path.read_text() for path in sorted((repository / "workload_cards").glob("*.yaml"))]
    with_libyaml = [parse(text, "card.yaml", "workload card") for text in texts]
    monkeypatch.setattr(yaml, "__with_libyaml__", False)
    assert [parse(text, "card.yaml", "workload card") for text in texts] == with_libyaml


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


def test_groups_that_leave_a_question_ask_it(tmp_path: Path) -> None:
    groups = (("mesh_dp", (0, 2)), ("mesh_tp", (0, 1)))
    lines = infer_card(replace(FULL, groups=groups), "mine").splitlines()
    assert "if it shards" in lines[lines.index("  dp_replicate: 2") - 1]
    assert "id: mine" in lines  # a given one wins
    card = tmp_path / "tiny.yaml"
    for alone in (("mesh_tp", (0, 1)), ("mesh_ep", (0, 1, 2, 3))):
        card.write_text(infer_card(replace(FULL, groups=(alone,))))
        assert ("error", "parallelism") not in {(p.severity, p.path) for p in validate_card(card)}
        assert f"; the traces state {len(alone[1])}\n" in card.read_text()
        assert (
            "\n# parallelism:  # to fill in: with the degrees that the traces state dp_" in card.read_text()
        )


def test_paths_are_made_relative_to_the_cards_root(tmp_path: Path) -> None:
    facts = CardFacts(traces=(structs.replace(ONE, path=str(tmp_path / "traces/tiny/rank0.json.gz")),))
    assert relative_to_root(facts, tmp_path).traces[0].path == "traces/tiny/rank0.json.gz"
    with pytest.raises(UsageError, match="is outside"):
        relative_to_root(facts, tmp_path / "elsewhere")
