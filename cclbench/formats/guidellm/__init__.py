# SPDX-License-Identifier: Apache-2.0
"""GuideLLM's reports: every benchmark of a sweep, its distributions, and its requests where it lists them.

GuideLLM's names are not the field's: `inter_token_latency_ms` is a request's (last token − first token) /
(output tokens − 1), weighted by that denominator, and `time_per_output_token_ms` includes the first token.
The mean of the former is that of all gaps where every chunk is one token, so it is read as `itl` there; its
percentiles are of requests, not of gaps, and are read only from the requests' own times, as `tpot`.  A
request without a time enters GuideLLM's distributions as 0: those that contain one are left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from cclbench.formats import READERS, Evidence, EvidenceReader
from cclbench.formats.rewriting import CAPTURED, SOURCE_PATH, SYSTEM
from cclbench.formats.serving.figures import LONGEST_RUN_S, LONGEST_WAIT_S, model_name
from cclbench.formats.serving.lines import MOST, WrittenResult, is_number, written_results
from cclbench.formats.texts import strip_decoration
from cclbench.ground.errors import InputError
from cclbench.ground.evidence_schema import REQUESTS, SERVING

_VERSION: Final = 2
_AS_ZERO: Final = "distributions in which requests without a time count as 0"
_STATS: Final = {"mean": "mean", "std_dev": "std", "min": "min", "max": "max"}
_PERCENTILES: Final = {
    **{f"p{percent}": f"p{percent}" for percent in (50, 90, 95, 99)},
    "p999": "p99.9",
}
_LATENCIES: Final = {"time_to_first_token_ms": ("ttft", 1000), "request_latency": ("e2e_latency", 1)}
"""Figure, and units in a second, by GuideLLM's name."""
_TOTALS: Final = {"prompt_token_count": "input_tokens", "output_token_count": "output_tokens"}
_RATES: Final = {
    "requests_per_second": ("request_throughput", "1/s"),
    "output_tokens_per_second": ("output_throughput", "1/s"),
    "tokens_per_second": ("total_throughput", "1/s"),
    "request_concurrency": ("concurrency", "count"),
}
_OUTCOMES: Final = {"successful": True, "errored": False, "incomplete": None}
"""Whether requests of a list were answered; incomplete ones were cut by the end of the benchmark."""


_Stated = tuple[str, str | None, str, int, object]
"""Figure, stat, unit, largest value, and value as stated."""


class GuideLlm(EvidenceReader):
    """Reader of GuideLLM's JSON reports."""

    name = "guidellm"
    description = "reports of GuideLLM (JSON), each benchmark of a sweep"
    extensions: tuple[str, ...] = (".json",)
    capture = "`guidellm benchmark run ... --outputs json`"
    versions = "report version 2 (GuideLLM 0.8)"
    tested = "real: a report of GuideLLM 0.8 without lists of requests; documentation: its source, for lists"

    withheld: Mapping[str, str] = {
        **dict.fromkeys(("target", "api_key", "extras", "environment", "platform", "labels"), SYSTEM),
        **dict.fromkeys(
            ("request_id", "response_id", "request_args", "output", "reasoning_output"), CAPTURED
        ),
        **dict.fromkeys(("tool_calls", "error", "traceback", "text", "messages"), CAPTURED),
        **dict.fromkeys(("tokenizer", "data", "outputs"), SOURCE_PATH),
    }

    def sniff(self, head: bytes) -> float:
        """Sure of the version that a report begins with."""
        head = strip_decoration(head)
        return 0.9 if head.lstrip()[:1] == b"{" and b'"guidellm_version"' in head else 0.0

    def read(self, path: Path) -> Evidence:
        """The requests and figures of every benchmark in the report, numbered from 0."""
        report = _only_object(path)
        metadata = report.entries.get("metadata")
        version = metadata.get("version") if isinstance(metadata, dict) else None
        if version != _VERSION:
            raise report.entry_error(f"is a report of version {version!r:.40}, not {_VERSION}")
        rows, tables, left_out = list[dict[str, Any]](), list[pa.Table](), Counter[str]()
        for number, benchmark in enumerate(_objects(report, "benchmarks")):
            figures = list(_figure_rows(benchmark, left_out))
            tables.append(_request_table(benchmark, number))
            rows += [{"benchmark": number, **row} for row in figures]
            if not figures and not len(tables[-1]):
                raise benchmark.entry_error("has no figure and no request")
        if not tables:
            raise report.entry_error("has no benchmark")
        return Evidence(
            requests=pa.concat_tables(tables),
            serving=pa.Table.from_pylist(rows, schema=SERVING),
            facts={"client": "GuideLLM", **_settings(report)},
            left_out=dict(left_out),
        )


def _only_object(path: Path) -> WrittenResult:
    results = list(written_results(path))
    if len(results) > 1:
        raise InputError("has several JSON objects, not one report", where=str(path), hint="pass one report")
    return results[0]


def _objects(owner: WrittenResult, name: str) -> Iterator[WrittenResult]:
    """The objects in a list of `owner`; `InputError` if it holds anything else."""
    for number, entry in enumerate(owner.list_of(name) or [], 1):
        where = f"{owner.where}: {name} {number:,}"
        if not isinstance(entry, dict):
            raise InputError("is not an object", where=where, hint="write the report again")
        yield WrittenResult(entry, where)


def _part(owner: WrittenResult, *names: str) -> WrittenResult:
    """A nested object; an empty one where any is absent or null."""
    entries: Any = owner.entries
    for name in names:
        entries = {} if entries.get(name) is None else entries[name]
        if not isinstance(entries, dict):
            raise owner.entry_error(f"{name} is not an object")
    return WrittenResult(entries, owner.where)


