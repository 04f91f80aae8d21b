# SPDX-License-Identifier: Apache-2.0
"""Serving: latencies and rates that a benchmark client measures.

Where the client's file lists requests, values are computed from the answered ones; else they are those that
the file states. Percentiles interpolate linearly between order statistics, as in NumPy; those of repeated
benchmarks are over all their requests, never means of percentiles.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa

from cclbench.analyzers.benchmarks import (
    Benchmark,
    Samples,
    Seconds,
    e2e_of,
    itl_of,
    pool_benchmarks,
    repeated_benchmarks,
    run_benchmarks,
    tpot_of,
    ttft_of,
)
from cclbench.analyzers.metric import Coverage, NotApplicable, Value, no_value, run_metric
from cclbench.analyzers.view.run_view import RunView
from cclbench.ground.units import humanise

NO_CLIENT: Final = "a kernel trace has no requests or tokens: it needs the client's benchmark file"
NO_OBJECTIVES: Final = "the client was given no service-level objectives (vllm bench serve --goodput)"
_LISTS: Final = "the requests' lists (vLLM: --save-detailed, SGLang: --output-details)"
_STATED: Final = "as stated by the client's file"
_PERCENTILES: Final = (50, 90, 99)
_AGREE: Final = 0.01
"""Largest relative difference at which the requests and the file's own figure agree."""

LATENCIES: Final[Mapping[str, Callable[[pa.Table], Samples]]] = {
    "ttft": ttft_of,
    "tpot": tpot_of,
    "itl": itl_of,
    "e2e_latency": e2e_of,
}
"""Latencies of answered requests, by figure."""
_POOLED: Final = (
    " For repeated benchmarks (files with equal settings whose names differ only in the last number) also"
    " over all their requests, which is the run's value where all benchmarks are repeats."
)
_request_metric = partial(run_metric, inputs=("requests", "serving"), not_applicable=NO_CLIENT)
_latency_metric = partial(_request_metric, unit="s", better="lower")
_rate_metric = partial(_request_metric, unit="1/s", better="higher")


def values_by_benchmark(run: RunView, values: Callable[[Benchmark], Iterator[Value]]) -> Iterable[Value]:
    """The values of a single benchmark; of several, each with its label as category."""
    benchmarks = run_benchmarks(run)
    if not benchmarks:
        raise NotApplicable(NO_CLIENT)
    if len(benchmarks) == 1:
        return [replace(value, source=benchmarks[0].source) for value in values(benchmarks[0])]
    labelled = [
        replace(value, category=benchmark.label, source=benchmark.source)
        for benchmark in benchmarks
        for value in values(benchmark)
    ]
    reason = f"{len(benchmarks)} benchmarks: see their rows"
    if not any(value.has_value for value in labelled):
        reason = "; ".join(dict.fromkeys(value.reason or "" for value in labelled if value.stat is None))
    return [no_value(reason, source=benchmarks[0].source), *labelled]


def _latency_values(run: RunView, figure: str) -> Iterator[Value]:
    """The values of each benchmark, and of all requests of repeated ones together.

    The latter are the run's values where all benchmarks are repeats.
    """
    run_value, *parts = values_by_benchmark(run, lambda benchmark: latency_values(benchmark, figure))
    benchmarks = run_benchmarks(run)
    for repeats in repeated_benchmarks(benchmarks):
        pooled = pool_benchmarks(repeats)
        if pooled is None:
            continue
        scope = f"of all requests of {len(repeats)} repeats together"
        pooled_values = [
            replace(value, source=repeats[0].source, reason="; ".join(filter(None, (scope, value.reason))))
            for value in latency_values(pooled, figure)
        ]
        if len(repeats) == len(benchmarks):
            run_value, *rest = pooled_values
            parts = [*rest, *parts]
        else:
            parts += [replace(value, category=f"repeats of {repeats[0].label}") for value in pooled_values]
    yield run_value
    yield from parts


