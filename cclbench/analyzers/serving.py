# SPDX-License-Identifier: Apache-2.0
"""Serving: what a client measures of a server, which no kernel trace knows.

Where its file lists the requests, figures are of the requests that were answered; else they are those
that the file itself states.  Percentiles interpolate linearly between order statistics, as numpy does; of
benchmarks that repeat one another they are those of all requests together, never means of percentiles.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

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

NO_CLIENT: Final = "a kernel trace sees no requests and no tokens; it takes the client's benchmark file"
NO_OBJECTIVES: Final = "the client was given no service-level objectives (vllm bench serve --goodput)"
_LISTS: Final = "the requests' lists (vLLM: --save-detailed, SGLang: --output-details)"
_STATED: Final = "as the client's file states it"
_PERCENTILES: Final = (50, 90, 99)
_AGREE: Final = 0.01
"""Relative difference up to which the requests and the file's own figure are taken to say the same."""

LATENCIES: Final[Mapping[str, Callable[[pa.Table], Samples]]] = {
    "ttft": ttft_of,
    "tpot": tpot_of,
    "itl": itl_of,
    "e2e_latency": e2e_of,
}
"""Of answered requests, by the figure's name."""
_POOLED: Final = (
    " Of benchmarks that repeat one another (files of equal settings that are named alike but for the last"
    " number) also of all their requests together, which is the run's own figure where all benchmarks do."
)
_request_metric = partial(run_metric, inputs=("requests", "serving"), not_applicable=NO_CLIENT)
_latency_metric = partial(_request_metric, unit="s", better="lower")
_rate_metric = partial(_request_metric, unit="1/s", better="higher")


def of_each_benchmark(run: RunView, values: Callable[[Benchmark], Iterator[Value]]) -> Iterable[Value]:
    """The values of the one benchmark; of several, each one's under its own label."""
    found = run_benchmarks(run)
    if not found:
        raise NotApplicable(NO_CLIENT)
    if len(found) == 1:
        return [replace(value, source="serving") for value in values(found[0])]
    several = [replace(value, category=one.label) for one in found for value in values(one)]
    whole = f"{len(found)} benchmarks: see their rows"
    if not any(value.has_value for value in several):
        whole = "; ".join(dict.fromkeys(value.reason or "" for value in several if value.stat is None))
    return [replace(value, source="serving") for value in (no_value(whole), *several)]


def _latency_values(run: RunView, figure: str) -> Iterator[Value]:
    """The values of each benchmark; of those that repeat one another also of their requests together.

    Where all of the run's do, these are the run's own.
    """
    whole, *parts = of_each_benchmark(run, lambda one: latency_values(one, figure))
    found = run_benchmarks(run)
    for repeats in repeated_benchmarks(found):
        together = pool_benchmarks(repeats)
        if together is None:
            continue
        said = f"of all requests of {len(repeats)} repeats together"
        own = [
            replace(value, source="serving", reason="; ".join(filter(None, (said, value.reason))))
            for value in latency_values(together, figure)
        ]
        if len(repeats) == len(found):
            whole, *more = own
            parts = [*more, *parts]
        else:
            parts += [replace(value, category=f"repeats of {repeats[0].label}") for value in own]
    yield whole
    yield from parts


def latency_values(one: Benchmark, figure: str) -> Iterator[Value]:
    """Mean and percentiles of the requests' times, else what the file states."""
    found = LATENCIES[figure](one.answered_requests)
    if len(found.values):
        left_out = {**one.left_out, **found.left_out}
        unknown = found.unknown + one.unknown_count
        coverage = Coverage(found.requests, found.requests + unknown)
        for stat, value in _latency_statistics(found.values):
            reason = _difference_words(value, one.stated.get((figure, stat or "mean")), "s")
            yield Value(
                value=value,
                stat=stat,
                provenance=found.provenance,
                reason=reason,
                left_out=left_out,
                coverage=coverage,
            )
        return
    stated = {stat: value for (name, stat), value in one.stated.items() if name == figure}
    wanted = ("mean", *(f"p{percent}" for percent in _PERCENTILES))
    for stat in dict.fromkeys((*wanted, *stated)):
        shown = None if stat == "mean" else stat
        if stat in stated:
            yield Value(value=stated[stat], stat=shown, reason=_STATED)
        elif len(one.requests):
            yield no_value("no answered request in the file's lists has one", stat=shown)
        else:
            yield no_value(f"the file holds summaries only: {stat} needs {_LISTS}", stat=shown)


def _latency_statistics(values: Seconds) -> Iterator[tuple[str | None, float]]:
    yield None, float(values.mean())
    for percent, value in zip(_PERCENTILES, np.percentile(values, _PERCENTILES).tolist(), strict=True):
        yield f"p{percent}", value


