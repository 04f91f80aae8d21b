# SPDX-License-Identifier: Apache-2.0
"""Exposed transfers: too small to use a link, beside idle compute, or as long as they are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Final

from cclbench.findings.case import Case, sum_by_rank
from cclbench.findings.causes.links import far_below_links, slow_groups
from cclbench.findings.finding import Confidence, Finding, finding
from cclbench.findings.groups import describe_groups, shape_of
from cclbench.ground.units import humanise
from cclbench.record.metric_name import MetricName, metric_name

_COLLECTIVES: Final = metric_name("comm.count")
_COMM_TRANSFER: Final = metric_name("comm.transfer")
_VOLUME: Final = metric_name("comm.volume")
_ALPHA: Final = metric_name("comm.alpha")
_BETA: Final = metric_name("comm.beta")
_BUSBW: Final = metric_name("comm.busbw")
_SAME_STREAM: Final = metric_name("overlap.same_stream")
_BANDWIDTH_UTILIZATION: Final = metric_name("comm.bandwidth_utilization")
_EXPOSED_UNMATCHED: Final = metric_name("time.exposed_unmatched")
_EXPOSED_BY: Final = metric_name("overlap.exposed_by")
_EXPOSED_COMM: Final = metric_name("time.exposed_comm")
_OVERLAP: Final = metric_name("overlap.ratio")
_TRANSFER: Final = metric_name("time.exposed_transfer")
_GAIN: Final = (
    "the transfers of those collectives take no time, as if compute hid all of them; at least as if it hid"
    " all of a step but the first and the last, and no all_to_all, whose result is needed at once"
)
_SMALL_BYTES: Final = 256 * 1024
_SMALL_OF_VERY_MANY: Final = 1024 * 1024
"""Up to which size of few calls, and of very many, a message is mostly latency."""
_MANY, _VERY_MANY = 8, 64
"""Calls a step from which on several could be one."""
_LATENCY: Final = 0.5
"""Share of the transfer that is latency from which on messages are small."""
_ON_STREAM: Final = 0.9
"""Share of communication on streams that compute from which on it is said."""
_AWAITED: Final = ("all_to_all",)
"""Kinds whose result the next operator computes on, so that only other work could run beside them."""
_AT_THE_ENDS: Final = 2
"""Calls of a step that have no compute before or behind them to hide in."""
_HIDDEN: Final = 0.1
"""Share of the transfer that runs beside compute below which nothing is overlapped."""
_CALLS: Final = """SELECT rank, kind, "group", step, in_bytes, start_ns, end_ns - start_ns AS ns, wait_ns
FROM collectives WHERE kind = '{kind}'{more} ORDER BY ns - coalesce(wait_ns, 0) DESC LIMIT 20"""


@dataclass(slots=True)
class _Traffic:
    """The collectives of one kind in groups of one shape, such as all pairs of neighbours."""

    kind: str
    shape: tuple[int, ...]
    groups: list[str] = field(default_factory=list)
    exposed: dict[int, float] = field(default_factory=dict)


def _exposed_traffic(case: Case) -> list[_Traffic]:
    """What is exposed of each kind and shape of group, the largest first."""
    found: dict[tuple[str, tuple[int, ...]], _Traffic] = {}
    for row in case.rows_of_groups(_TRANSFER):
        kind, group = row.collective or "", row.group or ""
        shape = shape_of(group)
        own = found.setdefault((kind, shape), _Traffic(kind, shape))
        own.groups.append(group)
        own.exposed = sum_by_rank([own.exposed, case.ranks(_TRANSFER, collective=kind, group=group)])
    return sorted(found.values(), key=lambda one: -max(one.exposed.values(), default=0.0))


def _traffic_amount(case: Case, metric: MetricName, traffic: _Traffic) -> float:
    """A rank's amount of a metric by kind and group: of all groups alike the mean."""
    keys = [{"collective": traffic.kind, "group": group} for group in traffic.groups]
    values = [value for key in keys if (value := case.number(metric, **key)) is not None]
    return sum(values) / len(values) if values else 0.0


def _kind_selector(traffic: _Traffic) -> str:
    return _CALLS.format(kind=traffic.kind, more="")


def _traffic_evidence(traffic: _Traffic, *metrics: MetricName) -> list[tuple[MetricName, Mapping[str, str]]]:
    keys = {"collective": traffic.kind}
    if len(traffic.groups) == 1:
        keys["group"] = traffic.groups[0]
    return [(metric, keys) for metric in metrics]


