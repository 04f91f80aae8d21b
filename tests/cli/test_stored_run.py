# SPDX-License-Identifier: Apache-2.0
"""A run by its id, steps that are not there, and a card made from a folder: as a person gives them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from helpers.command_line import Call

from cclbench import ingestion

ID = "tiny-llama-ddp4-gloo-cpu"


@pytest.fixture
def stored(call: Call, repository: Path) -> str:
    """The id of a run in the store."""
    answer = call("ingest", repository / "workload_cards" / f"{ID}.yaml", "--json")
    run: str = json.loads(answer.out)["runs"][0]["run"]
    return run


def test_run_takes_an_id_as_metrics_does(call: Call, stored: str) -> None:
    by_id = json.loads(call("run", stored, "--json").out)
    assert by_id["results"] == json.loads(call("metrics", stored, "--json").out)["results"]
    again = call("run", stored, "--metric", "time.step")
    assert again.code == 0
    assert again.out.startswith(f"run      {stored}")


@pytest.mark.parametrize("option", [("--allow-truncated",), ("--step-annotation", "it")])
def test_a_run_in_the_store_is_not_read_in_another_way(call: Call, stored: str, option: tuple[str]) -> None:
    answer = call("run", stored, *option)
    assert (answer.code, answer.out) == (2, "")
    hint = "give its SOURCE to read it with other options"
    assert answer.err == f"error: run {stored} is already stored; {hint}\n"


def test_steps_that_are_not_there_are_told_with_those_that_are(call: Call, stored: str) -> None:
    answer = call("run", stored, "--steps", "20:22")
    assert (answer.code, answer.out) == (2, "")
    wanted = (
        f"error: {stored}: no step lies in 20:22; the steps are 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14\n"
    )
    assert answer.err == wanted
    few = json.loads(call("run", stored, "--steps", "7:9", "--metric", "time.step", "--json").out)["results"]
    assert {row["step"] for row in few} == {None, 7, 8}


def test_another_taxonomy_makes_another_run(
    call: Call, stored: str, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ingestion, "TAXONOMY", "another")
    answer = call("ingest", repository / "workload_cards" / f"{ID}.yaml", "--json")
    assert json.loads(answer.out)["runs"][0]["run"] != stored


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
