# SPDX-License-Identifier: Apache-2.0
"""A card begun from what a job says of itself."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from cclbench.capture.begun_card import begin_card, check_phase, environment_variables, on_device
from cclbench.card import CardFacts, load_card, validate_card
from cclbench.ground.errors import UsageError

FACTS = CardFacts(
    (),
    world_size=8,
    per_node=4,
    framework="pytorch",
    framework_version="2.13.0",
    communication_library="nccl",
    communication_version="2.27.5",
    groups=(("mesh_dp_shard", (0, 2, 4, 6)), ("mesh_tp", (0, 1))),
    phase="training",
    model={"name": "Llama", "parameters": 8_030_261_248},
    batch={"global": 32, "sequence_length": 8192},
    environment={"NCCL_ALGO": "Ring"},
)


def test_the_card_says_what_the_job_says(tmp_path: Path) -> None:
    folder = tmp_path / "my job"
    folder.mkdir()
    begin_card(on_device(FACTS, "NVIDIA H100 80GB HBM3", 85_045_870_592), folder)
    (path,) = folder.iterdir()
    assert path.name == "my-job.yaml"
    assert [problem for problem in validate_card(path) if problem.severity == "error"] == []
    card = load_card(path)
    assert (card.id, card.workload.phase, card.workload.batch.global_) == ("my-job", "training", 32)
    hardware = card.hardware
    assert (hardware.accelerator, hardware.count, hardware.per_node) == ("nvidia-h100-sxm", 8, 4)
    assert (card.parallelism.dp_shard, card.parallelism.tp, card.parallelism.pp) == (4, 2, 1)
    assert card.software.communication.environment == {"NCCL_ALGO": "Ring"}
    assert "parallelism.pp" not in card.raw
    missing = {problem.path for problem in validate_card(path)}
    assert {"workload.precision", "workload.model.layers", "evidence.traces"} <= missing


def test_a_device_that_the_catalog_does_not_know_is_a_gap_with_its_name(tmp_path: Path) -> None:
    assert on_device(FACTS, "cpu").accelerator == "generic-cpu"
    begin_card(on_device(FACTS, "Abacus 3000"), tmp_path)
    (path,) = tmp_path.iterdir()
    assert load_card(path).hardware.accelerator is None
    assert 'the trace says "Abacus 3000"' in path.read_text()
    path.write_text("id: mine\n")  # a card that is there stays
    begin_card(FACTS, tmp_path)
    assert [(one, one.read_text()) for one in tmp_path.iterdir()] == [(path, "id: mine\n")]


def test_nothing_is_guessed_of_what_the_job_does(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="pass phase='training' or 'inference' or 'serving'"):
        begin_card(replace(FACTS, phase=None), tmp_path)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(UsageError, match="one of training, inference, serving"):
        check_phase("train")


def test_variables_are_those_of_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NCCL_ALGO", "Tree")
    monkeypatch.setenv("NCCL_PROTO", "")
    monkeypatch.setenv("MY_NCCL_ALGO", "Ring")
    found = environment_variables("NCCL_", "TORCH_NCCL_")
    assert found["NCCL_ALGO"] == "Tree"
    assert not {"NCCL_PROTO", "MY_NCCL_ALGO"} & set(found)
