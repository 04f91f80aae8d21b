# SPDX-License-Identifier: Apache-2.0
"""Balance: whether the ranks have the same work, and who comes last."""

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
from cclbench.analyzers.view.meetings import CollectiveInstances, of_instances, parts_of, rank_meetings
from cclbench.analyzers.view.rank_view import RankView
from cclbench.analyzers.view.run_view import RunView
from cclbench.analyzers.view.values import NS_PER_S
from cclbench.ground.units import humanise


def max_over_mean(ranks: Mapping[int, Sequence[Value]]) -> Iterable[Value]:
    """The largest rank's compute time over the mean of all ranks'."""
    values = [value for rank in sorted(ranks) for value in ranks[rank]]
    times = [value.value or 0.0 for value in values]
    if len(times) < 2:
        raise NotApplicable("balance compares ranks, and there is one")
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
    definition="How much longer the busiest rank computes than the average one; kernels that wait in"
    " communication do not count. 1 is perfect balance. Partial where ranks of the world have no trace.",
    formula="max over ranks |C| / mean over ranks |C|, with |C| the rank's mean over its steps",
    unit="ratio",
    better="lower",
    not_applicable="there is one rank only, or none computes",
    combine=max_over_mean,
    rank_rows=False,
)
def load_imbalance(rank: RankView) -> Value:
    ns = rank.parts.compute_only + rank.parts.overlapped
    return Value(value=int(ns.sum()) / (len(ns) * NS_PER_S), detail=rank.facts.world_size)


_MATCHED = (MATCHED, "steps")
_NONE = "none of the window's collectives is matched across all the ranks of its group"


def _run_lateness(ranks: Mapping[int, Sequence[Value]]) -> tuple[CollectiveInstances, Lateness]:
    """The run's collectives, and how late ranks are at them; not applicable without any."""
    found = rank_meetings(ranks)
    residual_ns = max(part.clock_residual_ns for part in parts_of(ranks).values())
    return found, step_lateness(found, residual_ns)


def waits_over_window(ranks: Mapping[int, Sequence[Value]]) -> Iterable[Value]:
    """Mean over ranks of |∪ waits| / ΣW."""
    found, late = _run_lateness(ranks)
    parts = parts_of(ranks)
    shares = [
        own / parts[rank].window_ns
        for rank, own in zip(late.ranks, late.waited_ns.sum(axis=1).tolist(), strict=True)
    ]
    across = f"; {late.across} across pipeline stages left out" if late.across else ""
    yield of_instances(ranks, found, sum(shares) / len(shares), f"over {len(shares)} ranks{across}")