def latency_values(benchmark: Benchmark, figure: str) -> Iterator[Value]:
    """Mean and percentiles of the requests' times, else what the file states."""
    samples = LATENCIES[figure](benchmark.answered_requests)
    if len(samples.values):
        left_out = {**benchmark.left_out, **samples.left_out}
        unknown = samples.unknown + benchmark.unknown_count
        coverage = Coverage(samples.requests, samples.requests + unknown)
        for stat, value in _latency_statistics(samples.values):
            reason = _difference_words(value, benchmark.stated.get((figure, stat or "mean")), "s")
            yield Value(
                value=value,
                stat=stat,
                provenance=samples.provenance,
                reason=reason,
                left_out=left_out,
                coverage=coverage,
            )
        return
    stated = {stat: value for (name, stat), value in benchmark.stated.items() if name == figure}
    usual_stats = ("mean", *(f"p{percent}" for percent in _PERCENTILES))
    for stat in dict.fromkeys((*usual_stats, *stated)):
        shown = None if stat == "mean" else stat
        if stat in stated:
            yield Value(value=stated[stat], stat=shown, reason=_STATED)
        elif len(benchmark.requests):
            yield no_value("no answered request that the file lists has one", stat=shown)
        else:
            yield no_value(f"the file has only summaries: {stat} needs {_LISTS}", stat=shown)


def _latency_statistics(values: Seconds) -> Iterator[tuple[str | None, float]]:
    yield None, float(values.mean())
    for percent, value in zip(_PERCENTILES, np.percentile(values, _PERCENTILES).tolist(), strict=True):
        yield f"p{percent}", value


def _difference_words(value: float, stated: float | None, unit: str) -> str | None:
    if stated is None or abs(value - stated) <= _AGREE * abs(stated):
        return None
    return f"of the listed requests; the file's own summary states {humanise(stated, unit)}"


def rate_value(benchmark: Benchmark, figure: str, amount: Callable[[pa.Table], int | None]) -> Value:
    """Amount of the answered requests / duration; else what the file states."""
    stated, duration = benchmark.stated.get((figure, None)), benchmark.stated.get(("duration", None))
    listed = len(benchmark.requests) and not benchmark.requests["success"].null_count
    total = amount(benchmark.answered_requests) if listed else None
    if total is not None and duration:
        rate = total / duration
        return Value(value=rate, provenance="derived", reason=_difference_words(rate, stated, "1/s"))
    if stated is None:
        return no_value(f"the file states none; it needs the duration and {_LISTS}")
    return Value(value=stated, reason=_STATED)


def output_tokens(answered: pa.Table) -> int | None:
    """Output tokens of all answered requests; None where one has an unknown number."""
    tokens = answered["output_tokens"]
    return None if tokens.null_count else int(tokens.to_numpy().sum())


def _all_tokens(answered: pa.Table) -> int | None:
    tokens = answered["input_tokens"]
    input_tokens, produced_tokens = (
        (None if tokens.null_count else int(tokens.to_numpy().sum())),
        output_tokens(answered),
    )
    return None if input_tokens is None or produced_tokens is None else input_tokens + produced_tokens


@_latency_metric(
    "serving.ttft",
    definition="Time from sending a request to its first token; mean, p50, p90 and p99 over requests."
    + _POOLED,
    formula="first token − request sent; percentiles interpolate linearly between requests",
)
def ttft(run: RunView) -> Iterable[Value]:
    """Mean and percentiles of the time to first token."""
    return _latency_values(run, "ttft")


@_latency_metric(
    "serving.tpot",
    definition="Time per output token of a request after the first; mean, p50, p90 and p99 over requests with"
    " more than one output token." + _POOLED,
    formula="(last token − first token) / (output tokens − 1)",
)
def tpot(run: RunView) -> Iterable[Value]:
    """Mean and percentiles of the time per output token."""
    return _latency_values(run, "tpot")


@_latency_metric(
    "serving.itl",
    definition="Inter-token latency: time between consecutive chunks of a request that the client receives,"
    " of any number of tokens; mean, p50, p90 and p99 over all gaps of all requests." + _POOLED,
    formula="arrival − previous arrival, of the same request",
)
def itl(run: RunView) -> Iterable[Value]:
    """Mean and percentiles of the inter-token latency."""
    return _latency_values(run, "itl")


@_latency_metric(
    "serving.e2e_latency",
    definition="Time from sending a request to its last token; mean, p50, p90 and p99 over requests."
    + _POOLED,
    formula="last token − request sent, as listed; else time to first token + Σ inter-token latencies",
)
def e2e_latency(run: RunView) -> Iterable[Value]:
    """Mean and percentiles of the end-to-end latency."""
    return _latency_values(run, "e2e_latency")


