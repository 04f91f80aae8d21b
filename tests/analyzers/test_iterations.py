# SPDX-License-Identifier: Apache-2.0
"""Serving engines: phases of iterations, spans of requests, and how decode uses the memory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from formats.test_otlp_spans import line, span
from formats.test_serving import VLLM
from helpers.hand_made import Evidence, a_rank, card, compute, event, job_values, launch, window
from helpers.hand_values import in_ns, main, parts, reason, run_parts, values

import cclbench
from cclbench.analyzers.metric import Value
from cclbench.analyzers.view.rank_view import RankView
from cclbench.record.run import Run

PREFILL = "execute_context_2(512)_generation_0(0)"
DECODE = "execute_context_0(0)_generation_6(6)"


def _step(number: int, begin: int, name: str) -> list[dict[str, Any]]:
    """Annotated on the host for 40 ns from `begin`; two kernels are launched in it and run 50 ns later."""
    first, second = begin, begin + 1
    return [
        event("annotation", begin, begin + 40, name=name, side="host"),
        launch(begin + 1, first),
        launch(begin + 30, second),
        compute(begin + 50, begin + 60, correlation=first, step=number),
        compute(begin + 80, begin + 90, correlation=second, step=number),
    ]


# Windows as they run on the device, behind the annotations that launched them.
WINDOWS = [window(50, 150, 0), window(150, 250, 1), window(250, 290, 2)]


METRIC = "serving.iteration"


def named(begin: int, end: int, name: str, side: str = "host") -> dict[str, Any]:
    return event("annotation", begin, end, name=name, side=side)


def phases(view: RankView) -> dict[int | None, str | None]:
    """The phase of each step; no step's is that of the last mean by phase."""
    return {value.step: value.category for value in values(view, METRIC)}


def test_iterations_by_phase() -> None:
    rows = _step(0, 0, PREFILL) + _step(1, 100, DECODE) + _step(2, 200, DECODE)
    view = a_rank(rows, WINDOWS)
    means = {"decode": 70, "prefill": 100}
    steps = {(0, "prefill"): 100, (1, "decode"): 100, (2, "decode"): 40}
    assert in_ns(parts(view, METRIC)) == pytest.approx({None: 80, **means, **steps})
    # Steps of several iterations or none are left out.
    rows = _step(0, 0, PREFILL) + _step(0, 100, DECODE) + _step(2, 200, DECODE)
    view = a_rank(rows, WINDOWS)
    assert main(view, METRIC, "partial") == pytest.approx(40e-9)
    assert values(view, METRIC)[0].left_out == {"of no single phase": 2}
    assert values(view, METRIC)[0].coverage.by_time == 40 / 240


def test_where_both_engines_names_nest_the_outer_ones_count() -> None:
    rows = [*_step(0, 0, DECODE), named(5, 20, "step[EXTEND bs=1]")]
    assert phases(a_rank(rows, WINDOWS[:1])) == {None: "decode", 0: "decode"}
    # An outer step that tells no phase is not told by the inner one.
    rows = [*_step(0, 0, "execute_context_0(0)_generation_0(0)"), named(0, 40, "step[DECODE bs=1]")]
    assert "distinguishes prefill from decode" in reason(a_rank(rows, WINDOWS[:1]), METRIC)


@pytest.mark.parametrize(
    ("first", "last", "held"),
    [(100, 139, True), (99, 139, False), (100, 140, False), (140, 141, False), (130, 105, True)],
)
def test_a_steps_launches_lie_within_one_annotation(first: int, last: int, held: bool) -> None:
    """From its begin on and before its end; in whatever order the kernels run."""
    rows = [named(100, 140, DECODE), named(0, 40, PREFILL), named(10, 300, PREFILL, side="device")]
    rows += [launch(first, 1), launch(last, 2), launch(10, 3)]
    rows += [compute(150 + 10 * n, 160 + 10 * n, correlation=n + 1, step=1) for n in (0, 1)]
    rows.append(compute(50, 60, correlation=3, step=0))
    found = phases(a_rank(rows, [window(50, 120, 0), window(120, 200, 1)]))
    assert (found[0], found.get(1)) == ("prefill", "decode" if held else None)


@pytest.mark.parametrize(("begin", "launches"), [(100, [50, 60]), (-10, [])])
def test_a_step_of_unknown_launch_or_before_annotations_has_no_phase(begin: int, launches: list[int]) -> None:
    rows = [named(begin, begin + 240, DECODE), *(launch(at, n) for n, at in enumerate(launches))]
    rows += [compute(150 + n, 151 + n, correlation=n, step=0) for n in range(2)]
    assert "distinguishes prefill from decode" in reason(a_rank(rows, WINDOWS[:1]), METRIC)