@metric(
    "balance.straggler_delay",
    definition="Share of the window that a rank waits for late ranks, on average: the union of its waits at"
    " collectives from when the median rank has arrived until the last one has. Sends and receives do not"
    " count, nor collectives across pipeline stages, whose ranks come at different times by design.",
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
    """The rank whose lateness chance explains least; it is named where chance does not explain it."""
    found, steps = _run_lateness(ranks)
    parts = parts_of(ranks)
    windows = max(len(steps.steps), 1)
    late = late_rank(steps, sum(part.window_ns for part in parts.values()) / (len(parts) * windows))
    late_by: list[Value] = []
    reason = late.verdict_words
    if late.stands_out:
        at = partial(Value, category=str(late.rank))
        late_by.append(at(value=late.late_ns / NS_PER_S, stat="late_by", unit="s"))
        for stat, number in (("period", late.period), ("since_step", late.since)):
            if number is not None:
                late_by.append(at(value=float(number), stat=stat, unit="count"))
        work = {
            rank: own
            for rank, values in ranks.items()
            for value in values
            if isinstance(own := value.detail, RankWork)
        }
        if why := late_cause(late, work, experts=serves_experts(found)):
            late_by.append(at(value=why.excess_ns / NS_PER_S, stat=f"excess_{why.name}", unit="s"))
            more = humanise(why.excess_ns / NS_PER_S, "s")
            reason += f", because it {why.words} ({more} a step more than the others' median)"
    yield of_instances(ranks, found, late.latest / windows, reason)
    yield Value(value=late.p, stat="p_value", category=str(late.rank), provenance="derived")
    yield from late_by
    for rank, times in zip(steps.ranks, steps.latest_mask.sum(axis=1).tolist(), strict=True):
        yield Value(value=times / windows, category=str(rank))


@metric(
    "balance.straggler_rank",
    definition="The rank that is late by more, or in more steps, than chance explains, and the share of"
    " steps in which it is the latest of its role; by rank (category), too. A rank is late at a"
    " collective from when the median of the others has arrived until it arrives itself, less"
    " what other communication held it up longer than them, and within a pipeline less what it"
    " idled longer, which may be a wait for another stage; in a step for the union of these."
    " Ranks of one role are compared: sends and receives do not count, nor collectives across"
    " pipeline stages. It is named in the reason only where whole steps drawn for equal ranks do"
    " not explain it (p < 0.01, corrected for the number of ranks and for steps that are alike:"
    " stat p_value), and it is later than the clocks are wrong and than 1 % of a step; else no"
    " rank stands out. With it stand how late it is a step (stat late_by), its period and the"
    " step since when (period, since_step), and why: excess_compute, _device, _experts,"
    " _lengths, _copy, _loader, _launch or _host, what it does longer than the others' median, a"
    " step.",
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
"""How far the slowdowns with and without launch delays may lie apart."""


@run_metric(
    "balance.straggler_slowdown",
    definition="How much slower the job is than one without stragglers: its step over that of a replay in"
    " which every rank takes for its work of a step, kernel by kernel name, what the median rank of its role"
    " takes (those of one pipeline stage; all without stages), roles are even, every transfer takes the"
    " median of its like and every launch comes as late as the median rank's. A launch delay counts only up"
    " to what the call needs where its rank waits for nobody: beyond, it is a wait that no row records. Stats"
    " low and high: with launch delays and without any; more than"
    f" {_PARTIAL:g}x apart it is partial. By cause (category: compute, copy, uneven stages, transfer,"
    " launch), operator, rank, and place in a parallel dimension (category: pp 3): the step of a replay in"
    " which that alone is as measured, over the same; between 1 and the job's.",
    formula="replayed step as measured / replayed step with typical durations; of a part: step with that part"
    " as measured / the same",
    unit="ratio",
    better="lower",
    inputs=("events", "steps", MATCHED, REPLAY),
    not_applicable="there is one rank only, no collective is matched, ranks do different work, or the device"
    " is a CPU; unless asked for by name, or shown in a report or a comparison of runs that are not large",
    version=2,
)
def straggler_slowdown(run: RunView) -> Iterator[Value]:
    """As Lin et al., "Understanding Stragglers in Large Model Training Using What-if Analysis" (2025)."""
    if run.slowdown is None:
        raise NotApplicable("a step without stragglers is modelled, and models are switched off")
    found = run.slowdown()
    low, high = found.bounds
    reason = (
        f"{humanise(found.step_ns / NS_PER_S, 's')} a step, and {humanise(found.ideal_ns / NS_PER_S, 's')}"
        " without stragglers, both replayed"
    )
    if apart := high > _PARTIAL * low:
        other = high if found.job == low else low
        reason += f"; without launch delays it is {humanise(other, 'ratio')}, so that they decide"
    if len(found.ranks) < len(run.ranks):
        reason += (
            f"; by rank only the {len(found.ranks)} of {len(run.ranks)} with most time beyond the typical"
        )
    modelled = partial(Value, provenance="modelled")
    job = modelled(value=found.job, reason=reason, coverage=Coverage(found.transfers, found.all_transfers))
    yield replace(job, coverage=None, status="partial") if apart else job
    yield modelled(value=low, stat="low")
    yield modelled(value=high, stat="high")
    for name, ratio in found.causes.items():
        yield modelled(value=ratio, category=name)
    for name, ratio in found.operators.items():
        yield modelled(value=ratio, category=f"operator {name}")
    for (dimension, place), ratio in found.places.items():
        yield modelled(value=ratio, category=f"{dimension} {place}")
    for rank, ratio in found.ranks.items():
        yield modelled(value=ratio, rank=rank)
