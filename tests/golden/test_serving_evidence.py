# SPDX-License-Identifier: Apache-2.0
"""Serving evidence of others: figures against the files' own, read with Python's JSON alone."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from cclbench.comparison.build import run_subject
from cclbench.present.charts.pareto import points_of
from cclbench.record.run import Run

from .conftest import Measure


def figures(run: Run, metric: str) -> dict[tuple[str | None, str | None], float]:
    """Values by category and stat."""
    rows = (row for row in run.figures.summary if row.metric == metric and row.value is not None)
    return {(row.category, row.stat): row.value for row in rows}


def test_a_sweep_of_vllm_over_concurrency(test_data: Path, measure: Measure, tmp_path: Path) -> None:
    """All nine loads are on the front of every latency but those that the brute force rules out."""
    source = test_data / "serving_vllm" / "nebius" / "results_exp"
    written = {path.name: json.loads(path.read_text()) for path in source.glob("sweep_*.json")}
    (tmp_path / "sweep").mkdir()
    for name, result in written.items():
        (tmp_path / "sweep" / name).write_text(json.dumps(result))
    points = points_of([run_subject("", measure(tmp_path / "sweep"))])
    assert sorted(point.load["max_concurrency"] for point in points.points) == [2**n for n in range(9)]
    for point in points.points:
        own = written[point.benchmark or ""]
        assert point.in_all == own["output_throughput"]
        assert point.latencies["ttft p99"] == pytest.approx(own["p99_ttft_ms"] / 1000, rel=1e-12)
        assert point.load["output_tokens"] == own["total_output_tokens"] / own["completed"]
    for latency, key in (
        ("ttft p50", "median_ttft_ms"),
        ("itl p99", "p99_itl_ms"),
        ("e2e_latency p99", "p99_e2el_ms"),
    ):
        pairs = {name: (own["output_throughput"], own[key]) for name, own in written.items()}
        best = {
            name
            for name, (rate, time) in pairs.items()
            if not any(r >= rate and t <= time and (r, t) != (rate, time) for r, t in pairs.values())
        }
        assert {points.points[number].benchmark for number in points.fronts[latency]} == best


def test_listed_requests_of_vllm(test_data: Path, measure: Measure) -> None:
    """Percentiles of the 400 requests of a file by hand: linear between order statistics."""
    path = test_data / "serving_vllm" / "nebius" / "results_exp" / "gt_c4.json"
    written = json.loads(path.read_text())
    times = sorted(written["ttfts"])
    place = 0.99 * (len(times) - 1)
    low = math.floor(place)
    expected = times[low] + (place - low) * (times[low + 1] - times[low])
    found = figures(measure(path), "serving.ttft")
    assert found[None, "p99"] == pytest.approx(expected, rel=1e-9)
    assert found[None, "p99"] == pytest.approx(written["p99_ttft_ms"] / 1000, rel=1e-6)


def test_a_report_of_guidellm(test_data: Path, measure: Measure) -> None:
    path = test_data / "serving_guidellm" / "tests" / "fixtures" / "guidellm_report_v2.json"
    written = json.loads(path.read_text())["benchmarks"]
    run = measure(path)
    ttft, load = figures(run, "serving.ttft"), figures(run, "serving.load")
    for number, benchmark in enumerate(written, 1):
        label, own = f"{path.name}#{number}", benchmark["metrics"]["time_to_first_token_ms"]["successful"]
        assert ttft[label, "p99"] == pytest.approx(own["percentiles"]["p99"] / 1000, rel=1e-12)
        assert load[label, "request_rate"] == benchmark["config"]["strategy"]["rate"]
        tokens = benchmark["metrics"]["output_token_count"]["successful"]["total_sum"]
        assert load[label, "output_tokens"] == tokens / 2
    assert figures(run, "serving.itl")[f"{path.name}#1", None] == pytest.approx(1.1508464813232422e-3)


def test_a_trace_of_mooncake(test_data: Path, measure: Measure) -> None:
    path = test_data / "mooncake" / "FAST25-release" / "traces" / "synthetic_trace.jsonl"
    requests = [json.loads(line) for line in path.read_text().splitlines()]
    seen, held, cached = set[int](), 0, 0
    for request in requests:
        blocks = request["hash_ids"]
        own = next((n for n, block in enumerate(blocks) if block not in seen), len(blocks))
        held, cached = held + own, cached + min(512 * own, request["input_length"])
        seen.update(blocks)
    run = measure(path)
    reuse = figures(run, "requests.prefix_reuse")
    assert reuse[None, None] == held / sum(len(request["hash_ids"]) for request in requests)
    assert reuse[None, None] == pytest.approx(0.6396, abs=1e-4)
    assert reuse[None, "tokens"] == cached / sum(request["input_length"] for request in requests)
    rate = figures(run, "requests.rate")[None, None]
    assert rate == pytest.approx(3992 / 1022.025, rel=1e-12)


def test_a_snapshot_before_the_first_request(test_data: Path, measure: Measure) -> None:
    run = measure(test_data / "serving_vllm" / "nebius" / "results_exp" / "metrics_catalog.prom")
    assert figures(run, "serving.request_time") == figures(run, "serving.server_latency") == {}
    (row,) = (row for row in run.figures.summary if row.metric == "serving.request_time")
    assert row.reason == "no request finished"
