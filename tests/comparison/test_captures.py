# SPDX-License-Identifier: Apache-2.0
"""Captures, scaling and logs of unequal length in a comparison."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from helpers.compared_subjects import STEADY, card, parts_of, row, steps_of, subject
from helpers.two_ranks import events, on_rank, write

import cclbench
from cclbench.comparison.attribution import change_of_step, part_changes
from cclbench.comparison.build import compare, run_subject
from cclbench.comparison.captures import mean_results
from cclbench.comparison.comparison import Comparison
from cclbench.comparison.fingerprint import UNKNOWN, Equality
from cclbench.comparison.interval import compare_captures
from cclbench.comparison.lines import metric_lines
from cclbench.comparison.repeats import repeated_captures
from cclbench.comparison.scaling import METRIC, scaling_of, scaling_words, with_scaling
from cclbench.comparison.subject import ComparisonSubject
from cclbench.comparison.verdict import captures_of, judge_subject, ratio_of
from cclbench.comparison.work import comparison_warnings
from cclbench.present.charts.straggler import rank_lateness
from cclbench.record.rows import Row
from cclbench.record.store import Store


def job(letter: str, *captures: list[dict[str, Any]], **facts: Any) -> ComparisonSubject:
    each = tuple(subject(f"{letter}{n}", rows, **facts) for n, rows in enumerate(captures, 1))
    return ComparisonSubject(
        letter, each[0].stored, mean_results([one.results for one in each]), each[0].card, each
    )


def test_each_capture_has_the_same_weight() -> None:
    """Two steps of 1 s and a capture of six of 4 s: 2.5 s, not 3.25."""
    found = job("A", steps_of("time.step", [1.0, 1.0]), steps_of("time.step", [4.0] * 6))
    assert found.results.value("time.step") == 2.5
    assert found.step_count == 8
    assert [len(one) for one in captures_of(found, "time.step")] == [2, 6]
    # the printed ratio is that of the interval
    a = job("A", steps_of("time.step", [1.0, 1.1, 1.2]), steps_of("time.step", [1.3, 1.2, 1.1]))
    b = job("B", steps_of("time.step", [1.6, 1.5, 1.9]), steps_of("time.step", [1.7, 1.7, 1.6, 1.5]))
    found = judge_subject(a, b)
    assert found.ratio == pytest.approx(b.results.value("time.step") / a.results.value("time.step"))
    assert found.low < found.ratio < found.high
    assert (found.spread.basis_words, found.spread.repeated) == ("captures", 2)


def test_a_rate_is_of_the_mean_step_and_its_interval_too() -> None:
    """Steps of 1 and 3 s of 6 tokens: 3 tokens a second, as 6 / 2 s, and not 4, the mean of their rates."""
    rates = [*steps_of("throughput.tokens", [6.0, 2.0], "1/s")]
    rates[0] |= {"value": 3.0}
    one = subject("A", rates)
    (figures,) = captures_of(one, "throughput.tokens")
    assert figures.mean() == pytest.approx(3.0)
    assert ((figures / 3 - 1) == pytest.approx([0.5, -0.5])) is True
    assert ratio_of(one, one, "throughput.tokens").ratio == 1


def test_what_a_capture_lacks_is_no_mean_of_the_others() -> None:
    known, lacking = [row("compute.mfu", 0.4, "1")], [row("compute.mfu", None, "1")]
    found = job("A", known, lacking).results.row("compute.mfu")
    assert (found.value, found.status) == (None, "not_applicable")
    assert found.reason == "capture 2 of 2: nobody knows"
    absent = job("A", known, [row("time.step", 1.0)]).results.row("compute.mfu")
    assert absent.reason == "capture 2 of 2: the run has no such figure"
    # a partial capture makes the mean partial
    partial = row("comm.volume", 4.0, "B", status="partial", coverage=0.5, reason="half of it")
    found = job("A", [row("comm.volume", 2.0, "B")], [partial]).results.row("comm.volume")
    assert (found.value, found.status, found.coverage) == (3.0, "partial", 0.5)
    # captures that tell other parts have none
    found = job("A", parts_of(compute=1.0, idle_host=1.0), parts_of(compute=2.0))
    assert found.results.value("time.step") == 2.0
    assert found.results.row("time.step_parts") is None


def test_parts_sum_to_the_mean_step_where_one_capture_names_what_another_lacks() -> None:
    a = job("A", parts_of(compute=1.0, idle_host=1.0), parts_of(compute=2.0, idle_host=0.0))
    more = parts_of(compute=3.0, compute__gemm=3.0, idle_host=1.0)
    b = job("B", more, parts_of(compute=3.0, idle_host=0.0))
    change_ns = change_of_step(a, b)
    found = part_changes(a, b, change_ns)
    assert sum(one.change_ns for one in found) == change_ns == 1_500_000_000
    compute = next(one for one in found if one.part == "compute")
    assert (compute.before_s, compute.after_s) == (1.5, 3.0)
    assert {mover.name: mover.after_s for mover in compute.movers} == {"gemm": 1.5}


def test_captures_of_several_jobs_are_warned_of() -> None:
    one, other = (
        subject(name, [row("time.step", 1.0)], world=world) for name, world in (("A1", 4), ("A2", 8))
    )
    both = ComparisonSubject("A", one.stored, mean_results([one.results, other.results]), None, (one, other))
    told = comparison_warnings([both, subject("B", [row("time.step", 1.0)])])
    assert "the captures of A differ: number of devices: A1 4, A2 8" in told
    # the same steps twice are no second capture
    steps = [row("time.step", 1.0), *(row("time.step", 1.0 + n / 9, step=n) for n in range(3))]
    (told,) = (one for one in comparison_warnings([job("A", steps, steps), one]) if "equal steps" in one)
    assert told.startswith("the captures run-a1 and run-a2 of A have equal steps: if they are one trace")
    # ranks are averaged and steps are no pairs
    ranks = [[row("comm.wait", s * (rank + 1), rank=rank) for rank in (0, 1)] for s in (1.0, 3.0)]
    found = job("A", *([*own, row("comm.wait", 9.0, rank=0, step=1)] for own in ranks))
    assert found.results.ranks("comm.wait") == {0: 2.0, 1: 4.0}
    assert not found.results.grid("comm.wait").values.count()
    why = "steps of several captures do not correspond: see cclbench report of one of them"
    assert rank_lateness(found) == (None, why)


def a_file(path: Path, *seconds: float) -> Path:
    """What vLLM's client writes of requests with those times to their first token."""
    number = len(seconds)
    document = {"backend": "vllm", "model_id": "m", "tokenizer_id": "m", "request_rate": "inf"}
    document |= dict.fromkeys(("num_prompts", "completed", "output_throughput"), number)
    document |= {"max_concurrency": 4, "duration": 2.0, "ttfts": list(seconds), "errors": [""] * number}
    document |= {"input_lens": [8] * number, "output_lens": [2] * number, "itls": [[0.01]] * number}
    path.write_text(json.dumps(document))
    return path


