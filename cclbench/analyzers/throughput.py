# SPDX-License-Identifier: Apache-2.0
"""Throughput: samples or tokens of a step, by the card, over the step time."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final, NoReturn

from cclbench.analyzers.metric import NotApplicable, Value, metric, run_metric
from cclbench.analyzers.view.platform import card_field, samples_per_step, tokens_per_sample
from cclbench.analyzers.view.rank_view import RankView
from cclbench.analyzers.view.run_view import RunView
from cclbench.analyzers.view.values import rate_at_slowest_rank, rate_per_step

_INPUTS = ("events", "steps", "card: workload.phase, workload.batch")
_ONE_RUN: Final = "needs two runs on different numbers of devices: cclbench compare A B"
_throughput = partial(
    metric,
    unit="1/s",
    better="higher",
    inputs=_INPUTS,
    not_applicable="there is no card or it lacks a field, the trace marks no steps, or a step serves parts of"
    " many requests",
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


@run_metric(
    "scaling.efficiency",
    definition="Throughput per device with more devices over that with fewer, of two runs that `cclbench"
    " compare` compares: strong scaling with equal global batch, weak scaling with equal batch per device."
    " The cards must otherwise state the same work, and there is no strong scaling where the traces refute"
    " equal work. With the interval of the ratio, as in verdicts.",
    formula="throughput.tokens_per_device on more devices / on fewer",
    unit="1",
    better="higher",
    inputs=("throughput.tokens_per_device of two runs", "card: workload.batch.global, hardware.count"),
    not_applicable=_ONE_RUN,
)
def scaling_efficiency(_: RunView) -> NoReturn:
    raise NotApplicable(_ONE_RUN)