@finding(
    "small_messages",
    title="collectives are too small to use their links",
    rule="in a kind and shape of group 8 calls a step and more, of which latency is half the time (the line"
    " through their points, comm.alpha and comm.beta), or, where that line's interval leaves it open, of"
    " 256 KiB and less on average (of 64 calls and more 1 MiB)",
    gain="the transfers take no latency (alpha), else the time of one call; at most launches take no time"
    " either, as where the calls are one; where the CPU is the device, handing calls over and resuming",
    actions={
        "pytorch": (
            "larger buckets: DDP(bucket_cap_mb=...), FSDP wrapping of whole blocks, coalesced collectives",
        ),
        "any": ("send what is ready together in one call",),
    },
)
def small_messages(case: Case) -> Iterator[Finding]:
    shapes: dict[tuple[int, ...], list[tuple[_Traffic, float]]] = {}
    for traffic in _exposed_traffic(case):
        calls, transfer = (
            _traffic_amount(case, _COLLECTIVES, traffic),
            _traffic_amount(case, _COMM_TRANSFER, traffic),
        )
        share = _latency_share(case, traffic, calls, transfer)
        if share is not None:
            shapes.setdefault(traffic.shape, []).append((traffic, share))
    for small in shapes.values():
        calls_of, joined, shares = [], [], []
        for traffic, share in small:
            calls, volume = (_traffic_amount(case, metric, traffic) for metric in (_COLLECTIVES, _VOLUME))
            calls_of.append(
                f"{calls:,.0f} calls of {traffic.kind} a step move {humanise(volume / calls, 'B')} each,"
                f" and some {humanise(share, '1')} of their transfer is latency"
            )
            joined += _transfer_settings(traffic, f"x{1 - share:.3f}" if share < 1 else "0")
            shares.append({rank: seconds * share for rank, seconds in traffic.exposed.items()})
        figures = (_COLLECTIVES, _VOLUME, _ALPHA, _BETA, _TRANSFER)
        yield case.found(
            "small_messages",
            f"In {describe_groups(small[0][0].groups)} {'; '.join(calls_of)}.",
            lost=sum_by_rank(shares),
            whatif=[*joined, f"host[{'sync' if case.on_host else 'launch+operators'}].time=0"],
            surely=joined,
            confidence="medium",
            because="that calls can be joined is not in the trace: what depends on each one's result cannot",
            evidence=case.evidence(
                *(one for traffic, _ in small for one in _traffic_evidence(traffic, *figures))
            ),
            query=_kind_selector(small[0][0]),
        )


def _transfer_settings(traffic: _Traffic, value: str) -> list[str]:
    """The setting that gives those collectives another time."""
    return [f"transfers[{traffic.kind}&group={'|'.join(sorted(traffic.groups))}].time={value}"]


def _latency_share(case: Case, traffic: _Traffic, calls: float, transfer_s: float) -> float | None:
    """The share of the transfer that is latency where that makes the messages small; None elsewhere.

    Of a call on the line that is α / (α + β·S): transfers that something else held up are longer than it.
    """
    if calls < _MANY or not transfer_s or traffic.kind == "barrier":
        return None
    size = _traffic_amount(case, _VOLUME, traffic) / calls
    alpha, low, high, beta = (
        _over_groups(case, traffic, metric, stat)
        for metric, stat in ((_ALPHA, None), (_ALPHA, "low"), (_ALPHA, "high"), (_BETA, None))
    )
    if alpha is not None and (call_s := alpha + (beta or 0.0) * size):
        if (alpha if low is None else low) >= _LATENCY * call_s:
            return alpha / call_s
        if (alpha if high is None else high) < _LATENCY * call_s:
            return None
    most = _SMALL_BYTES if calls < _VERY_MANY else _SMALL_OF_VERY_MANY
    return 1 - 1 / calls if 0 < size <= most else None


def _over_groups(case: Case, traffic: _Traffic, figure: MetricName, stat: str | None) -> float | None:
    """The median over the groups of a figure of the line through their points; None without any."""
    keys = {"collective": traffic.kind} | ({} if stat is None else {"stat": stat})
    values = [case.number(figure, group=group, **keys) for group in traffic.groups]
    known = [value for value in values if value is not None]
    return median(known) if known else None