def test_launches_before_the_clocks_zero_tell_as_others_do() -> None:
    rows = [named(-40, -5, DECODE), launch(-30, 1), launch(-20, 2)]
    rows += [compute(40 + 10 * n, 50 + 10 * n, correlation=n, step=0) for n in (1, 2)]
    assert phases(a_rank(rows, WINDOWS[:1])) == {None: "decode", 0: "decode"}
    # Iterations without numbers have a mean alone.
    rows = [named(0, 40, DECODE), compute(5, 10)]
    view = a_rank(rows, [window(0, 40, None, "annotation")], policy="annotations")
    assert list(parts(view, METRIC)) == [None, "decode"]
    # An annotation of one nanosecond holds itself.
    rows = [named(7, 8, DECODE), compute(7, 8)]
    view = a_rank(rows, [window(7, 8, 0, "annotation")], policy="annotations")
    assert main(view, METRIC) == pytest.approx(1e-9)


def test_annotated_steps_are_those_of_the_only_iteration_in_them() -> None:
    """Two iterations in the first step, one in the second and up to the end of the third, half of one in the
    fourth, and none in the fifth."""
    spans = [(5, 40, PREFILL), (45, 60, DECODE), (110, 140, DECODE), (151, 200, PREFILL), (290, 310, DECODE)]
    steps = [window(*at, n, "annotation") for n, at in enumerate([(0, 100), (100, 150), (150, 200)])]
    steps += [window(200, 300, 3, "annotation"), window(300, 400, 4, "annotation")]
    rows = [named(*span) for span in spans]
    view = a_rank([*rows, event("op", 0, 400)], steps, policy="annotations", works_on="host")
    assert in_ns(parts(view, METRIC)) == pytest.approx(
        {None: 50, "decode": 50, "prefill": 50, (1, "decode"): 50, (2, "prefill"): 50}
    )
    assert values(view, METRIC)[0].left_out == {"of no single phase": 3}


def test_what_is_not_linked_or_of_no_step_tells_no_phase() -> None:
    """A kernel of no correlation, of no step, of a step without a window, of a launch nobody recorded."""
    rows = [named(0, 40, DECODE), *(launch(at, n) for n, at in ((2, 5), (9, 70), (4, 80), (6, 90)))]
    told: list[dict[str, int]] = [{"correlation": 2, "step": 0}, {"step": 0}, {"correlation": 9}]
    told += [{"correlation": 4, "step": 7}, {"correlation": 3, "step": 0}, {"correlation": 99, "step": 0}]
    rows += [compute(54 + n, 55 + n, **columns) for n, columns in enumerate(told)]
    assert phases(a_rank(rows, [window(50, 90, 0)])) == {None: "decode", 0: "decode"}


def test_ranks_iterations_count_one_by_one() -> None:
    views = [a_rank(_step(0, 0, DECODE) + _step(1, 100, DECODE), WINDOWS[:2], rank=0)]
    views += [a_rank(_step(0, 0, DECODE), [window(50, 110, 0)], rank=1)]
    assert run_parts(METRIC, *views) == pytest.approx({None: 260e-9 / 3, "decode": 260e-9 / 3})


def test_where_nothing_tells() -> None:
    unlinked = [named(0, 40, DECODE), compute(50, 60, step=0)]
    for rows in ([compute(0, 10)], unlinked):
        assert "distinguishes prefill from decode" in reason(a_rank(rows, WINDOWS[:1]), METRIC)
    whole = a_rank([compute(0, 10)], [window(0, 10, None, "whole_trace")], policy="trace")
    assert "whole trace" in reason(whole, METRIC)


def test_a_real_decode_iteration(test_data: Path, evidence_store: Path) -> None:
    # Of the JSON's own rows: first start to last end of the 558 kernels and copies launched in the
    # annotation `execute_32_context_0(...)_generation_32(...)`, in whose midst is `step[DECODE bs=32]`.
    run = cclbench.run(test_data / "kineto" / "sglang_decode_mi300x", store=evidence_store)
    rows = [row for row in run.rows if row["metric"] == "serving.iteration" and row["rank"] is None]
    expected = [(None, None, 0.473749943), ("decode", None, 0.473749943)]
    assert [(row["category"], row["step"], row["value"]) for row in rows] == expected


def figures(run: Run, metric: str) -> dict[tuple[str | None, str | None], float]:
    """Values by category and stat."""
    rows = [row for row in run.figures.summary if row.metric == metric and row.value is not None]
    return {(row.category, row.stat): row.number for row in rows}


