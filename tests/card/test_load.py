# SPDX-License-Identifier: Apache-2.0
"""The card as an object, and what a card that is valid still lacks."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from cclbench.card import load_card, validate_card
from cclbench.ground.errors import CheckFailed, InputError
from cclbench.ground.yaml_file import parse


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
def test_an_older_card_loads_and_says_what_is_missing(
    tmp_path: Path, old: str, new: str, missing: set[str]
) -> None:
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
