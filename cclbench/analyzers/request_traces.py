# SPDX-License-Identifier: Apache-2.0
"""A request trace as a description of a workload: arrivals, lengths, and what a prefix cache could hold."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cclbench.analyzers.metric import NotApplicable, Value, no_value, run_metric
from cclbench.analyzers.view.columns import has_word
from cclbench.analyzers.view.run_view import RunView
from cclbench.ground.intervals import Int64

NO_TRACE: Final = "needs a trace of requests in Mooncake's format"
BLOCK_TOKENS: Final = 512
"""Tokens of a block of Mooncake's traces."""
_PERCENTS: Final = (50, 90, 99)
_trace_metric = partial(run_metric, inputs=("request_trace",), not_applicable=NO_TRACE)


def _values_by_trace(run: RunView, values: Callable[[pa.Table], Iterable[Value]]) -> Iterator[Value]:
    """The values of a single trace; of several, each with its file before its category."""
    table = run.table("request_trace")
    files = sorted(filter(None, table["file"].unique().to_pylist()))
    if not files:
        raise NotApplicable(NO_TRACE)
    if len(files) > 1:
        yield no_value(f"{len(files)} traces: see their rows", source="request_trace")
    for file in files:
        label = file if len(files) > 1 else None
        for value in values(table.filter(pa.array(has_word(table, "file", file)))):
            category = ": ".join(filter(None, (label, value.category))) or None
            yield replace(value, category=category, source="request_trace")


@_trace_metric(
    "requests.rate",
    definition="Arrivals per second, from the first to the last. Stat cv: coefficient of variation of the"
    " times between arrivals, 1 for a Poisson process; peak: the most arrivals in a minute, over 60 s, in"
    " minutes counted from the first arrival.",
    formula="(requests − 1) / (last arrival − first arrival)",
    unit="1/s",
)
def rate(run: RunView) -> Iterable[Value]:
    """Arrivals a second."""
    return _values_by_trace(run, _rate_values)


def _rate_values(trace: pa.Table) -> Iterator[Value]:
    arrivals = np.sort(trace["arrival_ns"].to_numpy())
    seconds = (arrivals[-1] - arrivals[0]) / 1e9
    if not seconds:
        yield no_value("all requests arrive at once")
        return
    count = len(arrivals)
    yield Value(value=float((count - 1) / seconds), reason=f"{count:,} requests in {seconds:,.0f} s")
    gaps = np.diff(arrivals)
    yield Value(value=float(gaps.std() / gaps.mean()), stat="cv", unit="1", provenance="derived")
    minutes = np.unique((arrivals - arrivals[0]) // (60 * 10**9), return_counts=True)[1]
    yield Value(value=float(minutes.max() / 60), stat="peak", provenance="derived")


@_trace_metric(
    "requests.tokens",
    definition="Tokens of a request, prompt and answer, the mean; by category input and output with p50, p90,"
    " p99 and max.",
    formula="Σ (input + output tokens) / requests",
    unit="count",
)
def tokens(run: RunView) -> Iterable[Value]:
    """Tokens of a request."""
    return _values_by_trace(run, _token_values)


def _token_values(trace: pa.Table) -> Iterator[Value]:
    lengths = {side: trace[f"{side}_tokens"].to_numpy() for side in ("input", "output")}
    yield Value(value=float((lengths["input"] + lengths["output"]).mean()))
    for side, token_counts in lengths.items():
        yield Value(value=float(token_counts.mean()), category=side)
        for percent, value in zip(_PERCENTS, np.percentile(token_counts, _PERCENTS).tolist(), strict=True):
            yield Value(value=value, category=side, stat=f"p{percent}")
        yield Value(value=float(token_counts.max()), category=side, stat="max")


@_trace_metric(
    "requests.prefix_reuse",
    definition="Share of the prompts' blocks that a prefix cache of unlimited size would hold: those of the"
    " longest prefix whose blocks all occur in an earlier request, in the order of arrival, as if each"
    " request were finished when the next one arrives. Real caches hold less. Stat tokens: the same of"
    " tokens, where blocks are of 512 tokens.",
    formula="Σ blocks of prefixes seen before / Σ blocks",
    unit="1",
    better="higher",
)
def prefix_reuse(run: RunView) -> Iterable[Value]:
    """Share of blocks that an unlimited prefix cache would hold."""
    return _values_by_trace(run, _prefix_values)


def _prefix_values(trace: pa.Table) -> Iterator[Value]:
    if trace["blocks"].null_count:
        yield no_value(f"{trace['blocks'].null_count:,} requests have no ids of blocks")
        return
    trace = trace.sort_by([("arrival_ns", "ascending"), ("request", "ascending")])
    lists = trace["blocks"].combine_chunks()
    counts = lists.value_lengths().to_numpy().astype(np.int64)
    if not counts.sum():
        yield no_value("no request has a block")
        return
    held = leading_blocks(lists.flatten().to_numpy(), counts)
    words = f"{held.sum():,} of {counts.sum():,} blocks"
    yield Value(value=float(held.sum() / counts.sum()), provenance="derived", reason=words)
    inputs = trace["input_tokens"].to_numpy()
    if (-(-inputs // BLOCK_TOKENS) != counts).any():
        yield no_value(f"blocks are not of {BLOCK_TOKENS} tokens", stat="tokens")
        return
    cached = np.minimum(held * BLOCK_TOKENS, inputs)
    yield Value(value=float(cached.sum() / inputs.sum()), stat="tokens", provenance="derived")


def leading_blocks(blocks: npt.NDArray[np.int64], counts: Int64) -> Int64:
    """Number of blocks at the begin of each request that all occur in earlier ones.

    `blocks` are those of all requests in order, `counts` their number in each.
    """
    request = np.repeat(np.arange(len(counts)), counts)
    _, first, number = np.unique(blocks, return_index=True, return_inverse=True)
    is_new = request[first[number]] == request
    begins = np.cumsum(counts) - counts
    within = np.arange(len(blocks)) - np.repeat(begins, counts)
    held = counts.copy()
    np.minimum.at(held, request[is_new], within[is_new])
    return held
