# SPDX-License-Identifier: Apache-2.0
"""Throughput: what the card says a step works on, over the step time."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from cclbench.analyzers.metric import Value, metric
from cclbench.analyzers.view.platform import card_field, samples_per_step, tokens_per_sample
from cclbench.analyzers.view.rank_view import RankView
from cclbench.analyzers.view.values import rate_at_slowest_rank, rate_per_step

_INPUTS = ("events", "steps", "card: workload.phase, workload.batch")
_throughput = partial(
    metric,
    unit="1/s",
    better="higher",
    inputs=_INPUTS,
    not_applicable="there is no card or it lacks a field, the trace marks no steps, or a step serves a part"
    " of many requests",
    combine=rate_at_slowest_rank,
    rank_rows=False,
    graphs="counted",
)


@_throughput(
    "throughput.samples",
    definition="Samples per second of the whole run: the card's global batch over the step time.",
    formula="batch.global / time.step",
)
def samples(rank: RankView) -> Iterator[Value]:
    yield from rate_per_step(rank, samples_per_step(rank))


@_throughput(
    "throughput.tokens",
    definition="Tokens per second of the whole run: global batch times sequence length (an inference"
    " request's input length) over the step time.",
    formula="batch.global · batch.sequence_length / time.step",
)
def tokens(rank: RankView) -> Iterator[Value]:
    yield from rate_per_step(rank, samples_per_step(rank) * tokens_per_sample(rank))


@_throughput(
    "throughput.tokens_per_device",
    definition="Tokens per second (throughput.tokens) over the card's number of accelerators.",
    formula="batch.global · batch.sequence_length / (time.step · hardware.count)",
    inputs=(*_INPUTS, "card: hardware.count"),
)
def tokens_per_device(rank: RankView) -> Iterator[Value]:
    per_step = samples_per_step(rank) * tokens_per_sample(rank)
    yield from rate_per_step(rank, per_step / int(card_field(rank, "hardware.count")))
