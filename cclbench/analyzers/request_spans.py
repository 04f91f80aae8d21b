# SPDX-License-Identifier: Apache-2.0
"""Times of single requests by the server's spans: what a request and its first token wait for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa

from cclbench.analyzers.metric import Coverage, Value, no_value
from cclbench.analyzers.view.columns import has_values, with_values, with_words
from cclbench.analyzers.view.run_view import RunView
from cclbench.analyzers.view.values import NS_PER_S

SOURCE: Final = "otlp_spans"
PARTS: Final = ("queue", "prefill", "decode")
_COLUMNS: Final = {"ttft": "ttft_ns", "e2e_latency": "e2e_ns", **{part: f"{part}_ns" for part in PARTS}}
_PERCENTS: Final = (50, 90, 99)


def span_requests(run: RunView) -> pa.Table:
    """Answered requests that spans time, rows of `REQUESTS`."""
    requests = with_words(run.table("requests"), "source", (SOURCE,))
    return requests.filter(requests["success"].fill_null(False))


def span_request_times(requests: pa.Table) -> Iterator[Value]:
    """Mean time of a request and its parts, over requests that state all of them."""
    timed_requests = with_values(requests, "e2e_ns")
    if not len(timed_requests):
        yield no_value("no answered request states its end-to-end latency", source=SOURCE)
        return
    complete_requests = with_values(timed_requests, *(_COLUMNS[part] for part in PARTS))
    lacking = [part for part in PARTS if not has_values(timed_requests, _COLUMNS[part]).any()]
    split = complete_requests if len(complete_requests) else timed_requests
    words = f"of {len(split):,} requests by their spans"
    coverage = Coverage(len(split), len(requests))
    total = _mean_seconds(split, "e2e_ns")
    yield Value(value=total, reason=words, coverage=coverage, source=SOURCE)
    if not len(complete_requests):
        what = f"the spans do not time the {', '.join(lacking)}" if lacking else "no span states all parts"
        yield no_value(what, category="outside", source=SOURCE)
        return
    means = {part: _mean_seconds(complete_requests, _COLUMNS[part]) for part in PARTS}
    for part, mean in means.items():
        yield Value(value=mean, category=part, reason=words, coverage=coverage, source=SOURCE)
    rest = total - sum(means.values())
    clocks = "; below 0: the engine and its API server read other clocks" if rest < 0 else ""
    yield Value(
        value=rest,
        category="outside",
        provenance="derived",
        reason=f"{words}{clocks}",
        coverage=coverage,
        source=SOURCE,
    )


def span_latencies(requests: pa.Table) -> Iterator[Value]:
    """Mean, p50, p90 and p99 of each latency over the requests that state it."""
    latencies = requests["e2e_ns"].drop_null()
    if len(latencies):
        yield Value(value=_mean_seconds(requests, "e2e_ns"), reason="of the whole request", source=SOURCE)
    else:
        yield no_value("no answered request states its end-to-end latency", source=SOURCE)
    for name, column in _COLUMNS.items():
        seconds = requests[column].drop_null().to_numpy() / NS_PER_S
        if not len(seconds):
            continue
        coverage = Coverage(len(seconds), len(requests))
        stats: list[tuple[str | None, float]] = [(None, float(seconds.mean()))]
        stats += [
            (f"p{percent}", value)
            for percent, value in zip(_PERCENTS, np.percentile(seconds, _PERCENTS).tolist(), strict=True)
        ]
        for stat, value in stats:
            yield Value(value=value, category=name, stat=stat, coverage=coverage, source=SOURCE)


def first_token_parts(requests: pa.Table) -> tuple[float, float, float] | None:
    """Mean time to first token, s, and of it in queue and prefill; None where no request states all."""
    complete_requests = with_values(requests, "ttft_ns", "queue_ns", "prefill_ns")
    if not len(complete_requests):
        return None
    ttft, queue, prefill = (
        _mean_seconds(complete_requests, name) for name in ("ttft_ns", "queue_ns", "prefill_ns")
    )
    return ttft, queue, prefill


def _mean_seconds(requests: pa.Table, column: str) -> float:
    return float(requests[column].drop_null().to_numpy().mean()) / NS_PER_S