def row_of_a(found: Comparison, stat: str | None) -> Row:
    row = found.subjects[0].results.row("serving.ttft", **({} if stat is None else {"stat": stat}))
    assert row is not None
    return row


def test_percentiles_of_captures_are_of_all_their_requests(tmp_path: Path) -> None:
    """The median of 0.1 to 0.7 s is 0.4; the mean of the two medians would be 0.375."""
    first = a_file(tmp_path / "a1.json", 0.1, 0.2, 0.3)
    second = a_file(tmp_path / "a2.json", 0.4, 0.5, 0.6, 0.7)
    other = a_file(tmp_path / "b1.json", 0.1, 0.2, 0.3)
    found = compare(first, second, against=[other], store=tmp_path / "store")
    assert row_of_a(found, "p50").value == pytest.approx(0.4)
    assert row_of_a(found, "p99").value == pytest.approx(0.694)
    assert row_of_a(found, "p50").reason == "of all requests of 2 captures together"
    assert row_of_a(found, None).value == pytest.approx((0.2 + 0.55) / 2)  # each capture has the same weight


def test_percentiles_of_summaries_are_each_captures(test_data: Path, tmp_path: Path) -> None:
    """Two repeats of a real benchmark, and of another setting, whose files have no requests."""
    runs = test_data / "serving_repeats"
    sides = [[runs / f"{name}_rep{n}.json" for n in (2, 3)] for name in ("A0_baseline", "B0_chunk8192")]
    row = row_of_a(compare(*sides[0], against=sides[1], store=tmp_path / "store"), "p99")
    assert (row.value, row.status) == (None, "not_applicable")
    assert row.reason == (
        "percentiles cannot be pooled without each capture's requests; per capture: 68.0 ms, 73.2 ms"
    )


