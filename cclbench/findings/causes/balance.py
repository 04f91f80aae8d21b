# SPDX-License-Identifier: Apache-2.0
"""Load balance: waits for a late rank, a slow device, pipeline stages, uneven experts, or ranks in turn."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median
from typing import Final, NamedTuple

from cclbench.findings.case import Case, sum_by_rank
from cclbench.findings.finding import Finding, finding
from cclbench.ground.units import humanise
from cclbench.record.metric_name import metric_name

_CATEGORY_SHARE: Final = metric_name("compute.category_share")
_COMM_WAIT: Final = metric_name("comm.wait")
_PIPELINE_BUBBLE: Final = metric_name("overlap.pipeline_bubble")
_LOAD_IMBALANCE: Final = metric_name("balance.load_imbalance")
_MOE_SHARE: Final = metric_name("compute.moe_share")
_KERNEL_SPEED: Final = metric_name("balance.kernel_speed")
_COMPUTE_TIME: Final = metric_name("compute.time")
_CAUSED_WAIT: Final = metric_name("balance.caused_wait")
_SKEW: Final = metric_name("comm.skew")
_WAIT: Final = metric_name("time.exposed_wait")
_PAIRS: Final = ("send", "recv", "send_recv")
_STRAGGLER: Final = metric_name("balance.straggler_rank")
_SLOWER, _APART, _LEAST_RANKS = 0.05, 4, 3
"""A slow device's kernels take at least this much longer, and this many times the usual spread over ranks;
ranks needed."""
_TOGETHER: Final = 0.5
"""Share of that slowdown which each of its kernel families (at least two) must show."""
_EVEN: Final = "kernels.time=mean"
_EVEN_EXPERTS: Final = "kernels[moe].time=mean"
"""Settings that give all ranks the same amount of work."""
_LATEST: Final = """SELECT rank, step, count(*) AS collectives, sum(wait_ns) AS waits_ns FROM collectives
WHERE instance IS NOT NULL AND kind NOT IN ('send', 'recv', 'send_recv')
GROUP BY rank, step ORDER BY step, waits_ns"""


class StragglerRank(NamedTuple):
    """The rank that `balance.straggler_rank` names."""

    rank: int
    reason: str
    cause: str | None
    """One of `late_cause.CAUSES`."""
    p: float


def straggler_of(case: Case) -> StragglerRank | None:
    """The rank that is late by more than chance explains; None where no rank stands out."""
    rows = case.parts(_STRAGGLER)
    late_row = next((row for row in rows if row.stat == "late_by" and row.category), None)
    run_row = case.row(_STRAGGLER)
    if late_row is None or run_row is None:
        return None
    stats = [row.stat or "" for row in rows]
    causes = [stat.removeprefix("excess_") for stat in stats if stat.startswith("excess_")]
    p = case.number(_STRAGGLER, category=str(late_row.category), stat="p_value")
    return StragglerRank(
        int(late_row.category or 0),
        (run_row.reason or "").partition(";")[0],
        next(iter(causes), None),
        p or 0.0,
    )


def _straggler_verdict(case: Case) -> str:
    """Which rank is late, in words, or that none stands out."""
    row = case.row(_STRAGGLER)
    return row.reason.partition(";")[0] if row is not None and row.reason else "no rank stands out"


def _exposed_waits(case: Case, kinds: tuple[str, ...]) -> dict[int, float]:
    """Exposed wait time by rank in collectives of these kinds, s."""
    return sum_by_rank(case.ranks(_WAIT, collective=kind) for kind in kinds)


def _other_waits(case: Case) -> dict[int, float]:
    """Exposed wait time by rank in collectives other than pipeline transfers and expert exchanges, s."""
    excluded_waits = [
        _exposed_waits(case, _PAIRS),
        _exposed_waits(case, ("all_to_all",)) if _is_of_experts(case) else {},
    ]
    other = {
        rank: seconds - sum(waits.get(rank, 0.0) for waits in excluded_waits)
        for rank, seconds in case.ranks(_WAIT).items()
    }
    # less than 1 ns, the unit of times, is rounding of the sums
    return {rank: seconds if seconds >= 1e-9 else 0.0 for rank, seconds in other.items()}


def _is_of_experts(case: Case) -> bool:
    """Whether all_to_all serves experts: the run has MoE kernels, or a parallel dimension `ep`."""
    share = case.number(_CATEGORY_SHARE, category="moe")
    return bool(share) or case.number(_COMM_WAIT, category="ep") is not None


@finding(
    "pipeline_bubble",
    title="pipeline stages wait for one another",
    rule="time.exposed_wait in sends and receives",
    gain="unknown: the trace does not show another schedule or other stages",
    actions={
        "any": (
            "more micro-batches, or an interleaved or zero-bubble schedule",
            "balance the stages by compute time, including embedding and loss",
        ),
    },
)
def pipeline_bubble(case: Case) -> Iterator[Finding]:
    waits = _exposed_waits(case, _PAIRS)
    if any(waits.values()):
        largest, late = max(waits.values()), straggler_of(case)
        straggler = "" if late is None else f"; {late.reason}: stages also wait for it"
        yield case.finding(
            "pipeline_bubble",
            f"Pipeline stages wait up to {humanise(largest, 's')} of a step for one another.",
            lost=waits,
            no_gain="the trace does not show another schedule or other stages",
            because="matched sends and receives; filling and draining the pipeline is part of it" + straggler,
            ranks=[] if late is None else [late.rank],
            confidence="medium",
            evidence=case.evidence(*[(_WAIT, {"collective": kind}) for kind in _PAIRS], _PIPELINE_BUBBLE),
            query="SELECT rank, step, kind, start_ns, wait_ns FROM collectives"
            " WHERE kind IN ('send', 'recv', 'send_recv') ORDER BY wait_ns DESC NULLS LAST LIMIT 20",
        )


@finding(
    "expert_imbalance",
    precedence=4,
    title="ranks wait for the rank with the busiest experts",
    rule="time.exposed_wait in all_to_all of a model with experts",
    gain="expert kernels take the mean time over all ranks on every rank",
    actions={
        "any": (
            "balance routing: auxiliary loss or bias, capacity factor, replicas of hot experts",
            "overlap dispatch and combine with shared experts or another micro-batch",
        ),
    },
)
def expert_imbalance(case: Case) -> Iterator[Finding]:
    waits = _exposed_waits(case, ("all_to_all",)) if _is_of_experts(case) else {}
    if any(waits.values()):
        late = straggler_of(case)
        busiest = late is not None and late.cause == "experts"
        yield case.finding(
            "expert_imbalance",
            f"Ranks wait up to {humanise(max(waits.values()), 's')} of a step in all_to_all for the rank with"
            f" the busiest experts{': ' if busiest else '; '}{_straggler_verdict(case)}.",
            ranks=[late.rank] if late is not None and busiest else [],
            lost=waits,
            whatif=[_EVEN_EXPERTS if case.number(_CATEGORY_SHARE, category="moe") else _EVEN],
            confidence="medium",
            because="all_to_all waits for its last rank; the trace does not record tokens per expert",
            evidence=case.evidence((_WAIT, {"collective": "all_to_all"}), _LOAD_IMBALANCE, _MOE_SHARE),
            query=_LATEST,
        )


@finding(
    "slow_device",
    title="the same kernels run slower on one rank's device",
    rule="balance.kernel_speed of one of at least three ranks is above 1.05, by at least four times the"
    " ranks' median deviation; each kernel family, of at least two, shows at least half of the slowdown; the"
    " rank does not wait for others, and balance.straggler_rank, where known, names it",
    gain="the rank's kernels take the median rank's time",
    actions={
        "any": (
            "check its clocks, power and temperature (nvidia-smi -q -d CLOCK,POWER,PERFORMANCE;"
            " rocm-smi), and look for other processes on it",
            "replace or drain the device or node",
        ),
    },
)
def slow_device(case: Case) -> Iterator[Finding]:
    rows = case.parts(_KERNEL_SPEED)
    ratios = {int(row.category): row.number for row in rows if row.category and not row.stat}
    slow = max(ratios, key=lambda rank: ratios[rank], default=None)
    usual = median(abs(ratio - 1) for ratio in ratios.values()) if ratios else 0.0
    if slow is None or len(ratios) < _LEAST_RANKS or ratios[slow] - 1 < max(_SLOWER, _APART * usual):
        return
    families = [row.number for row in rows if row.category == str(slow) and row.stat]
    if len(families) < 2 or min(families) - 1 < _TOGETHER * (ratios[slow] - 1):
        return
    late = straggler_of(case)
    if (late is None and case.row(_STRAGGLER) is not None) or (late is not None and late.rank != slow):
        return
    compute, waits = case.ranks(_COMPUTE_TIME), case.ranks(_WAIT)
    lost = {slow: compute.get(slow, 0.0) * (1 - 1 / ratios[slow])}
    if waits and waits.get(slow, 0.0) > min(waits.values()) + lost[slow]:
        return
    yield case.finding(
        "slow_device",
        f"The same kernels take {ratios[slow] - 1:.0%} longer on rank {slow} than on the median rank:"
        f" {humanise(lost[slow], 's')} of a step.".replace("%", " %"),
        lost=lost,
        whatif=[f"rank[{slow}].kernels.time=median"],
        confidence="high" if ratios[slow] - 1 > 2 * _SLOWER else "medium",
        because=f"compares kernels of the same name and grid; all {len(families)} kernel families are"
        " slower" + ("" if late is None else f"; {late.reason}"),
        ranks=[slow],
        evidence=case.evidence(
            _KERNEL_SPEED,
            (_KERNEL_SPEED, {"category": str(slow)}),
            _LOAD_IMBALANCE,
        ),
        query="SELECT name, grid_x, rank, count(*) AS kernels, avg(dur_ns) AS mean_ns FROM events"
        " WHERE kind = 'kernel' AND category != 'communication' GROUP BY ALL ORDER BY name, grid_x, rank",
    )


@finding(
    "late_rank",
    precedence=2,
    title="ranks wait for one late rank",
    rule="balance.straggler_rank names a rank, and neither slow_device nor expert_imbalance explains it;"
    " without waits in pipelines and for experts",
    gain="the rank's kernels, copies and host take the median rank's time",
    actions={
        "any": (
            "look at what that rank does before the collectives (cclbench timeline): more work, data"
            " loading, host delays, garbage collection, a checkpoint",
            "give all ranks the same work: pad or bucket by length, shard evenly",
        ),
    },
)
def late_rank(case: Case) -> Iterator[Finding]:
    late, waits = straggler_of(case), _other_waits(case)
    if late is None or not any(waits.values()) or any(slow_device(case)):
        return
    if late.cause == "experts" and any(expert_imbalance(case)):
        return
    rank = str(late.rank)
    yield case.finding(
        "late_rank",
        f"Ranks wait up to {humanise(max(waits.values()), 's')} of a step; {late.reason}.",
        lost=waits,
        whatif=[f"rank[{rank}].{noun}.time=median" for noun in ("kernels", "copies", "host")],
        because=f"the delay is significant (p = {late.p:.2g}, tested over whole steps) and larger than the"
        " clock uncertainty",
        ranks=[late.rank],
        evidence=case.evidence(
            (_STRAGGLER, {"category": rank}),
            (_STRAGGLER, {"category": rank, "stat": "late_by"}),
            (_STRAGGLER, {"category": rank, "stat": "p_value"}),
            (_STRAGGLER, {"category": rank, "stat": f"excess_{late.cause}"}),
            (_CAUSED_WAIT, {"category": rank}),
            _WAIT,
            _LOAD_IMBALANCE,
        ),
        query=_LATEST,
    )


@finding(
    "uneven_ranks",
    precedence=3,
    title="ranks wait for one another, and no rank stands out",
    rule="time.exposed_wait where no rank stands out; without waits in pipelines and for experts",
    gain="kernels take the mean time over all ranks, and hosts the median",
    actions={
        "any": (
            "even out work that varies from step to step: sequence lengths, sampling, data loading",
            "let ranks run ahead: fewer synchronising collectives, more gradient accumulation",
        ),
    },
)
def uneven_ranks(case: Case) -> Iterator[Finding]:
    if straggler_of(case) is not None or any(slow_device(case)):
        return
    waits = _other_waits(case)
    if any(waits.values()):
        yield case.finding(
            "uneven_ranks",
            f"Ranks wait up to {humanise(max(waits.values()), 's')} of a step for one another;"
            f" {_straggler_verdict(case)}.",
            lost=waits,
            whatif=[_EVEN, "host.time=median"],
            confidence="medium",
            because="the waits are exact; the steps do not point to a single rank",
            evidence=case.evidence(_WAIT, _STRAGGLER, _LOAD_IMBALANCE, _SKEW),
            query=_LATEST,
        )
