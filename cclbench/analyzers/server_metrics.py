# SPDX-License-Identifier: Apache-2.0
"""Serving as the engine's own metrics state it: parts of a request's time, latencies, prefix hits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from math import isfinite
from typing import Final

import pyarrow as pa

from cclbench.analyzers.metric import NotApplicable, Value, no_value, run_metric
from cclbench.analyzers.request_spans import span_latencies, span_request_times, span_requests
from cclbench.analyzers.view.run_view import RunView
from cclbench.analyzers.view.server_metrics import SINCE_START, ServerCounts, labelled_servers, server_counts

NO_METRICS: Final = (
    "needs snapshots of the server's metrics: curl http://SERVER/metrics before and after; or its spans"
)
_PARTS: Final = ("queue", "prefill", "decode")
_PERCENTS: Final = (50, 90, 99)
_LATENCIES: Final = (
    *("ttft", "tpot", "itl", "e2e_latency", "queue", "prefill", "decode", "inference", "transfer"),
)
_server_metric = partial(
    run_metric, inputs=("server_metrics", "requests"), not_applicable=NO_METRICS, unit="s", better="lower"
)


def _values_by_server(
    run: RunView,
    values: Callable[[ServerCounts], Iterable[Value]],
    by_span: Callable[[pa.Table], Iterable[Value]] | None = None,
) -> Iterator[Value]:
    """The values of a single server; of several, each with the server's label before its category.

    Without snapshots, those of the requests that spans time.
    """
    counts = server_counts(run)
    if not counts:
        requests = span_requests(run)
        if by_span is None or not len(requests):
            raise NotApplicable(NO_METRICS)
        yield from by_span(requests)
        return
    if len(counts) > 1:
        yield no_value(f"{len(counts)} servers: see their rows", source="prometheus")
    for label, server in labelled_servers(counts):
        for value in [no_value(server.problem)] if server.problem else values(server):
            since = SINCE_START if server.since_start and value.has_value else None
            reason = "; ".join(filter(None, (value.reason, since))) or None
            category = ": ".join(filter(None, (label, value.category))) or None
            yield replace(value, category=category, reason=reason, source="prometheus")


@_server_metric(
    "serving.request_time",
    definition="Time of a request in the server, the mean over finished requests, and its parts by category:"
    " queue (arrival to first scheduling), prefill (to the first token), decode (to the last token), and"
    " outside, the rest, which the engine does not time: the API server, tokenisation, detokenisation. The"
    " parts add up to the whole. A transfer of KV blocks between servers is not a part of its own: in vLLM a"
    " request waits for it in the queue of the server that decodes (serving.server_latency has its time)."
    " Counts are those between the snapshots. Without snapshots: the mean over answered requests whose"
    " OpenTelemetry spans state all parts.",
    formula="Δsum / Δcount of each histogram; outside = whole − queue − prefill − decode",
)
def request_time(run: RunView) -> Iterable[Value]:
    """Mean time of a request and of its parts."""
    return _values_by_server(run, _request_time_values, span_request_times)


def _request_time_values(counts: ServerCounts) -> Iterator[Value]:
    latency = counts.histograms.get("e2e_latency")
    if latency is None or not latency.count:
        yield no_value("no request finished" if latency else "the snapshots have no e2e latency")
        return
    words = f"of {latency.count:,} requests"
    yield Value(value=latency.total / latency.count, reason=words)
    histograms = {part: counts.histograms.get(part) for part in _PARTS}
    if lacking := [part for part, histogram in histograms.items() if histogram is None]:
        yield no_value(f"the server does not time its {', '.join(lacking)}", category="outside")
        return
    parts = {part: histogram for part, histogram in histograms.items() if histogram is not None}
    if others := [part for part, histogram in parts.items() if histogram.count != latency.count]:
        part_counts = ", ".join(f"{part} {parts[part].count:,}" for part in others)
        yield no_value(
            f"{latency.count:,} requests finished, but {part_counts} were timed", category="outside"
        )
        return
    for part, histogram in parts.items():
        yield Value(value=histogram.total / latency.count, category=part, reason=words)
    rest = latency.total - sum(histogram.total for histogram in parts.values())
    clocks = "; below 0: the engine and its API server read other clocks" if rest < 0 else ""
    yield Value(
        value=rest / latency.count, category="outside", provenance="derived", reason=f"{words}{clocks}"
    )


@_server_metric(
    "serving.server_latency",
    definition="Latencies by the server's histograms, by category: ttft, tpot, itl, e2e_latency, queue,"
    " prefill, decode, inference, transfer (of KV blocks between servers): the mean, and for p50, p90 and p99"
    " the bounds of the bucket that holds them (stats p99_low and p99_high): a histogram does not say more,"
    " and nothing is interpolated. Percentile p is the ⌈p · count⌉-th smallest observation. The server's"
    " clock begins when the request arrives: a client's latency is longer. Without snapshots: over the"
    " requests that OpenTelemetry spans time, whose percentiles p50, p90 and p99 are exact.",
    formula="Δsum / Δcount; bounds of the first bucket whose Δcount reaches ⌈p · Δcount⌉",
)
def server_latency(run: RunView) -> Iterable[Value]:
    """Means and bounds of percentiles by the server's histograms."""
    return _values_by_server(run, _server_latency_values, span_latencies)