RATE = "throughput.tokens_per_device"
REFUTED = Equality("refuted", "4 against 2 calls")
PROVED = Equality("proved", "1.00 TFLOP a step each")


def a_run(letter: str, devices: int, batch: int, rates: list[float], **changes: Any) -> ComparisonSubject:
    """A run of that global batch on so many devices, with the rates of its steps."""
    told = card(hardware__count=devices, workload__batch__global=batch, **changes)
    rows = [*steps_of(RATE, rates, "1/s"), row(METRIC, None, "1")]
    return subject(letter, rows, told, ranks=devices)


FEW = a_run("A", 2, 16, [100.0, 101.0, 99.0])
STRONG = a_run("B", 4, 16, [80.0, 81.0, 79.0])
WEAK = a_run("B", 4, 32, [95.0, 96.0, 94.0])


def test_strong_scaling_with_the_interval_of_the_ratio() -> None:
    found = scaling_of(FEW, STRONG, UNKNOWN, STEADY)
    expected = compare_captures(captures_of(FEW, RATE), captures_of(STRONG, RATE), STEADY)
    assert (found.kind, found.fewer, found.more, found.devices) == ("strong", "A", "B", (2, 4))
    assert found.efficiency == pytest.approx(0.8, rel=1e-3)
    assert (found.low, found.high) == (expected.low, expected.high)
    assert scaling_words(found).startswith(
        "Strong scaling from 2 to 4 devices: 80.0 % of the tokens per second and device (95 % interval 7"
    )
    # weak scaling whichever run comes first
    found, other = scaling_of(FEW, WEAK, REFUTED, ()), scaling_of(WEAK, FEW, REFUTED, ())
    assert found == other
    assert (found.kind, found.efficiency) == ("weak", pytest.approx(0.95, rel=1e-3))
    # two steps have an efficiency without an interval
    found = scaling_of(FEW, a_run("B", 4, 16, [80.0, 80.0]), UNKNOWN, ())
    assert (found.low, found.high) == (None, None)
    assert scaling_words(found).endswith("80.0 % of the tokens per second and device.")


@pytest.mark.parametrize(
    ("other", "work"),
    [
        (STRONG, REFUTED),
        (WEAK, PROVED),
        (a_run("B", 4, 24, [95.0] * 3), UNKNOWN),  # neither batch is the same
        (a_run("B", 2, 16, [95.0] * 3), UNKNOWN),  # as many devices
        (a_run("B", 4, 16, [95.0] * 3, workload__batch__sequence_length=256), UNKNOWN),
        (a_run("B", 4, 16, [95.0] * 3, workload__model__parameters=2000), UNKNOWN),
        (subject("B", [row(RATE, 9.0, "1/s", status="partial")], card(), ranks=4), UNKNOWN),
        (subject("B", [], card(), ranks=4), UNKNOWN),
    ],
)
def test_other_work_or_no_rate_is_no_scaling(other: ComparisonSubject, work: Equality) -> None:
    assert scaling_of(FEW, other, work, ()) is None


def test_the_line_of_the_metric_has_the_figure_of_the_other() -> None:
    scaling = scaling_of(FEW, STRONG, UNKNOWN, ())
    verdict = replace(judge_subject(FEW, STRONG), scaling=scaling)
    (line,) = with_scaling(metric_lines((FEW, STRONG), [METRIC]), [verdict])
    assert (line.figures["A"].value, line.figures["B"].value) == (None, scaling.efficiency)


def test_a_capture_that_was_read_twice_is_one(tmp_path: Path) -> None:
    """job-3 is a copy of job-2: it says nothing about how captures of the job differ."""
    subjects = {}
    for name, longer_us in (("job-1", 0), ("job-2", 3), ("job-3", 3), ("other", 1)):
        rows = [{**row, "ts": row["ts"] + longer_us * (row["ts"] // 100)} for row in events(steps=4)]
        trace = write(tmp_path / f"{name}.json", rows, **on_rank(0, world=1))
        subjects[name] = run_subject("A", cclbench.run(trace, store=tmp_path / "store"))
    store = Store(tmp_path / "store")
    (captures,) = repeated_captures(store, (subjects["other"],))
    assert sorted(figures.mean() * 1e6 for figures in captures) == [100, 103]
    assert [repeated_captures(store, (subjects[name],)) for name in ("job-2", "job-3")] == [[], []]
