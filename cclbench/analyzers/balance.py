# SPDX-License-Identifier: Apache-2.0
"""Balance: whether ranks have equal work, and which rank is late."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from cclbench.analyzers.metric import (
    MATCHED,
    REPLAY,
    Coverage,
    NotApplicable,
    Value,
    metric,
    run_metric,
)
from cclbench.analyzers.view.arrivals import arrivals_of
from cclbench.analyzers.view.late_cause import RankWork, late_cause, rank_work, serves_experts
from cclbench.analyzers.view.late_rank import late_rank
from cclbench.analyzers.view.lateness import Lateness, step_lateness
from cclbench.analyzers.view.meetings import (
    CollectiveInstances,
    parts_of,
    rank_meetings,
    value_over_instances,
)
from cclbench.analyzers.view.rank_view import RankView
from cclbench.analyzers.view.run_view import RunView
from cclbench.analyzers.view.values import NS_PER_S
from cclbench.ground.units import humanise


def max_over_mean(ranks: Mapping[int, Sequence[Value]]) -> Iterable[Value]:
    """Largest compute time of a rank over the mean of all ranks."""
    values = [value for rank in sorted(ranks) for value in ranks[rank]]
    times = [value.value or 0.0 for value in values]
    if len(times) < 2:
        raise NotApplicable("needs at least two ranks")
    if not sum(times):
        raise NotApplicable("no rank computes in the window")
    worlds = [value.detail for value in values if isinstance(value.detail, int)]
    yield Value(
        value=max(times) * len(times) / sum(times),
        reason=f"over {len(times)} ranks",
        coverage=Coverage(len(times), max(worlds, default=len(times))),
    )


@metric(
    "balance.load_imbalance",
    definition="Compute time of the busiest rank over that of the average rank; communication kernels do not"
    " count. 1 is perfect balance. Partial where ranks have no trace.",
    formula="max over ranks |C| / mean over ranks |C|, |C| being a rank's mean over its steps",
    unit="ratio",
    better="lower",
    not_applicable="there is only one rank, or none computes",
    combine=max_over_mean,
    rank_rows=False,
)
def load_imbalance(rank: RankView) -> Value:
    ns = rank.parts.compute_only + rank.parts.overlapped
    return Value(value=int(ns.sum()) / (len(ns) * NS_PER_S), detail=rank.facts.world_size)


_MATCHED = (MATCHED, "steps")
_NONE = "none of the window's collectives is matched across all the ranks of its group"


def _run_lateness(ranks: Mapping[int, Sequence[Value]]) -> tuple[CollectiveInstances, Lateness]:
    """The run's collective instances and the ranks' lateness; `NotApplicable` without instances."""
    instances = rank_meetings(ranks)
    residual_ns = max(part.clock_residual_ns for part in parts_of(ranks).values())
    return instances, step_lateness(instances, residual_ns)


def waits_over_window(ranks: Mapping[int, Sequence[Value]]) -> Iterable[Value]:
    """Mean over ranks of |∪ waits| / ΣW."""
    instances, late = _run_lateness(ranks)
    parts = parts_of(ranks)
    shares = [
        waited_ns / parts[rank].window_ns
        for rank, waited_ns in zip(late.ranks, late.waited_ns.sum(axis=1).tolist(), strict=True)
    ]
    across = f"; {late.across} across pipeline stages left out" if late.across else ""
    yield value_over_instances(
        ranks, instances, sum(shares) / len(shares), f"over {len(shares)} ranks{across}"
    )


@metric(
    "balance.straggler_delay",
    definition="Mean share of the window in which a rank waits for late ranks: the union of its waits in"
    " collectives between the arrival of the median rank and of the last one. Sends, receives and collectives"
    " across pipeline stages do not count: their ranks arrive at different times by design.",
    formula="mean over ranks of |∪ over matched collectives of [max(own, median), latest arrival)| / ΣW",
    unit="1",
    better="lower",
    inputs=_MATCHED,
    not_applicable=_NONE,
    version=2,
    combine=waits_over_window,
    rank_rows=False,
)
def straggler_delay(rank: RankView) -> Value:
    return arrivals_of(rank)


def late_more_than_chance(ranks: Mapping[int, Sequence[Value]]) -> Iterable[Value]:
    """The rank whose lateness is least likely by chance, named only where it is significant."""
    instances, steps = _run_lateness(ranks)
    parts = parts_of(ranks)
    windows = max(len(steps.steps), 1)
    late = late_rank(steps, sum(part.window_ns for part in parts.values()) / (len(parts) * windows))
    late_by: list[Value] = []
    reason = late.verdict_words
    if late.stands_out:
        of_late_rank = partial(Value, category=str(late.rank))
        late_by.append(of_late_rank(value=late.late_ns / NS_PER_S, stat="late_by", unit="s"))
        for stat, number in (("period", late.period), ("since_step", late.since)):
            if number is not None:
                late_by.append(of_late_rank(value=float(number), stat=stat, unit="count"))
        work = {
            rank: detail
            for rank, values in ranks.items()
            for value in values
            if isinstance(detail := value.detail, RankWork)
        }
        if why := late_cause(late, work, experts=serves_experts(instances)):
            late_by.append(of_late_rank(value=why.excess_ns / NS_PER_S, stat=f"excess_{why.name}", unit="s"))
            more = humanise(why.excess_ns / NS_PER_S, "s")
            reason += f", because it {why.words} ({more} a step more than the median of the others)"
    yield value_over_instances(ranks, instances, late.latest / windows, reason)
    yield Value(value=late.p, stat="p_value", category=str(late.rank), provenance="derived")
    yield from late_by
    for rank, latest_steps in zip(steps.ranks, steps.latest_mask.sum(axis=1).tolist(), strict=True):
        yield Value(value=latest_steps / windows, category=str(rank))


@metric(
    "balance.straggler_rank",
    definition="The rank that is late by more, or in more steps, than chance explains; the value is the share"
    " of steps in which it is the latest of its role, also by rank (category). A rank's lateness at a"
    " collective runs from the arrival of the median of the others to its own arrival, minus the extra time"
    " that other communication held it up, and within a pipeline minus its extra idle time, which may be a"
    " wait for another stage; its lateness in a step is the union of these. Only ranks of the same role are"
    " compared: sends, receives and collectives across pipeline stages do not count. The reason names the"
    " rank only where its lateness is significant (p < 0.01 over whole steps, corrected for the number of"
    " ranks and for correlated steps; stat p_value) and exceeds the clock uncertainty and 1 % of a step; else"
    " no rank stands out. Stats: late_by, its lateness per step; period and since_step, when it is late;"
    " excess_compute, _device, _experts, _lengths, _copy, _loader, _launch or _host, its cause: how much"
    " longer it spends on that than the median of the others, per step.",
    formula="steps in which the rank is latest / steps; p = 2 · ranks · min(P(Σ lateness ≥ own), P(times"
    " latest ≥ own)), over independent draws of a rank in each step",
    unit="1",
    better="lower",
    inputs=("events", *_MATCHED),
    not_applicable=_NONE,
    version=3,
    combine=late_more_than_chance,
    rank_rows=False,
)
def straggler_rank(rank: RankView) -> Iterator[Value]:
    yield arrivals_of(rank)
    yield Value(value=float(len(rank.windows)), detail=rank_work(rank))


_PARTIAL: Final = 1.25
"""Largest ratio between the slowdowns with and without launch delays."""


@run_metric(
    "balance.straggler_slowdown",
    definition="Step time over that of a job without stragglers: a replay in which the kernels of every rank,"
    " by name, take the median over the ranks of its role (its pipeline stage, or all ranks), stages are"
    " even, every transfer takes the median of similar ones, and launches are as late as the median rank's."
    " A launch delay counts only up to what the call takes where its rank waits for no other; beyond that it"
    " is an unrecorded wait. Stats low and high: with and without launch delays; partial where they differ by"
    f" more than {_PARTIAL:g}x. By cause (category: compute, copy, uneven stages, transfer, launch),"
    " operator, rank, and position in a parallel dimension (category: pp 3): a replay with only that part as"
    " measured, between 1 and the job's value.",
    formula="replayed step as measured / replayed step with typical durations; for a part: step with only"
    " that part as measured / the same",
    unit="ratio",
    better="lower",
    inputs=("events", "steps", MATCHED, REPLAY),
    not_applicable="there is only one rank, no collective is matched, ranks do different work, or the CPU is"
    " the device; computed on request by name, and for reports and comparisons of smaller runs",
    version=2,
)
def straggler_slowdown(run: RunView) -> Iterator[Value]:
    """After Lin et al., "Understanding Stragglers in Large Model Training Using What-if Analysis" (2025)."""
    if run.slowdown is None:
        raise NotApplicable("a step without stragglers is modelled, and models are disabled")
    slowdown = run.slowdown()
    low, high = slowdown.bounds
    reason = (
        f"{humanise(slowdown.step_ns / NS_PER_S, 's')} a step, and"
        f" {humanise(slowdown.ideal_ns / NS_PER_S, 's')} without stragglers, both replayed"
    )
    if apart := high > _PARTIAL * low:
        without_delays = high if slowdown.job == low else low
        reason += f"; without launch delays it is {humanise(without_delays, 'ratio')}"
    if len(slowdown.ranks) < len(run.ranks):
        reason += (
            f"; by rank only for the {len(slowdown.ranks)} of {len(run.ranks)} with the most excess time"
        )
    modelled = partial(Value, provenance="modelled")
    job = modelled(
        value=slowdown.job, reason=reason, coverage=Coverage(slowdown.transfers, slowdown.all_transfers)
    )
    yield replace(job, coverage=None, status="partial") if apart else job
    yield modelled(value=low, stat="low")
    yield modelled(value=high, stat="high")
    for name, ratio in slowdown.causes.items():
        yield modelled(value=ratio, category=name)
    for name, ratio in slowdown.operators.items():
        yield modelled(value=ratio, category=f"operator {name}")
    for (dimension, place), ratio in slowdown.places.items():
        yield modelled(value=ratio, category=f"{dimension} {place}")
    for rank, ratio in slowdown.ranks.items():
        yield modelled(value=ratio, rank=rank)