@_rate_metric(
    "serving.request_throughput",
    definition="Answered requests per second of the benchmark.",
    formula="answered requests / duration",
)
def request_throughput(run: RunView) -> Iterable[Value]:
    """Answered requests a second."""
    return values_by_benchmark(
        run, lambda benchmark: iter([rate_value(benchmark, "request_throughput", len)])
    )


@_rate_metric(
    "serving.output_throughput",
    definition="Output tokens of answered requests per second of the benchmark.",
    formula="Σ output tokens / duration",
)
def output_throughput(run: RunView) -> Iterable[Value]:
    """Output tokens a second."""
    return values_by_benchmark(
        run, lambda benchmark: iter([rate_value(benchmark, "output_throughput", output_tokens)])
    )


def _per_device(run: RunView, figure: str, amount: Callable[[pa.Table], int | None]) -> Iterable[Value]:
    card_count = run.card and run.card.hardware.count

    def values(benchmark: Benchmark) -> Iterator[Value]:
        devices = benchmark.stated.get(("devices", None)) or card_count
        value = rate_value(benchmark, figure, amount)
        if not devices:
            yield no_value("needs a workload card with hardware.count")
        else:
            yield replace(value, value=value.value / devices) if value.value is not None else value

    return values_by_benchmark(run, values)


@_rate_metric(
    "serving.output_tokens_per_device",
    definition="Output tokens per second (serving.output_throughput) over the number of accelerators"
    " that the client's file states, or the card.",
    formula="Σ output tokens / (duration · accelerators)",
    inputs=("requests", "serving", "card: hardware.count"),
)
def output_tokens_per_device(run: RunView) -> Iterable[Value]:
    """Output tokens a second and accelerator."""
    return _per_device(run, "output_throughput", output_tokens)


@_rate_metric(
    "serving.total_tokens_per_device",
    definition="Input and output tokens of answered requests per second of the benchmark, over the number of"
    " accelerators that the client's file states, or the card.",
    formula="Σ (input + output tokens) / (duration · accelerators)",
    inputs=("requests", "serving", "card: hardware.count"),
)
def total_tokens_per_device(run: RunView) -> Iterable[Value]:
    """Tokens a second and accelerator."""
    return _per_device(run, "total_throughput", _all_tokens)


@_request_metric(
    "serving.load",
    definition="Load that the client offered: most requests at a time. Stat request_rate: requests sent per"
    " second, where that is limited; input_tokens, output_tokens: mean tokens of an answered request. Rows"
    " name what was served.",
    formula="as stated by the client's file; Σ tokens / answered requests",
    unit="count",
)
def load(run: RunView) -> Iterable[Value]:
    """Requests at a time, and their size."""
    return values_by_benchmark(run, _load_values)


def _load_values(benchmark: Benchmark) -> Iterator[Value]:
    served, stated = benchmark.workload, benchmark.stated
    concurrency, rate = (stated.get((name, None)) for name in ("max_concurrency", "request_rate"))
    if concurrency is None:
        yield no_value("the client limits no concurrency")
    else:
        yield Value(value=concurrency, reason=served)
    if rate is not None:
        yield Value(value=rate, stat="request_rate", unit="1/s", reason=served)
    completed = stated.get(("completed", None))
    for figure in ("input_tokens", "output_tokens"):
        total = stated.get((figure, None))
        if total is not None and completed:
            yield Value(value=total / completed, stat=figure, provenance="derived", reason=served)


@run_metric(
    "serving.goodput",
    definition="Requests answered within the client's service-level objectives, per second.",
    formula="good requests / duration, as stated by the client's file",
    unit="1/s",
    better="higher",
    inputs=("serving",),
    not_applicable=NO_OBJECTIVES,
)
def goodput(run: RunView) -> Iterable[Value]:
    """Requests a second that met their objectives."""
    return values_by_benchmark(run, _goodput_values)


def _goodput_values(benchmark: Benchmark) -> Iterator[Value]:
    stated = benchmark.stated.get(("goodput", None))
    if stated is None:
        yield no_value(NO_OBJECTIVES)
    else:
        yield Value(value=stated, reason=_STATED)
