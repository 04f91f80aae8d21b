# SPDX-License-Identifier: Apache-2.0
"""Groups of work in a comparison, and rules that divide it."""

from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from helpers.compared_subjects import row, subject
from hypothesis import given
from hypothesis import strategies as st

from cclbench.api import run
from cclbench.comparison.build import run_subject
from cclbench.comparison.division_rules import rule_refusal
from cclbench.comparison.fingerprint import UNKNOWN, Fingerprint, work_fingerprint
from cclbench.comparison.scaling import scaling_of
from cclbench.comparison.subject import ComparisonSubject
from cclbench.comparison.verdict import judge_subject
from cclbench.comparison.work import comparison_warnings
from cclbench.comparison.work_groups import WorkGroup, ranks_of, work_groups
from cclbench.record.rows import Row

Run = tuple[ComparisonSubject, Fingerprint]
SERVED = {"completed": 10, "input_tokens": 100, "output_tokens": 50}


def traced(flops: float | None, batch: int | None = None, window: str = "steps", **served: Any) -> Run:
    """A traced run of one rank, with the FLOPs of a step, and its card's global batch."""
    card = {"workload": {"phase": "training", **({"batch": {"global": batch}} if batch else {})}}
    return subject("A", [row("time.step", 1.0, window=window)], card=card), Fingerprint(
        1, flops, served=served
    )


def closed(benchmark: str, division: str = "closed") -> Run:
    """A result of MLPerf."""
    metadata = {"benchmark": benchmark, "round": "v5.1", "division": division, "phase": "training"}
    return subject("A", [], published={"source": "mlperf", "metadata": metadata}), Fingerprint(0, None)


def figure(value: float, provenance: str = "measured", status: str = "ok", better: str = "higher") -> Row:
    keys = {"metric": "throughput.tokens_per_device", "unit": "1/s", "window": "steps", "version": 1}
    return Row(value=value, status=status, provenance=provenance, better=better, **keys)  # type: ignore[arg-type]


def members(*runs: Run) -> list[tuple[int, ...]]:
    return [group.members for group in work_groups(runs)]


def test_equal_flops_are_a_group_that_the_cards_may_contradict() -> None:
    assert members(traced(1e12), traced(1.004e12), traced(2e12)) == [(0, 1)]
    assert members(traced(1e12, batch=8), traced(1e12, batch=16), traced(1e12)) == [(0, 2)]
    assert members(traced(None), traced(None)) == []  # nothing proves that unknown work is equal
    assert members(traced(1e12), traced(1e12, window="trace")) == []
    # a group holds no pair that differs beyond the tolerance
    # 0.4 % apart each: the first and the third are not equal, though both equal the second.
    assert members(traced(1.000e12), traced(1.004e12), traced(1.008e12)) == [(0, 1)]
    # published figures of others prove nothing
    other = subject("A", [], published={"source": "ccl-bench", "metadata": {"model_family": "llm"}})
    assert members((other, Fingerprint(0, None)), (other, Fingerprint(0, None))) == []


def test_servers_and_divisions_have_their_own_rules() -> None:
    assert members(
        traced(None, **SERVED), traced(None, **SERVED), traced(None, **{**SERVED, "completed": 9})
    ) == [(0, 1)]
    groups = work_groups([closed("llm"), closed("llm"), closed("bert"), closed("llm", "open"), traced(1e12)])
    assert [group.members for group in groups] == [(0, 1)]
    assert "MLPerf" in groups[0].basis


def test_two_benchmarks_in_one_file_are_not_the_work_of_one(tmp_path: Path) -> None:
    client = {"model_id": "m", "num_prompts": 10, "completed": 10, "duration": 5.0, "mean_ttft_ms": 20.0}
    client |= {"total_input_tokens": 100, "total_output_tokens": 500, "output_throughput": 100.0}
    runs = []
    for name, times in (("one.jsonl", 1), ("other.jsonl", 1), ("twice.jsonl", 2)):
        (tmp_path / name).write_text(f"{json.dumps(client)}\n" * times)
        read = run_subject("A", run(tmp_path / name, store=tmp_path / "runs"))
        runs.append((read, work_fingerprint(read, None)))
    assert members(*runs) == [(0, 1)]


def test_ranks_by_hand() -> None:
    group = WorkGroup((0, 1, 2, 5), "equal")
    figures = {0: figure(10.0), 1: figure(30.0), 2: figure(10.0), 3: figure(99.0)}
    assert ranks_of([group], figures) == {0: 2, 1: 1, 2: 2}
    lower = {number: figure(one.number, better="lower") for number, one in figures.items()}
    assert ranks_of([group], lower) == {0: 1, 1: 3, 2: 1}
    assert ranks_of([group], {0: figure(10.0)}) == {}  # first of one says nothing
    assert ranks_of([group], {0: figure(10.0), 1: figure(30.0, status="partial")}) == {}


@pytest.mark.parametrize("kind", ["published", "modelled"])
def test_published_and_modelled_figures_are_ranked_if_asked_for(kind: str) -> None:
    figures = {0: figure(10.0), 1: figure(30.0, kind), 2: figure(20.0, "derived")}
    group = WorkGroup((0, 1, 2), "equal")
    assert ranks_of([group], figures) == {0: 2, 2: 1}
    assert ranks_of([group], figures, **{kind: True}) == {0: 3, 1: 1, 2: 2}


FLOPS = st.sampled_from([None, 1e12, 1.003e12, 1.006e12, 2e12])
TRACED = st.tuples(st.just("traced"), FLOPS, st.sampled_from([None, 8, 16]))
CLOSED = st.tuples(st.just("closed"), st.sampled_from(["llm", "bert"]), st.sampled_from(["closed", "open"]))
PROVENANCES = st.sampled_from(["measured", "derived", "modelled", "published"])
FIGURES = st.tuples(st.floats(1, 100), PROVENANCES, st.sampled_from(["ok", "ok", "partial"]))
MADE: dict[Any, Run] = {}


def made(kind: str, *how: Any) -> Run:
    return MADE.setdefault((kind, *how), traced(*how) if kind == "traced" else closed(*how))


def is_equal(one: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    """By the definition, from what the runs were made of."""
    if one[0] != other[0]:
        return False
    if one[0] == "closed":
        return one[1] == other[1] and one[2] == other[2] == "closed"
    flops, batches = (one[1], other[1]), {one[2], other[2]} - {None}
    return None not in flops and abs(flops[0] - flops[1]) <= 0.005 * max(flops) and len(batches) < 2


@given(st.lists(st.tuples(TRACED | CLOSED, FIGURES), max_size=9), st.booleans(), st.booleans())
def test_a_ranking_never_mixes_unequal_work(
    drawn: list[tuple[tuple[Any, ...], tuple[float, str, str]]], published: bool, modelled: bool
) -> None:
    groups = work_groups([made(*how) for how, _ in drawn])
    figures = {number: figure(*how) for number, (_, how) in enumerate(drawn)}
    ranks = ranks_of(groups, figures, published=published, modelled=modelled)
    grouped = [member for group in groups for member in group.members]
    assert len({*grouped}) == len(grouped)
    for group in groups:
        for a, b in combinations(group.members, 2):
            assert is_equal(drawn[a][0], drawn[b][0])
            if a in ranks and b in ranks:
                assert (ranks[a] < ranks[b]) == (figures[a].number > figures[b].number)
    allowed = {"measured", "derived", "published" if published else "ok", "modelled" if modelled else "ok"}
    for number in ranks:
        assert figures[number].provenance in allowed
        assert figures[number].status == "ok"
        assert any(number in group.members for group in groups)


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
