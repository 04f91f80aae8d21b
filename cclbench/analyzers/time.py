# SPDX-License-Identifier: Apache-2.0
"""Time: where a step goes, an exact partition per rank and window."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from cclbench.analyzers.idle import Idle
from cclbench.analyzers.metric import NotApplicable, Value, metric
from cclbench.analyzers.values import by_step, per_step
from cclbench.analyzers.view import RankView


def slowest_rank_each_step(ranks: Mapping[int, Sequence[Value]]) -> Iterable[Value]:
    """Mean over steps of the maximum over ranks; p50, p95, max and cv of those maxima."""
    longest = {step: max(lengths) for step, lengths in by_step(ranks).items()}
    lengths = np.array(list(longest.values()))
    yield Value(value=float(lengths.mean()))
    yield Value(value=float(np.percentile(lengths, 50)), stat="p50")
    yield Value(value=float(np.percentile(lengths, 95)), stat="p95")
    yield Value(value=float(lengths.max()), stat="max")
    if len(lengths) > 1:
        yield Value(value=float(lengths.std(ddof=1) / lengths.mean()), stat="cv", unit="1")
    for step in sorted(s for s in longest if s is not None):
        yield Value(value=longest[step], step=step)


@metric(
    "time.step",
    definition="Length of the window. The run's value is the mean over steps of the slowest rank's window.",
    formula="W",
    unit="s",
    better="lower",
    combine=slowest_rank_each_step,
    not_applicable="the trace holds no work",
)
def step(rank: RankView) -> Iterator[Value]:
    yield from per_step(rank, rank.parts.window)


@metric(
    "time.compute_only",
    definition="Time in which kernels compute and no communication runs.",
    formula="|C| − |C∩K|",
    unit="s",
    better=None,
)
def compute_only(rank: RankView) -> Iterator[Value]:
    yield from per_step(rank, rank.parts.compute_only)


@metric(
    "time.overlapped",
    definition="Time in which kernels compute while communication runs.",
    formula="|C∩K|",
    unit="s",
    better=None,
)
def overlapped(rank: RankView) -> Iterator[Value]:
    yield from per_step(rank, rank.parts.overlapped)


@metric(
    "time.exposed_comm",
    definition="Time in which communication runs and nothing computes.",
    formula="|K| − |C∩K|",
    unit="s",
    better="lower",
)
def exposed_comm(rank: RankView) -> Iterator[Value]:
    yield from per_step(rank, rank.parts.exposed_comm)


@metric(
    "time.exposed_copy",
    definition="Time in which only copies and memsets run.",
    formula="|M \\ (C∪K)|",
    unit="s",
    better="lower",
)
def exposed_copy(rank: RankView) -> Iterator[Value]:
    yield from per_step(rank, rank.parts.exposed_copy)


@metric(
    "time.idle",
    definition="Time in which the device runs nothing.",
    formula="W − |C∪K∪M|",
    unit="s",
    better="lower",
)
def idle(rank: RankView) -> Iterator[Value]:
    yield from per_step(rank, rank.parts.idle)


_GAPS = (
    "A gap belongs to the device event at whose start it ends, also where a window's edge cuts it; of"
    " several events that start there, to the one on the lowest stream. A stream is free from the end"
    " of its previous event on, the first event's since ever; a launch begins at its call's start."
    " The three kinds of idle time sum to time.idle."
)


@metric(
    "time.idle_host",
    definition="Idle time before a device event that was launched later than its stream became free:"
    f" the device waits for the host. {_GAPS}",
    formula="Σ |gap ∩ W| over gaps with launch start > stream free",
    unit="s",
    better="lower",
    not_applicable="no launch in the trace is linked to what it launched, or the CPU is the device",
)
def idle_host(rank: RankView) -> Iterator[Value]:
    yield from per_step(rank, rank.inside(_linked(rank).host))


@metric(
    "time.idle_device",
    definition="Idle time before a device event that was launched no later than its stream became free:"
    f" it waits for another stream, an event or the device's own scheduling. {_GAPS}",
    formula="Σ |gap ∩ W| over gaps with launch start ≤ stream free",
    unit="s",
    better="lower",
    not_applicable="no launch in the trace is linked to what it launched, or the CPU is the device",
)
def idle_device(rank: RankView) -> Iterator[Value]:
    yield from per_step(rank, rank.inside(_linked(rank).device))


@metric(
    "time.idle_unknown",
    definition="Idle time before a device event without a launch record, or that no device event follows."
    f" {_GAPS}",
    formula="Σ |gap ∩ W| over the other gaps",
    unit="s",
    better="lower",
    not_applicable="the CPU is the device",
)
def idle_unknown(rank: RankView) -> Iterator[Value]:
    yield from per_step(rank, rank.inside(rank.idle.unknown))


def _linked(rank: RankView) -> Idle:
    if not rank.idle.any_launch:
        raise NotApplicable("no launch in the trace is linked to what it launched: all idle time is unknown")
    return rank.idle
