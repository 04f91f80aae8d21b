# SPDX-License-Identifier: Apache-2.0
"""Ranks that wait: for a late rank, a slow device, the pipeline, uneven experts, or each other in turn."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median
from typing import Final

from cclbench.findings.case import Case
from cclbench.findings.causes.host import BY
from cclbench.findings.finding import Found, finding
from cclbench.units import humanise

_WAIT: Final = "time.exposed_wait"
_PAIRS: Final = ("send", "recv", "send_recv")
_SLOWER, _APART, _LEAST_RANKS = 0.05, 4, 3
"""A device is slow whose same kernels take so much longer, and so many times what ranks usually differ by."""
_CHANCE, _SURE = 0.05, 0.01
"""Probability below which a rank's being late is no chance, and surely none."""
_GAIN: Final = "the exposed waits of that kind, on each rank"
_LATEST: Final = """SELECT rank, count(*) AS last_of FROM collectives
WHERE wait_ns = 0 AND instance IS NOT NULL GROUP BY rank ORDER BY last_of DESC"""
_EXCESS: Final = {
    "compute": "it computes longer",
    "copy": "it copies longer",
    "communication": "other communication holds it up",
    "idle": "its host launches later",
}


def _waits(case: Case, kinds: tuple[str, ...]) -> dict[int, float]:
    """Each rank's exposed waits in collectives of those kinds."""
    found: dict[int, float] = {}
    for kind in kinds:
        for rank, seconds in case.ranks(_WAIT, collective=kind).items():
            found[rank] = found.get(rank, 0.0) + seconds
    return found


def _other_waits(case: Case) -> dict[int, float]:
    """Each rank's exposed waits in collectives that are neither transfers of a pipeline nor of experts."""
    aside = [_waits(case, _PAIRS), _waits(case, ("all_to_all",)) if _experts(case) else {}]
    return {
        rank: max(0.0, seconds - sum(one.get(rank, 0.0) for one in aside))
        for rank, seconds in case.ranks(_WAIT).items()
    }


def _experts(case: Case) -> bool:
    """Whether all_to_all is of experts: the run has kernels of such, or a parallel dimension `ep`."""
    share = case.number("compute.category_share", category="moe")
    return bool(share) or case.number("comm.wait", category="ep") is not None


@finding(
    "pipeline_bubble",
    title="pipeline stages wait for one another",
    rule="time.exposed_wait in sends and receives",
    gain=_GAIN,
    actions={
        "any": (
            "more micro-batches, or an interleaved or zero-bubble schedule",
            "cut the stages evenly by their compute time: embedding and loss count, too",
        ),
    },
)
def pipeline_bubble(case: Case) -> Iterator[Found]:
    waits = _waits(case, _PAIRS)
    if any(waits.values()):
        largest = max(waits.values())
        yield case.found(
            "pipeline_bubble",
            f"Stages of the pipeline wait up to {humanise(largest, 's')} of a step for one another.",
            lost=waits,
            gain_s=(0.0, case.gain_if_even(waits)),
            because="matched sends and receives; some of it belongs to every pipeline that fills and drains",
            confidence="medium",
            evidence=case.evidence(
                *[(_WAIT, {"collective": kind}) for kind in _PAIRS], "overlap.pipeline_bubble"
            ),
            query="SELECT rank, step, kind, start_ns, wait_ns FROM collectives"
            " WHERE kind IN ('send', 'recv', 'send_recv') ORDER BY wait_ns DESC NULLS LAST LIMIT 20",
        )


