# SPDX-License-Identifier: Apache-2.0
"""Disaggregated serving: what the first token of a request waits for, and how fast its KV cache is sent."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final

import numpy as np

from cclbench.analyzers.metric import Coverage, NotApplicable, Value, no_value, run_metric
from cclbench.analyzers.request_spans import SOURCE
from cclbench.analyzers.view.run_view import RunView
from cclbench.analyzers.view.served_apart import HIDDEN, UNATTRIBUTED, FirstTokens, first_tokens
from cclbench.analyzers.view.values import NS_PER_S
from cclbench.ground.intervals import Int64

NOT_APART: Final = "needs spans of requests that a prefill and a decode instance both state by one id"
SHOWN_PARTS: Final = ("queue", "prefill", "transfer", "kv_wait", "first_token", UNATTRIBUTED)
"""Parts in the order of a request's life; they add up to its time to first token."""
_PERCENTS: Final = (50, 90, 99)
_value = partial(Value, source=SOURCE)
_none = partial(no_value, source=SOURCE)


def split_requests(run: RunView) -> FirstTokens | None:
    """The requests that two instances served; None where the run has none."""
    split = first_tokens(run.table("request_stages"))
    return split if split.joined else None


@run_metric(
    "serving.first_token",
    definition="Time to first token of requests that one instance prefills and another decodes, joined by"
    " the id that both state, and its parts by category, which add up to it: queue (waits to be scheduled,"
    " on both instances), prefill, transfer (of the KV cache, where nothing else of the request proceeds),"
    " kv_wait (the decode instance waits for the cache, and no span says what the wait consists of: vLLM's"
    " queue contains the transfer), first_token (its first step), unattributed (none of these: routers, API"
    " servers, tokenisation). Mean, p50, p90, p99 over requests: percentiles of parts do not add up."
    " hidden_transfer: transfer during the prefill, layer by layer, which is no part. The time begins at the"
    " first arrival at either instance. Requests are split if all their spans state one host: clocks of two"
    " hosts differ by an unknown offset. Of others only prefill is known, and with stat max_mean the mean of"
    " the most that transfer can take: what the prefill instance sends after its prefill, or what the other"
    " waits for the cache. Spans of an instance that state no host are taken to be of one clock.",
    formula="|W ∩ P|, |W ∩ F \\\\ P|, |W ∩ Q \\\\ (P ∪ F)|, |W ∩ T \\\\ (P ∪ F ∪ Q)|, ...;"
    " W = [first arrival, first token)",
    unit="s",
    better="lower",
    inputs=("request_stages",),
    not_applicable=NOT_APART,
)
def first_token(run: RunView) -> Iterator[Value]:
    """Time to first token and its parts."""
    split = split_requests(run)
    if split is None:
        raise NotApplicable(NOT_APART)
    count, joined = len(split.ttft), split.joined
    why = "; ".join(
        f"{number:,} requests are not split: {reason}" for reason, number in split.unsplit.items()
    )
    if not count:
        yield _none(f"not known because {why}")
        for part in SHOWN_PARTS:
            if part != "prefill":
                yield _none(
                    "not known because clocks of the requests' spans have no known offset", category=part
                )
        if len(split.prefill):
            coverage = Coverage(len(split.prefill), joined)
            yield from _spread(split.prefill, "prefill", coverage)
            most = float(split.most_transfer.mean()) / NS_PER_S
            yield _value(
                value=most, category="transfer", stat="max_mean", coverage=coverage, provenance="derived"
            )
        return
    coverage = Coverage(count, joined)
    words = "; ".join(filter(None, (f"of {count:,} requests by their spans", why)))
    yield from _spread(split.ttft, None, coverage, words)
    for part in (*SHOWN_PARTS, HIDDEN):
        yield from _spread(split.parts[part], part, coverage)


def _spread(
    times: Int64, category: str | None, coverage: Coverage, reason: str | None = None
) -> Iterator[Value]:
    value = partial(_value, category=category, coverage=coverage, provenance="derived", reason=reason)
    yield value(value=int(times.sum()) / len(times) / NS_PER_S)
    for percent, time in zip(_PERCENTS, np.percentile(times, _PERCENTS).tolist(), strict=True):
        yield value(value=time / NS_PER_S, stat=f"p{percent}")