@pytest.fixture
def spans(tmp_path: Path) -> Path:
    """Four requests, of which one failed; of the others two state all parts."""
    (tmp_path / "job").mkdir()
    path = tmp_path / "job" / "spans.jsonl"
    own = [
        span(1, e2e=2.25, time_to_first_token=0.5, time_in_queue=0.3),
        span(2, e2e=3.25, time_to_first_token=0.7, time_in_queue=0.5),
        span(3, e2e=4.0, time_to_first_token=0.9, time_in_queue=None),
        span(4, e2e=9.0, status={"code": 2}),
    ]
    path.write_text(line(*own) + "\n")
    return path


def test_a_requests_time_is_split(spans: Path, tmp_path: Path) -> None:
    """Of 2.75 s in the mean 0.4 are queue, 0.125 prefill, 1.75 decode; the rest is outside."""
    run = cclbench.run(spans, store=tmp_path / "store")
    found = figures(run, "serving.request_time")
    assert found[None, None] == pytest.approx(2.75)
    assert found["queue", None] == pytest.approx(0.4)
    assert found["prefill", None] == pytest.approx(0.125)
    assert found["decode", None] == pytest.approx(1.75)
    assert found["outside", None] == pytest.approx(0.475)
    latencies = figures(run, "serving.server_latency")
    assert latencies["ttft", "p50"] == pytest.approx(0.7)
    assert latencies["queue", "p90"] == pytest.approx(0.48)
    assert figures(run, "serving.ttft")[None, None] == pytest.approx(0.7)
    # Three answered requests of 8 tokens within 5.25 s: arrivals are 1 s apart, each span lasts 2.25 s.
    assert figures(run, "serving.output_throughput")[None, None] == pytest.approx(24 / 5.25)


def test_a_clients_file_goes_before_the_servers_view(spans: Path, tmp_path: Path) -> None:
    (spans.parent / "client.json").write_text(json.dumps(VLLM))
    run = cclbench.run(spans.parent, store=tmp_path / "store")
    (row,) = [row for row in run.figures.summary if row.metric == "serving.ttft" and row.stat is None]
    assert (row.category, row.source) == (None, "serving")
    assert figures(run, "serving.request_time")["queue", None] == pytest.approx(0.4)


def test_without_a_queue_nothing_is_split(tmp_path: Path) -> None:
    path = tmp_path / "spans.jsonl"
    path.write_text(line(span(1, time_in_queue=None)) + "\n")
    run = cclbench.run(path, store=tmp_path / "store")
    rows = {row.category: row for row in run.figures.summary if row.metric == "serving.request_time"}
    assert rows[None].value == pytest.approx(2.25)
    assert rows["outside"].status == "not_applicable"
    assert rows["outside"].reason == "the spans do not time the queue, prefill"


DETAILED = "execute_2_context_0(sq0sk0sqsq0sqsk0)_generation_2(sq2sk100sqsq2sqsk100)"
HBM = 1e12
A100 = 2.039e12
SERVED: dict[str, Any] = {"workload__phase": "serving"}
SERVED |= {"workload__batch": {"input_length": 6, "output_length": 4}, "workload__model__kv_heads": 1}
"""N_mm is 1,000, of 2 bytes each; a cached token has a key and a value of 5 elements of 2 bytes."""


def a_decode(*names: str, **changes: Any) -> RankView:
    """A rank with an iteration of each name, 100 ns long, in which a device could read 100,000 bytes."""
    rows = []
    for number, name in enumerate(names):
        begin = 100 * number
        rows += [
            event("annotation", begin, begin + 40, name=name, side="host"),
            launch(begin + 1, number + 1),
        ]
        rows.append(compute(begin + 50, begin + 60, correlation=number + 1, step=number))
    windows = [window(50 + 100 * n, 150 + 100 * n, n) for n in range(len(names))]
    return a_rank(rows, windows, card=card(**SERVED | changes), hbm_bytes_per_s=HBM)


SPLIT = {"parallelism": {"tp": 2}}