@finding(
    "expert_imbalance",
    title="ranks wait for the rank with the busiest experts",
    rule="time.exposed_wait in all_to_all of a model with experts",
    gain=_GAIN,
    actions={
        "any": (
            "balance routing: an auxiliary loss or bias, a capacity factor, redundant hot experts",
            "overlap dispatch and combine with shared experts or another micro-batch",
        ),
    },
)
def expert_imbalance(case: Case) -> Iterator[Found]:
    waits = _waits(case, ("all_to_all",)) if _experts(case) else {}
    if any(waits.values()):
        yield case.found(
            "expert_imbalance",
            f"Ranks wait up to {humanise(max(waits.values()), 's')} of a step in all_to_all for the one whose"
            " experts have most to do.",
            lost=waits,
            gain_s=(0.0, case.gain_if_even(waits)),
            confidence="medium",
            because="all_to_all waits for its last rank; how many tokens each expert has is not in the trace",
            evidence=case.evidence(
                (_WAIT, {"collective": "all_to_all"}), "balance.load_imbalance", "compute.moe_share"
            ),
            query=_LATEST,
        )


@finding(
    "slow_device",
    title="one rank's device takes longer for the same kernels",
    rule="balance.kernel_speed of a rank of three and more above 1.05, by four times what ranks differ in the"
    " median and more; and that rank does not wait for others",
    gain="what the rank's kernels take longer, and what ranks wait meanwhile",
    actions={
        "any": (
            "look at its clocks, power and temperature (nvidia-smi -q -d CLOCK,POWER,PERFORMANCE;"
            " rocm-smi) and"
            " for other processes on it",
            "swap or leave out the device or node",
        ),
    },
)
def slow_device(case: Case) -> Iterator[Found]:
    rows, _ = case.results.parts("balance.kernel_speed")
    ratios = {int(row.category): row.number for row in rows if row.category}
    slow = max(ratios, key=lambda rank: ratios[rank], default=None)
    usual = median(abs(ratio - 1) for ratio in ratios.values()) if ratios else 0.0
    if slow is None or len(ratios) < _LEAST_RANKS or ratios[slow] - 1 < max(_SLOWER, _APART * usual):
        return
    compute, waits = case.ranks("compute.time"), case.ranks(_WAIT)
    lost = {slow: compute.get(slow, 0.0) * (1 - 1 / ratios[slow])}
    if waits and waits.get(slow, 0.0) > min(waits.values()) + lost[slow]:
        return
    yield case.found(
        "slow_device",
        f"Rank {slow} takes {ratios[slow] - 1:.0%} longer than the median rank for the same kernels:"
        f" {humanise(lost[slow], 's')} of a step.".replace("%", " %"),
        lost=lost,
        gain_s=case.gain(lost),
        confidence="high" if ratios[slow] - 1 > 2 * _SLOWER else "medium",
        because="kernels of one name and grid are compared; work of other sizes under one name looks like it",
        ranks=[slow],
        evidence=case.evidence(
            "balance.kernel_speed",
            ("balance.kernel_speed", {"category": str(slow)}),
            "balance.load_imbalance",
        ),
        query="SELECT name, grid_x, rank, count(*) AS kernels, avg(dur_ns) AS mean_ns FROM events"
        " WHERE kind = 'kernel' AND category != 'communication' GROUP BY ALL ORDER BY name, grid_x, rank",
    )


@finding(
    "late_rank",
    title="ranks wait for one that comes late",
    rule="balance.straggler_rank names a rank, and it is no slow device; waits in pipelines and of"
    " experts aside",
    gain=_GAIN + "; at least what collectives wait for it alone",
    actions={
        "any": (
            "look at what that rank does before the collectives (cclbench timeline): more work, its"
            " loader, its"
            " host, garbage collection, a checkpoint",
            "give all ranks the same work: pad or bucket by length, shard evenly",
        ),
    },
)
def late_rank(case: Case) -> Iterator[Found]:
    named, waits = _named(case), _other_waits(case)
    if named is None or not any(waits.values()) or any(slow_device(case)):
        return
    metric, rank, told = named
    more = {what: case.number(metric, category=rank, stat=f"excess_{what}") or 0.0 for what in _EXCESS}
    most = max(more, key=lambda what: more[what])
    because = f", because {_EXCESS[most]}{_held(case, int(rank), most)}" if more[most] > 0 else ""
    caused = case.number("balance.caused_wait", category=rank) or 0.0
    at_most = case.gain_without(int(rank), waits)
    p = case.number(metric, category=rank, stat="p_value")
    yield case.found(
        "late_rank",
        f"Ranks wait up to {humanise(max(waits.values()), 's')} of a step; rank {rank} comes last in"
        f" {told}{because}.",
        lost=waits,
        gain_s=(min(at_most, caused), at_most),
        confidence="medium" if p is None or p >= _SURE else "high",
        because=f"that it is the same rank so often is no chance (p = {p or 0.0:.2g}), and it is later than"
        " clocks can be wrong",
        ranks=[int(rank)],
        evidence=case.evidence(
            ("balance.caused_wait", {"category": rank}),
            (metric, {"category": rank, "stat": "p_value"}),
            (metric, {"category": rank, "stat": f"excess_{most}"}),
            _WAIT,
            "balance.load_imbalance",
        ),
        query=_LATEST,
    )


