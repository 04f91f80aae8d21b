# SPDX-License-Identifier: Apache-2.0
"""Whether two jobs do equal work, as their traces tell: proved, refuted, or unknown."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from helpers.compared_subjects import card, row, steps_of, subject

from cclbench.comparison.fingerprint import Fingerprint, evidence_contradiction, work_equality
from cclbench.comparison.work import comparison_warnings
from cclbench.record.card_agreement import card_contradiction
from cclbench.record.results import Results

CALLS = {"aten::mm": 96.0, "aten::_flash_attention": 8.0}
ALL = {**CALLS, "aten::embedding": 2.0, "aten::_fused_adamw_": 1.0}
BASE = Fingerprint(4, 1e12, CALLS, ALL, {"all_reduce": 4e8})


def scaled(factor: float, **changes: Any) -> Fingerprint:
    calls = {name: factor * count for name, count in CALLS.items()}
    whole = {name: count if "adamw" in name else factor * count for name, count in ALL.items()}
    return replace(BASE, flops=factor * 1e12, calls=calls, all_calls=whole, **changes)


def test_equal_flops_are_equal_work_however_it_is_split() -> None:
    """Sharded over twice as many ranks, with other collectives, and half the calls of each rank."""
    other = Fingerprint(8, 0.5e12, {"aten::mm": 48.0}, {"aten::mm": 48.0}, {"all_gather": 1e9})
    assert work_equality(BASE, other).status == "proved"
    assert work_equality(BASE, other).reason == "4.00 TFLOP a step each"
    # twice the micro batches are refuted with both counts
    found = work_equality(BASE, scaled(2.0))
    assert found.status == "refuted"
    assert found.reason == "4 against 2 calls of aten::embedding, 8.00 TFLOP against 4.00 TFLOP a step"
    # as many calls of half the size are told by their flops
    assert work_equality(BASE, replace(scaled(2.0), flops=1e12)).status == "proved"


def test_between_equal_and_other_nothing_is_said() -> None:
    found = work_equality(BASE, replace(BASE, flops=1.03e12))
    assert found.status == "unknown"
    assert found.reason == "4.12 TFLOP against 4.00 TFLOP a step, which may differ with the data of a step"
    # recomputation is no other work
    found = work_equality(BASE, replace(BASE, flops=1.33e12, recomputes=True))
    assert found.status == "unknown"
    assert "only one of them recomputes its forward pass" in found.reason
    # one operator that is fused is no multiple
    fused = replace(BASE, flops=None, calls={**CALLS, "aten::mm": 48.0}, bytes={})
    assert work_equality(replace(BASE, flops=None), fused).status == "unknown"


@pytest.mark.parametrize(
    ("factor", "status"), [(2.0, "refuted"), (0.5, "refuted"), (1.0, "unknown"), (1.4, "unknown")]
)
def test_without_shapes_a_multiple_tells(factor: float, status: str) -> None:
    one, other = replace(BASE, flops=None), replace(scaled(factor), flops=None)
    assert work_equality(one, other).status == status
    assert work_equality(one, replace(other, ranks=8)).status == "unknown"


def test_collectives_alone_tell_a_multiple() -> None:
    one = Fingerprint(4, None, bytes={"all_reduce": 4e8, "all_gather": 1e8})
    twice = Fingerprint(4, None, bytes={"all_reduce": 8e8, "all_gather": 2e8})
    assert work_equality(one, twice).reason == "200,000,000 against 100,000,000 bytes of all_gather a step"
    assert work_equality(one, one).status == "unknown"
    # a client asks and gets the same
    served = {"max_concurrency": 16, "completed": 2000.0, "input_tokens": 1e6, "output_tokens": 2e5}
    one = Fingerprint(0, None, served=served)
    assert work_equality(one, one).status == "proved"
    found = work_equality(one, Fingerprint(0, None, served={**served, "max_concurrency": 32}))
    assert (found.status, found.reason) == ("refuted", "max concurrency 32 against 16")


def test_cards_and_traces_that_contradict_one_another_are_told() -> None:
    a, b = (subject(letter, [row("time.step", 1.0)], card()) for letter in "AB")
    (told, *_) = comparison_warnings([a, b], [work_equality(BASE, scaled(2.0))])
    assert told.startswith("the cards of A and B state equal work, but their traces show different work: 4")
    half = subject("B", [row("time.step", 1.0)], card(workload__batch__global=8))
    said = evidence_contradiction(a, half, work_equality(BASE, BASE), ["global batch 8 against 16"])
    assert "their traces show equal work (4.00 TFLOP a step each)" in said
    assert evidence_contradiction(a, b, work_equality(BASE, BASE), []) is None
    # proved work needs no card
    a, b = subject("A", steps_of("time.step", [1.0] * 9)), subject("B", steps_of("time.step", [2.0] * 9))
    warnings = comparison_warnings([a, b], [work_equality(BASE, BASE)])
    assert not any("nothing says" in told for told in warnings)


def shares(share: float, again: float = 0.0, without: float = 0.02) -> Results:
    metric = "compute.model_flops_share"
    stats = {None: share, "recomputed": again, "without_model": without}
    found = subject("A", [row(metric, value, "1", stat=stat) for stat, value in stats.items()])
    return found.results


def test_a_card_that_needs_twice_the_flops_that_ran_contradicts_them() -> None:
    said = "need 2.00× the FLOPs of the products and attention that ran"
    assert said in card_contradiction(shares(2.0))
    assert card_contradiction(shares(0.5)) is not None
    assert card_contradiction(shares(1.05)) is None
    assert card_contradiction(shares(0.75, again=0.25)) is None  # activation checkpointing
    assert card_contradiction(shares(2.0, without=0.3)) is None
    assert card_contradiction(Results.from_rows([])) is None