def _settings(report: WrittenResult) -> dict[str, str]:
    for benchmark in _objects(report, "benchmarks"):
        if model := model_name(_part(benchmark, "config", "backend").entries.get("model")):
            return {"model": model}
    return {}


def _figure_rows(benchmark: WrittenResult, left_out: Counter[str]) -> Iterator[dict[str, Any]]:
    """Rows of `SERVING`, without the benchmark's number."""
    metrics = _part(benchmark, "metrics")
    stated = [*_load(benchmark), *_totals(benchmark, metrics), *_latencies(metrics, left_out)]
    for figure, stat, unit, most, value in stated:
        if value is not None:
            number = benchmark.bounded_number(f"{figure} {stat or ''}".rstrip(), value, most)
            yield {"figure": figure, "stat": stat, "unit": unit, "value": number}


def _load(benchmark: WrittenResult) -> Iterator[_Stated]:
    strategy = _part(benchmark, "config", "strategy").entries
    kind = strategy.get("type_")
    if kind == "synchronous":
        yield "max_concurrency", None, "count", MOST, 1
    elif kind in ("concurrent", "throughput"):
        limit = strategy.get("streams" if kind == "concurrent" else "max_concurrency")
        yield "max_concurrency", None, "count", MOST, limit
    elif kind in ("constant", "poisson"):
        yield "request_rate", None, "1/s", MOST, strategy.get("rate")


def _totals(benchmark: WrittenResult, metrics: WrittenResult) -> Iterator[_Stated]:
    yield "duration", None, "s", LONGEST_RUN_S, benchmark.entries.get("duration")
    requests = _part(metrics, "request_totals").entries
    yield "completed", None, "count", MOST, requests.get("successful")
    yield "failed", None, "count", MOST, requests.get("errored")
    for name, (figure, unit) in _RATES.items():
        yield figure, None, unit, MOST, _answered(metrics, name).get("mean")
    for name, figure in _TOTALS.items():
        yield figure, None, "count", MOST, _answered(metrics, name).get("total_sum")


def _latencies(metrics: WrittenResult, left_out: Counter[str]) -> Iterator[_Stated]:
    for name, (figure, per_second) in _LATENCIES.items():
        for stat, value in _distribution(metrics, name, left_out).items():
            yield figure, stat, "s", LONGEST_WAIT_S, _divided(value, per_second)
    gaps = _distribution(metrics, "inter_token_latency_ms", left_out)
    tokens = _answered(metrics, "iter_tokens_per_iteration")
    if tokens.get("min") == tokens.get("max") == 1:
        yield "itl", "mean", "s", LONGEST_WAIT_S, _divided(gaps.get("mean"), 1000)
    elif gaps:
        left_out["latencies per token of chunks of several tokens"] += 1


def _answered(metrics: WrittenResult, name: str) -> dict[str, Any]:
    """A distribution over successful requests; empty if absent."""
    return _part(metrics, name, "successful").entries


def _distribution(metrics: WrittenResult, name: str, left_out: Counter[str]) -> dict[str, object]:
    """Values by stat; none of an empty distribution, or of one that contains requests without a time."""
    summary = _answered(metrics, name)
    if not summary.get("count"):
        return {}
    if summary.get("min") == 0:
        left_out[_AS_ZERO] += 1
        return {}
    stats: dict[str, object] = {stat: summary.get(key) for key, stat in _STATS.items()}
    percentiles = _part(metrics, name, "successful", "percentiles").entries
    stats |= {stat: percentiles.get(key) for key, stat in _PERCENTILES.items()}
    return {stat: value for stat, value in stats.items() if value is not None}


def _divided(value: object, by: int) -> object:
    return value / Decimal(by) if is_number(value) and -MOST < value < MOST else value


def _request_table(benchmark: WrittenResult, number: int) -> pa.Table:
    """Rows of `REQUESTS`; none if the report lists no requests."""
    rows, lists = list[dict[str, Any]](), _part(benchmark, "requests")
    for name, success in _OUTCOMES.items():
        for request in _objects(lists, name):
            times = _part(request, "info", "timings").entries
            ttft = _elapsed_ns(request, times, "first_token_iteration")
            last = "request_end" if times.get("last_token_iteration") is None else "last_token_iteration"
            rows.append(
                {
                    "benchmark": number,
                    "request": len(rows),
                    "success": success,
                    "input_tokens": _tokens(request, "prompt_tokens"),
                    "output_tokens": _tokens(request, "output_tokens"),
                    "ttft_ns": ttft,
                    "e2e_ns": _elapsed_ns(request, times, last),
                }
            )
    return pa.Table.from_pylist(rows, schema=REQUESTS)


def _tokens(request: WrittenResult, name: str) -> int | None:
    value = request.entries.get(name)
    if value is not None and (type(value) is not int or not 0 <= value < 1 << 31):
        raise request.entry_error(f"{name} is not a number of tokens")
    return value


def _elapsed_ns(request: WrittenResult, times: Mapping[str, Any], name: str) -> int | None:
    """Time since the request was sent, by the digits of the file; None if either is not stated."""
    begin, end = times.get("request_start"), times.get(name)
    if begin is None or end is None:
        return None
    if not (is_number(begin) and is_number(end) and 0 <= end - begin <= LONGEST_WAIT_S):
        raise request.entry_error(f"{name} is not a time from 0 s to a day after request_start")
    return round((end - begin) * 10**9)


READERS.add(GuideLlm.name, GuideLlm(), origin=__name__)