def _named(case: Case) -> tuple[str, str, str] | None:
    """The metric that names a late rank, that rank, and how often it is late; None where none stands out."""
    rows, _ = case.results.parts("balance.straggler_rank")
    late = next((row for row in rows if row.stat == "late_by" and row.category), None)
    if late is not None:
        share = case.number("balance.straggler_rank", category=str(late.category)) or 0.0
        said = f"{share:.0%} of its collectives, {humanise(late.number, 's')} after the median rank"
        return "balance.straggler_rank", str(late.category), said.replace("%", " %")
    rows, _ = case.results.parts("balance.caused_wait")
    own = {row.stat: row for row in rows if row.stat}
    p, steps = own.get("p_value"), own.get("steps")
    if p is None or steps is None or p.number >= _CHANCE:
        return None
    rank = str(p.category)
    caused, whole = case.number("balance.caused_wait", category=rank), case.number("balance.caused_wait")
    residual = own["clock_residual"].number if "clock_residual" in own else 0.0
    if not caused or not whole or caused < whole / 2 or caused <= residual:
        return None
    each = f"in {steps.number:,.0f} of {len(case.results.scope.steps) or 1} steps"
    return "balance.caused_wait", rank, f"{each.removeprefix('in ')}, by {humanise(caused, 's')} a step"


def _held(case: Case, rank: int, most: str) -> str:
    """What holds the late rank's host more than other ranks', in words."""
    if most != "idle":
        return ""
    words = {
        "loading": "loading data",
        "allocation": "allocating memory",
        "synchronization": "waiting for the device",
        "operators": "in operators",
        "elsewhere": "in Python or unrecorded",
    }
    more: dict[str, float] = {}
    for name in words:
        seconds = case.ranks(BY, category=name)
        others = [value for other, value in seconds.items() if other != rank]
        if rank in seconds and others:
            more[name] = seconds[rank] - sum(others) / len(others)
    largest = max(more, key=lambda name: more[name], default=None)
    return f": {words[largest]}" if largest is not None and more[largest] > 0 else ""


@finding(
    "uneven_ranks",
    title="ranks wait for one another, and none is late more often than others",
    rule="time.exposed_wait where no rank stands out; waits in pipelines and of experts aside",
    gain=_GAIN,
    actions={
        "any": (
            "even out work that differs from step to step: sequence lengths, sampling, data loading",
            "let ranks run ahead: fewer synchronising collectives, larger accumulation",
        ),
    },
)
def uneven_ranks(case: Case) -> Iterator[Found]:
    if any(late_rank(case)) or any(slow_device(case)):
        return
    waits = _other_waits(case)
    if any(waits.values()):
        row = case.row("balance.straggler_rank")
        told = row.reason if row is not None and row.reason else "no rank stands out"
        yield case.found(
            "uneven_ranks",
            f"Ranks wait up to {humanise(max(waits.values()), 's')} of a step for one another; {told}.",
            lost=waits,
            gain_s=(0.0, case.gain_if_even(waits)),
            confidence="medium",
            because="the waits are exact; what makes ranks late takes turns",
            evidence=case.evidence(_WAIT, "balance.straggler_rank", "balance.load_imbalance", "comm.skew"),
            query=_LATEST,
        )