def _difference_words(value: float, stated: float | None, unit: str) -> str | None:
    if stated is None or abs(value - stated) <= _AGREE * abs(stated):
        return None
    return f"of the requests listed; the file's own summary says {humanise(stated, unit)}"


def rate_value(one: Benchmark, figure: str, amount: Callable[[pa.Table], int | None]) -> Value:
    """Amount of the answered requests / duration; else what the file states."""
    stated, duration = one.stated.get((figure, None)), one.stated.get(("duration", None))
    told = len(one.requests) and not one.requests["success"].null_count
    total = amount(one.answered_requests) if told else None
    if total is not None and duration:
        rate = total / duration
        return Value(value=rate, provenance="derived", reason=_difference_words(rate, stated, "1/s"))
    if stated is None:
        return no_value(f"the file states none, and it needs the duration and {_LISTS}")
    return Value(value=stated, reason=_STATED)


def output_tokens(answered: pa.Table) -> int | None:
    """Of all answered requests; None where one has an unknown number."""
    tokens = answered["output_tokens"]
    return None if tokens.null_count else pc.sum(tokens, min_count=0).as_py()


def _all_tokens(answered: pa.Table) -> int | None:
    tokens = answered["input_tokens"]
    given, made = (
        (None if tokens.null_count else pc.sum(tokens, min_count=0).as_py()),
        output_tokens(answered),
    )
    return None if given is None or made is None else given + made


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
    definition="Mean time between a request's output tokens after the first; mean, p50, p90 and p99 over"
    " requests of more than one output token." + _POOLED,
    formula="(last token − first token) / (output tokens − 1)",
)
def tpot(run: RunView) -> Iterable[Value]:
    """Mean and percentiles of the time per output token."""
    return _latency_values(run, "tpot")


@_latency_metric(
    "serving.itl",
    definition="Time between what the client receives one after another of a request, whatever number of"
    " tokens it carries; mean, p50, p90 and p99 over all gaps of all requests." + _POOLED,
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
    definition="Requests answered per second of the benchmark.",
    formula="answered requests / duration",
)
def request_throughput(run: RunView) -> Iterable[Value]:
    """Answered requests a second."""
    return of_each_benchmark(run, lambda one: iter([rate_value(one, "request_throughput", len)]))


@_rate_metric(
    "serving.output_throughput",
    definition="Output tokens of answered requests per second of the benchmark.",
    formula="Σ output tokens / duration",
)
def output_throughput(run: RunView) -> Iterable[Value]:
    """Output tokens a second."""
    return of_each_benchmark(run, lambda one: iter([rate_value(one, "output_throughput", output_tokens)]))


def _device_count(run: RunView) -> int:
    count = run.card and run.card.hardware.count
    if not count:
        raise NotApplicable("needs a workload card with hardware.count")
    return count


def _per_device(run: RunView, figure: str, amount: Callable[[pa.Table], int | None]) -> Iterable[Value]:
    devices = _device_count(run)
    for value in of_each_benchmark(run, lambda one: iter([rate_value(one, figure, amount)])):
        yield replace(value, value=value.value / devices) if value.value is not None else value


@_rate_metric(
    "serving.output_tokens_per_device",
    definition="Output tokens per second (serving.output_throughput) over the card's number of accelerators.",
    formula="Σ output tokens / (duration · hardware.count)",
    inputs=("requests", "serving", "card: hardware.count"),
)
def output_tokens_per_device(run: RunView) -> Iterable[Value]:
    """Output tokens a second and accelerator."""
    return _per_device(run, "output_throughput", output_tokens)


@_rate_metric(
    "serving.total_tokens_per_device",
    definition="Input and output tokens of answered requests per second of the benchmark, over the card's"
    " number of accelerators.",
    formula="Σ (input + output tokens) / (duration · hardware.count)",
    inputs=("requests", "serving", "card: hardware.count"),
)
def total_tokens_per_device(run: RunView) -> Iterable[Value]:
    """Tokens a second and accelerator."""
    return _per_device(run, "total_throughput", _all_tokens)


@run_metric(
    "serving.goodput",
    definition="Requests answered within the service-level objectives the client was given, per second.",
    formula="good requests / duration, as the client's file states it",
    unit="1/s",
    better="higher",
    inputs=("serving",),
    not_applicable=NO_OBJECTIVES,
)
def goodput(run: RunView) -> Iterable[Value]:
    """Requests a second that met their objectives."""
    return of_each_benchmark(run, _goodput_values)


def _goodput_values(one: Benchmark) -> Iterator[Value]:
    stated = one.stated.get(("goodput", None))
    if stated is None:
        yield no_value(NO_OBJECTIVES)
    else:
        yield Value(value=stated, reason=_STATED)