@pytest.mark.parametrize(
    ("names", "changes", "read"),
    [
        # Six requests of 6 + 4 / 2 tokens in one iteration, 100 tokens in another; a prefill does not count.
        ((DECODE, PREFILL, DETAILED), {}, ((2000 + 6 * 8 * 20) + (2000 + 100 * 20)) / 2),
        # Two devices halve weights and share a lone key-value head.
        ((DETAILED,), SPLIT, 1000 + 100 * 20),
        ((DETAILED,), SPLIT | {"workload__model__kv_heads": 2}, 1000 + 100 * 20),
        # Narrow weights have a cache of two bytes.
        ((DETAILED,), {"workload__precision": "fp8"}, 1000 + 100 * 20),
        ((DETAILED,), {"workload__precision": "fp32"}, 4000 + 100 * 40),
    ],
)
def test_weights_and_cache_by_the_names_of_iterations_and_the_card(
    names: tuple[str, ...], changes: dict[str, Any], read: float
) -> None:
    """Of 100,000 bytes in each iteration."""
    rank = a_decode(*names, **changes)
    assert main(rank, "memory.mbu") == pytest.approx(read / 100_000)
    (found,) = values(rank, "memory.mbu")
    assert found.provenance == "derived"
    if not changes:
        assert "2.00 kB of weights, and 20 B of KV cache for each token" in (found.reason or "")


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"workload__model__kv_heads": None}, "the workload card lacks workload.model.kv_heads"),
        ({"workload__precision": None}, "the workload card lacks workload.precision"),
        ({"workload__batch": {"input_length": 6}}, "the workload card lacks workload.batch.output_length"),
        ({"parallelism": {"pp": 2}}, "tensor parallelism alone splits the model: the card has pp 2, cp 1"),
    ],
)
def test_what_is_lacking_is_named(changes: dict[str, Any], says: str) -> None:
    assert says in reason(a_decode(DECODE, **changes), "memory.mbu")


def test_an_impossible_share_is_no_number() -> None:
    (found,) = values(a_decode(DETAILED, workload__model__parameters=1_000_000), "memory.mbu")
    assert (found.status, found.value) == ("failed", None)
    assert found.reason == "decode would need 20 of the memory's peak: card and evidence disagree"


def client_mbu(**changes: Any) -> Value:
    """Of a client that states 20 ms a token and 100 output tokens a second, served by two devices."""
    own = {"source": "serving", "file": "a.json", "benchmark": 0, "unit": "s"}
    told = (("tpot", "mean", 0.02), ("output_throughput", None, 100.0))
    rows = [own | {"figure": figure, "stat": stat, "value": value} for figure, stat, value in told]
    (found,) = job_values("memory.mbu", Evidence(serving=rows), card=card(**SERVED | changes))
    return found


def test_a_clients_rates_tell_how_many_sequences_decode_at_once() -> None:
    """100 / s · 20 ms = 2 sequences over two replicas of one device, 8 tokens each."""
    found = client_mbu()
    assert found.value == pytest.approx((2000 + 1 * 8 * 20) / (0.02 * A100))
    assert (found.status, found.provenance, found.source) == ("ok", "derived", "serving")
    assert "; 1 sequences decode at once" in (found.reason or "")
    split = client_mbu(parallelism={"tp": 2})
    assert split.value == pytest.approx((1000 + 2 * 8 * 20) / (0.02 * A100))
    assert client_mbu(hardware__count=None).reason == "the workload card lacks hardware.count"


def test_a_clients_file_without_a_card_says_what_is_needed(test_data: Path, evidence_store: Path) -> None:
    file = test_data / "serving_repeats/A0_baseline_rep1.json"
    run = cclbench.run(file, store=evidence_store, metrics="mbu")
    assert [row["reason"] for row in run.rows] == ["needs a workload card with workload.precision"]


CARD = """version: 2
id: qwen3
description: Qwen3-8B decoding 32 requests
workload:
  phase: serving
  precision: bf16
  model: {name: Qwen3-8B, moe: false, parameters: 8190735360, embedding_parameters: 622329856,
          tied_embeddings: false, vocabulary: 151936, hidden: 4096, layers: 36, heads: 32, kv_heads: 8,
          head_dim: 128}
hardware: {accelerator: amd-mi300x, count: 1}
evidence: {traces: [{path: decode.json.gz}]}
"""


def test_a_real_iteration_by_its_published_sizes(test_data: Path, tmp_path: Path) -> None:
    """The engine names 32 requests with 32,785 tokens in context together."""
    (trace,) = (test_data / "kineto/sglang_decode_mi300x").iterdir()
    (tmp_path / "decode.json.gz").write_bytes(trace.read_bytes())
    (tmp_path / "qwen3.yaml").write_text(CARD)
    run = cclbench.run(tmp_path / "qwen3.yaml", store=tmp_path / "store")
    found = {row["metric"]: row for row in run.rows if row["rank"] is None and row["step"] is None}
    seconds = found["serving.iteration"]["value"]
    read = 2 * (8_190_735_360 - 622_329_856) + 32_785 * 36 * 8 * 2 * 128 * 2
    assert found["memory.mbu"]["value"] == pytest.approx(read / (seconds * 5.3e12))
    assert "a device reads 15.1 GB of weights" in found["memory.mbu"]["reason"]
