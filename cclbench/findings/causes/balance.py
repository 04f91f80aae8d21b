# SPDX-License-Identifier: Apache-2.0
"""Ranks that wait: for a late rank, a slow device, the pipeline, uneven experts, or each other in turn."""

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
"""A device is slow whose same kernels take so much longer, and so many times what ranks usually differ by."""
_TOGETHER: Final = 0.5
"""Share of that by which each of its families of kernels, two at least, takes longer."""
_EVEN: Final = "kernels.time=mean"
_EVEN_EXPERTS: Final = "kernels[moe].time=mean"
"""Settings that give all ranks as much to do."""
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
    """The rank that is late by no chance; None where no rank stands out."""
    rows = case.parts(_STRAGGLER)
    late = next((row for row in rows if row.stat == "late_by" and row.category), None)
    whole = case.row(_STRAGGLER)
    if late is None or whole is None:
        return None
    stats = [row.stat or "" for row in rows]
    causes = [stat.removeprefix("excess_") for stat in stats if stat.startswith("excess_")]
    p = case.number(_STRAGGLER, category=str(late.category), stat="p_value")
    return StragglerRank(
        int(late.category or 0), (whole.reason or "").partition(";")[0], next(iter(causes), None), p or 0.0
    )


def _exposed_waits(case: Case, kinds: tuple[str, ...]) -> dict[int, float]:
    """Each rank's exposed waits in collectives of those kinds."""
    return sum_by_rank(case.ranks(_WAIT, collective=kind) for kind in kinds)


def _other_waits(case: Case) -> dict[int, float]:
    """Each rank's exposed waits in collectives that are neither transfers of a pipeline nor of experts."""
    aside = [
        _exposed_waits(case, _PAIRS),
        _exposed_waits(case, ("all_to_all",)) if _is_of_experts(case) else {},
    ]
    return {
        rank: max(0.0, seconds - sum(one.get(rank, 0.0) for one in aside))
        for rank, seconds in case.ranks(_WAIT).items()
    }


def _is_of_experts(case: Case) -> bool:
    """Whether all_to_all is of experts: the run has kernels of such, or a parallel dimension `ep`."""
    share = case.number(_CATEGORY_SHARE, category="moe")
    return bool(share) or case.number(_COMM_WAIT, category="ep") is not None


@finding(
    "pipeline_bubble",
    title="pipeline stages wait for one another",
    rule="time.exposed_wait in sends and receives",
    gain="not known: another schedule, or other stages, are not part of the trace",
    actions={
        "any": (
            "more micro-batches, or an interleaved or zero-bubble schedule",
            "cut the stages evenly by their compute time: embedding and loss count, too",
        ),
    },
)
def pipeline_bubble(case: Case) -> Iterator[Finding]:
    waits = _exposed_waits(case, _PAIRS)
    if any(waits.values()):
        largest, late = max(waits.values()), straggler_of(case)
        behind = "" if late is None else f"; {late.reason}: stages wait for it, too"
        yield case.found(
            "pipeline_bubble",
            f"Stages of the pipeline wait up to {humanise(largest, 's')} of a step for one another.",
            lost=waits,
            no_gain="another schedule, or other stages, are not part of the trace",
            because="matched sends and receives; some of it belongs to every pipeline that fills and drains"
            + behind,
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
    gain="the kernels of experts take each rank as long as they take all on average",
    actions={
        "any": (
            "balance routing: an auxiliary loss or bias, a capacity factor, redundant hot experts",
            "overlap dispatch and combine with shared experts or another micro-batch",
        ),
    },
)
def expert_imbalance(case: Case) -> Iterator[Finding]:
    waits = _exposed_waits(case, ("all_to_all",)) if _is_of_experts(case) else {}
    if any(waits.values()):
        late = straggler_of(case)
        busiest = late is not None and late.cause == "experts"
        yield case.found(
            "expert_imbalance",
            f"Ranks wait up to {humanise(max(waits.values()), 's')} of a step in all_to_all for the one whose"
            " experts have most to do"
            + (f": {late.reason}." if late is not None and busiest else ", another from step to step."),
            ranks=[late.rank] if late is not None and busiest else [],
            lost=waits,
            whatif=[_EVEN_EXPERTS if case.number(_CATEGORY_SHARE, category="moe") else _EVEN],
            confidence="medium",
            because="all_to_all waits for its last rank; how many tokens each expert has is not in the trace",
            evidence=case.evidence((_WAIT, {"collective": "all_to_all"}), _LOAD_IMBALANCE, _MOE_SHARE),
            query=_LATEST,
        )


