# SPDX-License-Identifier: Apache-2.0
"""Results of MLPerf are compared within a benchmark, round, scenario and the closed division."""

from __future__ import annotations

from typing import Any

import pytest
from helpers.compared_subjects import row, subject

from cclbench.comparison.division_rules import rule_refusal
from cclbench.comparison.fingerprint import UNKNOWN
from cclbench.comparison.scaling import scaling_of
from cclbench.comparison.subject import ComparisonSubject
from cclbench.comparison.verdict import judge_subject
from cclbench.comparison.work import comparison_warnings

STATED = {"suite": "MLPerf Training", "benchmark": "llm", "round": "v5.1", "division": "closed"}
STATED |= {"phase": "training", "model_family": "llm", "batch_size": 16, "seq_len": 8}
STATED |= {"hardware_model": "H100", "total_count": 8}


def result(letter: str, seconds: float = 100, source: str = "mlperf", **changes: Any) -> ComparisonSubject:
    """A published result with its time to train, a step of 1 s and 16 tokens/s and device."""
    metadata = {key: value for key, value in {**STATED, **changes}.items() if value is not None}
    rows = [
        row("log.time_to_train", seconds, provenance="published"),
        row("time.step", 1.0, provenance="published"),
        row("throughput.tokens_per_device", 16.0, "1/s", provenance="published"),
    ]
    return subject(letter, rows, published={"source": source, "metadata": metadata})


def test_closed_results_are_compared_by_the_time_to_train() -> None:
    """Whatever the batch: the task is the same."""
    found = judge_subject(result("A"), result("B", 50, batch_size=64))
    assert (found.measure, found.ratio) == ("log.time_to_train", 0.5)
    assert "B's time to train is 2.00× shorter than A's" in found.words
    assert "By MLPerf's rules for the closed division their work as a whole is equal." in found.words
    assert "MLPerf's score is the mean of several" in found.words
    assert "because their work differs" not in found.words


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"benchmark": "bert"}, "results of one benchmark are compared: bert against llm"),
        ({"round": "v5.0"}, "results of one round are compared: v5.0 against v5.1"),
        ({"suite": "MLPerf Inference"}, "results of one suite are compared"),
        ({"division": "open"}, "B is in the open division: its model, data and target may be other ones"),
        ({"division": None}, "B is of an unknown division"),
    ],
)
def test_others_are_not_comparable_and_say_why(changes: dict[str, Any], says: str) -> None:
    found = judge_subject(result("A"), result("B", **changes))
    assert found.outcome == "not comparable"
    assert says in found.words


def test_what_rules_apply_to() -> None:
    offline, server = result("A", scenario="Offline"), result("B", scenario="Server")
    assert "results of one scenario" in (rule_refusal(offline, server) or "")
    assert rule_refusal(offline, result("B", scenario="Offline")) is None
    # an unknown round is a warning and steps are compared
    base, other = result("A", round=None), result("B", 50)
    assert judge_subject(base, other).measure == "time.step"
    warnings = comparison_warnings([base, other])
    assert "equal work by MLPerf's rules is not certain: unknown the round of A" in warnings
    # other publishers have no division
    assert rule_refusal(result("A", source="x"), result("B", division="open")) is None
    assert judge_subject(result("A", source="x"), result("B")).measure == "time.step"
    # other accelerators are no scaling
    base, other = result("A"), result("B", total_count=16)
    assert scaling_of(base, other, UNKNOWN, ()) is not None
    assert scaling_of(base, result("B", total_count=16, hardware_model="B200"), UNKNOWN, ()) is None


def inference(letter: str, metric: str, value: float, **changes: Any) -> ComparisonSubject:
    """A published result of Inference with one rate."""
    metadata = {**STATED, "suite": "MLPerf Inference", "phase": "inference", "scenario": "Server", **changes}
    for key in ("batch_size", "seq_len"):
        del metadata[key]
    rows = [row(metric, value, "1/s", provenance="published")]
    return subject(letter, rows, published={"source": "mlperf", "metadata": metadata})


@pytest.mark.parametrize("metric", ["serving.output_throughput", "serving.request_throughput"])
def test_closed_results_of_inference_are_compared_by_tokens_or_requests(metric: str) -> None:
    base, other = inference("A", metric, 10.0), inference("B", metric, 20.0)
    found = judge_subject(base, other)
    assert (found.measure, found.ratio, found.outcome) == (metric, 2.0, "faster")
    assert "By MLPerf's rules for the closed division their work as a whole is equal." in found.words
    assert not any("equal work" in warning for warning in comparison_warnings([base, other]))
