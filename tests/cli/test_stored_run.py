# SPDX-License-Identifier: Apache-2.0
"""A run by its id, steps that are not there, and a card made from a folder: as a person gives them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from helpers.command_line import Call, Told

from cclbench import ingestion

ID = "tiny-llama-ddp4-gloo-cpu"


@pytest.fixture
def stored(told: Told, repository: Path) -> str:
    """The id of a run in the store."""
    return str(told("ingest", repository / "workload_cards" / f"{ID}.yaml")["runs"][0]["run"])


def test_run_takes_an_id_as_metrics_does(
    call: Call, told: Told, stored: str, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert told("run", stored)["results"] == told("metrics", stored)["results"]
    again = call("run", stored, "--metric", "time.step")
    assert again.code == 0
    assert again.out.startswith(f"run      {stored}")
    monkeypatch.setattr(ingestion, "TAXONOMY", "another")
    other = told("ingest", repository / "workload_cards" / f"{ID}.yaml")
    assert other["runs"][0]["run"] != stored


READ = "run {} is already stored; give its SOURCE to read it with other options"
STEPS = "{}: no step lies in 20:22; the steps are 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14"


@pytest.mark.parametrize(
    ("option", "says"),
    [(("--allow-truncated",), READ), (("--step-annotation", "it"), READ), (("--steps", "20:22"), STEPS)],
)
def test_a_run_in_the_store_is_not_read_in_another_way(
    call: Call, stored: str, option: tuple[str, ...], says: str
) -> None:
    assert call("run", stored, *option) == (2, "", f"error: {says.format(stored)}\n")


def test_a_card_made_from_a_folder_keeps_its_execution_traces(
    call: Call, test_data: Path, tmp_path: Path
) -> None:
    """DLRM's kernels say neither bytes nor group: without the execution traces nothing says who took part."""
    shutil.copytree(test_data / "kineto" / "dlrm_8xv100", tmp_path / "traces" / "dlrm")
    (tmp_path / "workload_cards").mkdir()
    card = tmp_path / "workload_cards" / "dlrm.yaml"
    made = call("card", "new", tmp_path / "traces" / "dlrm", "-o", card)
    assert made.code == 0, made.err
    text = card.read_text()
    assert text.count("dlrm_eg_") == 8
    card.write_text(text.replace("workload:\n", "workload:\n  phase: training\n", 1))
    found = json.loads(call("run", card, "--no-inference", "--metric", "comm.volume", "--json").out)
    assert found["run"]["matching"]["matched"] == 64