@finding(
    "slow_device",
    title="one rank's device takes longer for the same kernels",
    rule="balance.kernel_speed of a rank of three and more above 1.05, by four times what ranks differ in the"
    " median and more, in all of its families of kernels, two at least, by half of that and more; that rank"
    " does not wait for others, and balance.straggler_rank, where it is known, names it",
    gain="the rank's kernels take what they take the median rank",
    actions={
        "any": (
            "look at its clocks, power and temperature (nvidia-smi -q -d CLOCK,POWER,PERFORMANCE;"
            " rocm-smi) and"
            " for other processes on it",
            "swap or leave out the device or node",
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
    yield case.found(
        "slow_device",
        f"Rank {slow} takes {ratios[slow] - 1:.0%} longer than the median rank for the same kernels:"
        f" {humanise(lost[slow], 's')} of a step.".replace("%", " %"),
        lost=lost,
        whatif=[f"rank[{slow}].kernels.time=median"],
        confidence="high" if ratios[slow] - 1 > 2 * _SLOWER else "medium",
        because=f"kernels of one name and grid are compared, and all {len(families)} families of them take"
        " longer alike" + ("" if late is None else f"; {late.reason}"),
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
    title="ranks wait for one that comes late",
    rule="balance.straggler_rank names a rank, and it is no slow device and has no busy experts; waits in"
    " pipelines and of experts aside",
    gain="the rank's kernels, copies and host take what they take the median rank",
    actions={
        "any": (
            "look at what that rank does before the collectives (cclbench timeline): more work, its"
            " loader, its"
            " host, garbage collection, a checkpoint",
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
    yield case.found(
        "late_rank",
        f"Ranks wait up to {humanise(max(waits.values()), 's')} of a step; {late.reason}.",
        lost=waits,
        whatif=[f"rank[{rank}].{noun}.time=median" for noun in ("kernels", "copies", "host")],
        because=f"that one of equal ranks were as late is no chance (p = {late.p:.2g}, by whole steps), and"
        " it is later than clocks can be wrong",
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
    title="ranks wait for one another, and none is late more than chance explains",
    rule="time.exposed_wait where no rank stands out; waits in pipelines and of experts aside",
    gain="kernels take each rank what they take all on average, and hosts the median",
    actions={
        "any": (
            "even out work that differs from step to step: sequence lengths, sampling, data loading",
            "let ranks run ahead: fewer synchronising collectives, larger accumulation",
        ),
    },
)
def uneven_ranks(case: Case) -> Iterator[Finding]:
    if straggler_of(case) is not None or any(slow_device(case)):
        return
    waits = _other_waits(case)
    if any(waits.values()):
        row = case.row(_STRAGGLER)
        told = row.reason.partition(";")[0] if row is not None and row.reason else "no rank stands out"
        yield case.found(
            "uneven_ranks",
            f"Ranks wait up to {humanise(max(waits.values()), 's')} of a step for one another; {told}.",
            lost=waits,
            whatif=[_EVEN, "host.time=median"],
            confidence="medium",
            because="the waits are exact; that it is one and the same rank's fault, the steps do not show",
            evidence=case.evidence(_WAIT, _STRAGGLER, _LOAD_IMBALANCE, _SKEW),
            query=_LATEST,
        )