@finding(
    "exposed_communication",
    title="the device transfers and computes nothing",
    rule=_TRANSFER + " by shape of group, but for slow links and networks and small messages",
    gain=_GAIN,
    actions={
        "pytorch": (
            "overlap it: FSDP prefetch (forward_prefetch, backward_prefetch), DDP buckets that begin earlier,"
            " asynchronous tensor parallelism, a stream of its own",
            "move less: another parallel plan, lower precision, fewer ranks in the group",
        ),
        "jax": ("XLA's latency-hiding scheduler and collective pipelining; another sharding",),
        "any": ("overlap it with compute that does not need its result", "move less, or over faster links"),
    },
)
def exposed_communication(case: Case) -> Iterator[Finding]:
    slow = {*slow_groups(case), *far_below_links(case)}
    shapes: dict[tuple[int, ...], list[_Traffic]] = {}
    for traffic in _exposed_traffic(case):
        transfer, calls = (
            _traffic_amount(case, _COMM_TRANSFER, traffic),
            _traffic_amount(case, _COLLECTIVES, traffic),
        )
        small = _latency_share(case, traffic, calls, transfer) is not None
        if not small and not any((traffic.kind, group) in slow for group in traffic.groups):
            shapes.setdefault(traffic.shape, []).append(traffic)
    for listed in shapes.values():
        lost = sum_by_rank(traffic.exposed for traffic in listed)
        largest = max(lost.values(), default=0.0)
        if not largest:
            continue
        transfer, alone = (
            sum(_traffic_amount(case, metric, traffic) for traffic in listed)
            for metric in (_COMM_TRANSFER, _TRANSFER)
        )
        hidden = max(0.0, 1 - alone / transfer) if transfer else 0.0
        beside = "none of it" if hidden < _HIDDEN else f"{hidden:.0%} more".replace("%", " %")
        where = "; they are on a stream that computes" if _on_compute_stream(case) else ""
        sure: Confidence = "high" if hidden < _HIDDEN else "medium"
        means = [(traffic.kind, _traffic_amount(case, _TRANSFER, traffic)) for traffic in listed]
        kinds = ", ".join(f"{kind} {humanise(mean, 's')}" for kind, mean in means[:3] if mean)
        yield case.found(
            "exposed_communication",
            f"Transfers in {describe_groups(listed[0].groups)} take {humanise(largest, 's')} of a step while"
            f" nothing computes ({kinds} on average); {beside} runs beside compute{where}.",
            lost=lost,
            whatif=[text for traffic in listed for text in _transfer_settings(traffic, "0")],
            surely=[text for traffic in listed for text in _hidden_settings(case, traffic)],
            confidence=sure,
            because="time after the last rank's arrival alone; whether compute could run beside it depends on"
            " what needs its result: at least all calls of a step but the first and the last"
            + _awaited_words(listed),
            evidence=case.evidence(
                *[
                    one
                    for traffic in listed
                    for one in _traffic_evidence(traffic, _TRANSFER, _COMM_TRANSFER, _BUSBW)
                ],
                _SAME_STREAM,
                _BANDWIDTH_UTILIZATION,
            ),
            query=_kind_selector(listed[0]),
        )
    yield from _unmatched_findings(case)


def _hidden_settings(case: Case, traffic: _Traffic) -> list[str]:
    """The setting of what compute can surely hide: all calls of a step but the first and the last."""
    calls = _traffic_amount(case, _COLLECTIVES, traffic)
    if traffic.kind in _AWAITED or calls <= _AT_THE_ENDS:
        return []
    return _transfer_settings(traffic, f"x{_AT_THE_ENDS / calls:.3f}")


def _awaited_words(listed: Sequence[_Traffic]) -> str:
    """What makes the least gain smaller."""
    kinds = [traffic.kind for traffic in listed if traffic.kind in _AWAITED]
    return f", and none of {kinds[0]}, whose result is needed at once" if kinds else ""


def _on_compute_stream(case: Case) -> bool:
    """Whether nearly all communication kernels are on streams that compute, where programs choose them."""
    xla = any("XLA" in (rank.facts.producer or "") for rank in case.record.ranks)
    return not xla and (case.number(_SAME_STREAM) or 0.0) >= _ON_STREAM and case.framework() != "jax"


def _unmatched_findings(case: Case) -> Iterator[Finding]:
    """Exposed communication that may wait or transfer: nobody can tell."""
    lost = case.ranks(_EXPOSED_UNMATCHED)
    if not any(lost.values()):
        return
    rows = case.parts(_EXPOSED_BY)
    kinds = sorted(
        ((row.number, row.collective) for row in rows if row.collective and not (row.group or row.category)),
        reverse=True,
    )
    listed = ", ".join(f"{kind} {humanise(seconds, 's')}" for seconds, kind in kinds[:3] if seconds)
    named = f" ({listed})" if listed else ""
    named += ", on a stream that computes" if _on_compute_stream(case) else ""
    yield case.found(
        "exposed_communication",
        f"Communication runs for {humanise(max(lost.values()), 's')} of a step while nothing computes{named};"
        " how much of it waits for other ranks nobody can tell.",
        lost=lost,
        whatif=["transfers.time=0"],
        confidence="medium",
        because="the time is exact; it is not matched across ranks, so that waiting is among it",
        evidence=case.evidence(_EXPOSED_UNMATCHED, _EXPOSED_COMM, _OVERLAP),
        query=_CALLS.replace("WHERE kind = '{kind}'{more} ", ""),
    )
