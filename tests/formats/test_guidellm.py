# SPDX-License-Identifier: Apache-2.0
"""GuideLLM's reports: distributions under the field's names, requests by their own times, loads."""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from helpers.refused import refused

from cclbench.formats import Evidence
from cclbench.formats.guidellm import GuideLlm
from cclbench.ground.evidence_schema import REQUESTS, SERVING


def distribution(mean: float, low: float, high: float, count: int = 2) -> dict[str, Any]:
    """A distribution of successful requests, and one of failed ones that nobody reads."""
    percentiles = {"p001": low, "p50": low, "p90": high, "p95": high, "p99": high, "p999": high}
    own = {"mean": mean, "std_dev": 1.0, "min": low, "max": high, "count": count, "total_sum": mean * count}
    return {"successful": own | {"percentiles": percentiles}, "errored": own | {"mean": 99.0}}


def request(begin: str, first: str, last: str, end: str, tokens: int) -> dict[str, Any]:
    """A request with its times, seconds since 1970."""
    times = {"request_start": begin, "first_token_iteration": first, "last_token_iteration": last}
    timings = {name: float(value) for name, value in {**times, "request_end": end}.items()}
    return {"request_id": "r", "output": "a secret", "prompt_tokens": 10, "output_tokens": tokens} | {
        "info": {"timings": timings}
    }


STRATEGY = {"type_": "concurrent", "streams": 4, "max_concurrency": 10240}
BACKEND = {"model": "/home/somebody/Tiny-1B", "target": "http://somebody-host:8000"}
METRICS: dict[str, Any] = {"request_totals": {"successful": 2, "errored": 1, "incomplete": 0}}
METRICS |= {"requests_per_second": distribution(1.0, 0.0, 2.0)}
METRICS |= {"output_tokens_per_second": distribution(5.5, 0.0, 2.0)}
METRICS |= {"prompt_token_count": distribution(10, 10, 10), "output_token_count": distribution(4, 3, 5)}
METRICS |= {"request_latency": distribution(0.35, 0.3, 0.4)}
METRICS |= {"time_to_first_token_ms": distribution(150, 100, 200)}
METRICS |= {"inter_token_latency_ms": distribution(50, 40, 60, count=6)}
METRICS |= {"time_per_output_token_ms": distribution(90, 80, 100)}
METRICS |= {"iter_tokens_per_iteration": distribution(1.0, 1.0, 1.0)}
BENCHMARK: dict[str, Any] = {"config": {"strategy": STRATEGY, "backend": BACKEND}, "duration": 2.0}
BENCHMARK |= {"metrics": METRICS, "requests": {"successful": [], "errored": [], "incomplete": []}}
REPORT: dict[str, Any] = {"metadata": {"version": 2, "guidellm_version": "0.8.0"}}
REPORT |= {"config": {"spec": {"backend": {"target": "http://somebody-host:8000"}}}}
REPORT |= {"benchmarks": [BENCHMARK]}


def changed(**parts: Any) -> dict[str, Any]:
    """The benchmark with other parts; `metrics` are merged."""
    return BENCHMARK | parts | {"metrics": BENCHMARK["metrics"] | parts.get("metrics", {})}


def read(tmp_path: Path, *benchmarks: dict[str, Any]) -> Evidence:
    path = tmp_path / "report.json"
    path.write_text(json.dumps(REPORT | {"benchmarks": list(benchmarks)}, indent=1))
    return GuideLlm().read(path)


def figures(evidence: Evidence, benchmark: int = 0) -> dict[tuple[str, str | None], float]:
    assert evidence.serving.schema == SERVING
    rows = [row for row in evidence.serving.to_pylist() if row["benchmark"] == benchmark]
    return {(row["figure"], row["stat"]): row["value"] for row in rows}


def test_distributions_have_the_fields_names_and_base_units(tmp_path: Path) -> None:
    """GuideLLM's time per output token contains the first one: it is not read."""
    found = read(tmp_path, BENCHMARK)
    shown = figures(found)
    figures_of = {"max_concurrency": 4, "duration": 2, "completed": 2, "failed": 1, "request_throughput": 1}
    figures_of |= {"output_throughput": 5.5, "input_tokens": 20, "output_tokens": 8}
    assert {figure: value for (figure, stat), value in shown.items() if stat is None} == figures_of
    stats = ["mean", "std", "min", "max", "p50", "p90", "p95", "p99", "p99.9"]
    assert [stat for figure, stat in shown if figure == "ttft"] == stats
    assert (shown["ttft", "mean"], shown["ttft", "p99"], shown["e2e_latency", "p99"]) == (0.15, 0.2, 0.4)
    gaps = {key: value for key, value in shown.items() if key[0] in ("itl", "tpot")}
    assert gaps == {("itl", "mean"): 0.05}
    assert (found.facts, found.left_out) == ({"client": "GuideLLM", "model": "Tiny-1B"}, {})


