# SPDX-License-Identifier: Apache-2.0
"""What a card lacks, and what an answer may be."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cclbench.card import CardFacts
from cclbench.card.read import parse_card
from cclbench.contribute import completion
from cclbench.ground.errors import CheckFailed

FACTS = CardFacts(
    traces=(),
    world_size=8,
    accelerator="nvidia-h100-sxm",
    groups=(("mesh_tp", (0, 1)), ("mesh_dp_shard", (0, 2, 4, 6))),
    steps=3,
)


def card(text: str) -> dict[str, Any]:
    return completion.draft_card(parse_card(text, "workload_cards/my-job.yaml"), Path())


def gap(path: str, **other: Any) -> completion.CardGap:
    return completion.CardGap(path, "title", "example", "why", True, **other)


def test_a_draft_has_an_id_and_a_version_and_no_traces() -> None:
    value = card("workload: {phase: training, precision: }\nevidence: {traces: [{path: /abs}], launch: x}\n")
    assert value == {
        "version": 2,
        "id": "my-job",
        "workload": {"phase": "training"},
        "evidence": {"launch": "x"},
    }


def test_traces_do_not_overrule_the_card() -> None:
    told = completion.learn_from_traces(card("hardware: {count: 4}\nworkload: {phase: training}"), FACTS)
    assert told.card["hardware"] == {"count": 4, "accelerator": "nvidia-h100-sxm"}
    assert told.card["parallelism"] == {"tp": 2, "dp_shard": 4}
    assert told.contradictions == ("hardware.count: the card says 4, the traces 8",)
    assert "workload.steps" not in str(told.inferred)  # the traces' steps are not the run's


def test_degrees_are_learnt_only_where_there_are_none() -> None:
    told = completion.learn_from_traces(card("parallelism: {dp_shard: 8}"), FACTS)
    assert told.card["parallelism"] == {"dp_shard": 8}
    assert told.contradictions == ("parallelism.dp_shard: the card says 8, the traces 4",)


def test_degrees_that_do_not_account_for_every_rank_are_not_learnt() -> None:
    some = replace(FACTS, groups=(("mesh_tp", (0, 1)),))
    assert "parallelism" not in completion.learn_from_traces(card("hardware: {count: 8}"), some).card


def test_gaps_are_fields_that_every_card_has() -> None:
    value = {"version": 2, "id": "x", "evidence": {"traces": [{"path": "x"}]}, "hardware": {"count": 8}}
    found = {g.path: g for g in completion.card_gaps(value, "x.yaml", Path())}
    assert list(found) == ["description", "workload.phase"]
    assert found["workload.phase"].required
    assert found["workload.phase"].choices == ("training", "inference", "serving")
    assert found["workload.phase"].why == "every card has it"


def test_a_draft_has_the_work_of_its_standard() -> None:
    value = card("workload: {standard: ccl-bench-llama-3.1-8b-training, batch: {global: 4}}")
    assert value["workload"] == {
        "standard": "ccl-bench-llama-3.1-8b-training",
        "phase": "training",
        "model": {"name": "Llama-3.1-8B"},
        "precision": "bf16",
        "batch": {"global": 4, "sequence_length": 512},
    }
    with pytest.raises(CheckFailed, match=r"workload.batch.global: is 8, but 4 by the standard workload"):
        card("workload: {standard: ccl-bench-llama-3.1-8b-training, batch: {global: 8}}")


@pytest.mark.parametrize(
    ("path", "answer", "value"),
    [
        ("workload.batch.global", "16", 16),
        ("workload.model.moe", "true", True),
        ("workload.model.moe", "No", False),
        ("software.framework.version", "2.10", "2.10"),
        ("software.communication.library", "nccl", "nccl"),
        ("hardware.scale_up.bandwidth", "450 GB/s", "450 GB/s"),
        ("evidence.traces.licence", "CC-BY-4.0", "CC-BY-4.0"),
        ("description", "yes: really # all", "yes: really # all"),
        ("parallelism", "dp_shard=2, tp=4", {"dp_shard": 2, "tp": 4}),
    ],
)
def test_an_answer_has_the_fields_type(path: str, answer: str, value: object) -> None:
    assert gap(path).parse_answer(answer) == value


@pytest.mark.parametrize(
    ("path", "answer"),
    [
        ("workload.batch.global", "many"),
        ("workload.batch.global", "1.5"),
        ("workload.batch.global", "-1"),
        ("workload.batch.global", "9" * 30),
        ("hardware.scale_up.bandwidth", "fast"),
        ("workload.model.moe", "maybe"),
        ("parallelism", "tp"),
        ("parallelism", "tp=two"),
        ("parallelism", "tensor=2"),
    ],
)
def test_an_answer_that_does_not_fit_says_why(path: str, answer: str) -> None:
    with pytest.raises(CheckFailed, match=r"is |unknown key"):
        gap(path).parse_answer(answer)


def test_a_choice_is_one_of_those() -> None:
    choice = gap("workload.phase", choices=("training", "serving"))
    assert choice.parse_answer("serving") == "serving"
    with pytest.raises(CheckFailed, match="known: training, serving"):
        choice.parse_answer("lunch")


@pytest.mark.parametrize(
    ("allow_gaps", "required", "optional", "stays"),
    [
        (False, True, False, False),
        (True, True, False, False),
        (False, False, False, False),
        (True, False, False, True),
        (False, False, True, True),
    ],
)
def test_what_may_stay_open(allow_gaps: bool, required: bool, optional: bool, stays: bool) -> None:
    open_gap = replace(gap("description"), required=required, optional=optional)
    told: list[bool] = []
    answer = completion.ask_for_gap(
        open_gap, lambda g: told.append(g.required or not g.optional), {}, allow_gaps=allow_gaps
    )
    assert (answer, told) == (None, [not stays])
    if stays:
        completion.refuse_open_gaps([open_gap], allow_gaps=allow_gaps)
    else:
        with pytest.raises(CheckFailed, match="the card lacks fields"):
            completion.refuse_open_gaps([open_gap], allow_gaps=allow_gaps)
