# SPDX-License-Identifier: Apache-2.0
"""Facts for a card: what a job's log beside its trace states, too."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.job_logs import TITAN, TITAN_HEAD
from helpers.launch_trace import write_launches

from cclbench.card import CardFacts
from cclbench.card_facts import card_facts


def facts(folder: Path, *logs: str) -> CardFacts:
    """Facts of a trace with those logs beside it."""
    job = folder / "job"
    job.mkdir()
    write_launches(job / "rank0.json", [[(0.0, 10.0)], [(0.0, 10.0)]])
    for number, text in enumerate(logs):
        (job / f"train{number}.log").write_text(text)
    return card_facts(job, store=folder / "store")


@pytest.mark.parametrize(("source", "phase"), [("llama-train-h100", "training"), ("llama-decode-h100", None)])
def test_a_backward_pass_is_training(source: str, phase: str | None, tmp_path: Path) -> None:
    traces = Path(__file__).parents[1] / "traces" / source
    assert card_facts(traces, store=tmp_path).phase == phase


def log(*head: str) -> str:
    return "\n".join((*head, *(TITAN.format(second=n, step=n) for n in range(1, 5)))) + "\n"


def test_a_log_states_batch_and_layout(tmp_path: Path) -> None:
    found = facts(tmp_path, log(*TITAN_HEAD))
    assert found.batch == {"global": 16, "sequence_length": 512}
    assert found.degrees == {"dp_shard": 8, "tp": 2}


@pytest.mark.parametrize(
    "other", [TITAN_HEAD[1].replace("global batch size 16", "global batch size 32"), "nothing"]
)
def test_logs_that_contradict_or_say_less_state_nothing(tmp_path: Path, other: str) -> None:
    first = log(TITAN_HEAD[1]) if other == "nothing" else log(*TITAN_HEAD)
    found = facts(tmp_path, first, log(other))
    assert found.batch.get("global") == (16 if other == "nothing" else None)
    assert found.degrees == ({} if other == "nothing" else {"dp_shard": 8, "tp": 2})