@pytest.mark.parametrize(
    ("strategy", "load"),
    [
        ({"type_": "synchronous"}, {"max_concurrency": 1}),
        ({"type_": "throughput", "max_concurrency": 512}, {"max_concurrency": 512}),
        ({"type_": "throughput", "max_concurrency": None}, {}),
        ({"type_": "poisson", "rate": 2.5, "max_concurrency": 10240}, {"request_rate": 2.5}),
        ({"type_": "trace"}, {}),
    ],
)
def test_benchmarks_have_their_load(tmp_path: Path, strategy: dict[str, Any], load: dict[str, float]) -> None:
    """The limit of connections of an open-loop load is not its concurrency."""
    second = changed(config={**BENCHMARK["config"], "strategy": strategy})
    shown = figures(read(tmp_path, BENCHMARK, second), 1)
    loads = {name: v for (name, _), v in shown.items() if name in ("max_concurrency", "request_rate")}
    assert loads == load


def test_distributions_that_tell_nothing_are_left_out(tmp_path: Path) -> None:
    found = read(tmp_path, changed(metrics={"iter_tokens_per_iteration": distribution(2.0, 1.0, 3.0)}))
    assert not any(figure == "itl" for figure, _ in figures(found))
    assert found.left_out == {"latencies per token of chunks of several tokens": 1}
    # such a request counts as 0 in it; an empty distribution is all zeros
    metrics = {"time_to_first_token_ms": distribution(5, 0, 9), "request_latency": distribution(0, 0, 0, 0)}
    found = read(tmp_path, changed(metrics=metrics))
    assert not any(figure in ("ttft", "e2e_latency") for figure, _ in figures(found))
    assert found.left_out == {"distributions in which requests without a time count as 0": 1}


def test_requests_by_their_own_times(tmp_path: Path) -> None:
    """100 ms to the first of 3 tokens, 200 ms to the last: 50 ms a token; what follows is no token's."""
    lists = {
        "successful": [request("1780000000.0", "1780000000.1", "1780000000.2", "1780000000.25", 3)],
        "errored": [{"prompt_tokens": 5, "output_tokens": None, "info": {"timings": {"request_start": 7.0}}}],
        "incomplete": [{"prompt_tokens": 6, "info": {}}],
    }
    found = read(tmp_path, changed(requests=lists))
    assert found.requests.schema == REQUESTS
    columns = ("request", "success", "input_tokens", "output_tokens", "ttft_ns", "e2e_ns")
    assert [tuple(row[name] for name in columns) for row in found.requests.to_pylist()] == [
        *((0, True, 10, 3, 100_000_000, 200_000_000), (1, False, 5, None, None, None)),
        (2, None, 6, None, None, None),
    ]


def broken(**parts: Any) -> str:
    report = deepcopy(REPORT)
    report["benchmarks"][0] |= parts
    return json.dumps(report)


def report(**parts: Any) -> str:
    return json.dumps(REPORT | parts)


def succeeded(one: dict[str, Any]) -> str:
    return broken(requests={"successful": [one]})


RATE = {"type_": "constant", "rate": [1]}
BAD: dict[str, tuple[str, str]] = {
    "cut": (report()[:-50], "is not JSON"),
    "empty": ("", "the file is empty"),
    "another version": (report(metadata={"version": 1}), "is a report of version 1, not 2"),
    "no version": (report(metadata=[]), "is a report of version None"),
    "no benchmark": (report(benchmarks=[]), "has no benchmark"),
    "benchmarks are no list": (report(benchmarks={}), "benchmarks is not a list"),
    "a benchmark is a number": (report(benchmarks=[3]), "benchmarks 1: is not an object"),
    "nothing in it": (report(benchmarks=[{}]), "has no figure and no request"),
    "metrics are a list": (broken(metrics=[]), "metrics is not an object"),
    "a duration of text": (broken(duration="2"), "duration is not a number from 0 to"),
    "a negative duration": (broken(duration=-2), "duration is not a number from 0 to"),
    "NaN": (broken(duration=float("nan")), "duration is not a number from 0 to"),
    "a rate without number": (broken(config={"strategy": RATE}), "request_rate is not a number"),
    "tokens of a fraction": (succeeded({"output_tokens": 1.5}), "output_tokens is not a number of tokens"),
    "a time that runs back": (
        succeeded(request("2", "1", "3", "4", 3)),
        "first_token_iteration is not a time from 0 s to a day after request_start",
    ),
    "two reports": (f"{report()}\n{report()}\n", "has several JSON objects"),
}


@pytest.mark.parametrize("case", BAD)
def test_damage_is_an_error_that_says_where(tmp_path: Path, case: str) -> None:
    text, says = BAD[case]
    path = tmp_path / "report.json"
    path.write_text(text)
    refused(GuideLlm().read, path, says)