def _server_latency_values(counts: ServerCounts) -> Iterator[Value]:
    names = [name for name in _LATENCIES if name in counts.histograms]
    latency = counts.histograms.get("e2e_latency")
    if latency is not None and latency.count:
        yield Value(value=latency.mean, reason="of the whole request")
    else:
        yield no_value("no request finished" if names else "the snapshots have no latency")
    for name in names:
        histogram = counts.histograms[name]
        if not histogram.count:
            yield no_value("no observation", category=name)
            continue
        yield Value(value=histogram.mean, category=name)
        for percent in _PERCENTS:
            bounds = histogram.quantile_bounds(percent)
            for end, bound in zip(("low", "high"), bounds or (None, None), strict=True):
                stat = f"p{percent}_{end}"
                if bound is None:
                    yield no_value(
                        "its buckets do not add up, or differ between servers", category=name, stat=stat
                    )
                elif isfinite(bound):
                    yield Value(value=bound, category=name, stat=stat)
                else:
                    yield no_value("beyond the last bucket", category=name, stat=stat)


@_server_metric(
    "serving.kv_transfer",
    definition="Bytes of KV cache that one transfer between a prefill and a decode instance moves, by the"
    " server's histograms, or by the counters of NIXL's agent, the mean. Stat sum: of all transfers. Stat"
    " bandwidth: bytes per second of a transfer's time, where as many are timed as sized: less than the"
    " link's where transfers share it. SGLang's time begins when the transfer is queued.",
    formula="Δbytes / Δtransfers; bandwidth = Δbytes / Δtime",
    unit="B",
    better=None,
)
def kv_transfer(run: RunView) -> Iterable[Value]:
    """Size and bandwidth of KV-cache transfers."""
    return _values_by_server(run, _transfer_values)


def _transfer_values(counts: ServerCounts) -> Iterator[Value]:
    sizes, times = (counts.histograms.get(name) for name in ("transferred_bytes", "transfer"))
    if sizes is not None:
        total, number = sizes.total, int(sizes.count)
    else:
        total, number = _agent_transfers(counts)
    if not number:
        stated = sizes is not None or "sent_bytes" in counts.totals
        yield no_value("no transfer finished" if stated else "the snapshots do not count transferred bytes")
        return
    yield Value(value=total / number, reason=f"of {number:,} transfers")
    yield Value(value=total, stat="sum")
    if times is not None and times.count == number and times.total > 0:
        rate = total / times.total
        yield Value(value=rate, stat="bandwidth", unit="B/s", provenance="derived")
    else:
        why = "the snapshots do not time transfers" if times is None else "not all transfers are timed"
        yield no_value(why, stat="bandwidth", unit="B/s")


def _agent_transfers(counts: ServerCounts) -> tuple[float, int]:
    """Bytes and number of the transfers that NIXL's agent posted, writes and reads."""
    total, number = (
        sum(counts.totals.get(f"{way}_{what}", 0.0) for way in ("sent", "received"))
        for what in ("bytes", "transfers")
    )
    return total, int(number)


@_server_metric(
    "serving.prefix_hit_rate",
    definition="Share of the prompt's tokens that the prefix cache held, by the server's counters of tokens"
    " queried and hit.",
    formula="Δhits / Δqueries",
    unit="1",
    better="higher",
)
def prefix_hit_rate(run: RunView) -> Iterable[Value]:
    """Share of queried tokens that were cached."""
    return _values_by_server(run, _prefix_values)


def _prefix_values(counts: ServerCounts) -> Iterator[Value]:
    queries, hits = counts.totals.get("prefix_queries"), counts.totals.get("prefix_hits")
    if queries is None or hits is None:
        yield no_value("the snapshots do not count tokens of the prefix cache")
    elif not queries:
        yield no_value("no token was queried")
    else:
        yield Value(
            value=hits / queries, provenance="derived", reason=f"{hits:,.0f} of {queries:,.0f} tokens"
        )
