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
from cclbench.analyzers.view.lateness import Cause, cause, foremost, last_arrivals
from cclbench.analyzers.view.meetings import meetings, of_instances, parts_of
from cclbench.analyzers.view.rank_view import RankView
from cclbench.analyzers.view.run_view import RunView
from cclbench.analyzers.view.values import NS_PER_S
from cclbench.units import humanise


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


def delay_over_window(ranks: Mapping[int, Sequence[Value]]) -> Iterable[Value]:
    """Σ over instances, each counted once, over the mean of the ranks' ΣW."""
    found = meetings(ranks)
    twice = instances = 0
    for some in found:
        low, high = some.first + (some.count - 1) // 2, some.first + some.count // 2
        twice += int((2 * some.latest_ns - some.arrival_ns[low] - some.arrival_ns[high]).sum())
        instances += len(some.count)
    windows = [part.window_ns for part in parts_of(ranks).values()]
    delay = twice * len(windows) / (2 * sum(windows))
    yield of_instances(ranks, found, delay, f"{instances} instances")


@metric(
    "balance.straggler_delay",
    definition="Share of the window that collectives wait for their last rank, beyond the median one.",
    formula="Σ over matched collectives of (latest − median arrival) / mean over ranks of ΣW",
    unit="1",
    better="lower",
    inputs=_MATCHED,
    not_applicable=_NONE,
    combine=delay_over_window,
    rank_rows=False,
)
def straggler_delay(rank: RankView) -> Value:
    return arrivals_of(rank)


def most_often_last(ranks: Mapping[int, Sequence[Value]]) -> Iterable[Value]:
    """The rank whose share of last arrivals exceeds chance most; it is named where that can be no chance."""
    found = meetings(ranks).of_groups()
    last = last_arrivals(found)
    if not any(one.last for one in last.values()):
        raise NotApplicable("all ranks arrive at every collective together")
    parts = parts_of(ranks)
    residual_ns = max(part.clock_residual_ns for part in parts.values())
    one = foremost(found, last, residual_ns)
    said = f"rank {one.rank} arrives last in {float(one.own.last):.4g} of {one.own.instances} collectives"
    after = f"{humanise(one.late_ns / NS_PER_S, 's')} after the median rank"
    late: list[Value] = []
    if one.by_chance:
        reason = f"no rank stands out: {said}, which chance explains (p = {one.p:.2g})"
    elif one.within_clocks:
        clocks = f"the ranks' clocks agree to {humanise(residual_ns / NS_PER_S, 's')} only"
        reason = f"no rank stands out: {said}, {after}, and {clocks}"
    else:
        reason = f"{said}, {after}"
        late.append(Value(value=one.late_ns / NS_PER_S, stat="late_by", category=str(one.rank), unit="s"))
        if why := cause(found, one.rank, on_host=parts[one.rank].on_host):
            late.append(excess(one.rank, why))
            more = humanise(why.excess_ns / NS_PER_S, "s")
            reason += f", because it {why.words} ({more} more than the other ranks' median, on average)"
    yield of_instances(ranks, found, one.own.share, reason)
    yield Value(value=one.p, stat="p_value", category=str(one.rank), provenance="derived")
    yield from late
    for rank in sorted(last):
        yield Value(value=last[rank].share, category=str(rank))


def excess(rank: int, why: Cause) -> Value:
    """What a late rank does longer than others: stat excess_compute, _copy, _communication or _idle."""
    return Value(value=why.excess_ns / NS_PER_S, stat=f"excess_{why.spent}", category=str(rank), unit="s")


@metric(
    "balance.straggler_rank",
    definition="The rank that arrives last at more collectives than chance explains, and the share of its own"
    " that it is last at; ranks that arrive last together share, and nobody is last where all arrive"
    " together; sends and receives, in which one side waits by design, do not count. The rank is named in the"
    " reason only where the share cannot be chance (p < 0.01, corrected for the number of ranks: stat"
    " p_value) and its median lateness exceeds what the clocks leave unexplained; else no rank stands out."
    " With the rank stands why it is late: of computing, copying, other communication and idling since its"
    " group's previous collective, what exceeds the other ranks' median most (stats late_by, and"
    " excess_compute, _copy, _communication or _idle). By rank (category).",
    formula="instances the rank is last in / instances it takes part in; p = P(X ≥ last) · ranks, X a sum of"
    " trials of probability 1/n, one for each of its instances, n their ranks",
    unit="1",
    better="lower",
    inputs=_MATCHED,
    not_applicable=_NONE,
    version=2,
    combine=most_often_last,
    rank_rows=False,
)
def straggler_rank(rank: RankView) -> Value:
    return arrivals_of(rank)


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
