# SPDX-License-Identifier: Apache-2.0
"""Exposed communication: small messages, and transfers that no compute hides."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Final, NamedTuple

from cclbench.analyzers.view.collectives import UNKNOWN
from cclbench.findings.case import Case, sum_by_rank
from cclbench.findings.causes.links import far_below_links, slow_groups
from cclbench.findings.finding import Confidence, Finding, finding
from cclbench.findings.groups import describe_groups, shape_of
from cclbench.findings.losses import largest_rank, loss_words, parts_words
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
    " all but a step's first and last call, and no all_to_all, whose result is needed at once"
)
_SMALL_BYTES: Final = 256 * 1024
_SMALL_OF_VERY_MANY: Final = 1024 * 1024
"""Largest message that is mostly latency, with few calls a step and with very many."""
_MANY, _VERY_MANY = 8, 64
"""Calls a step that count as many, and as very many."""
_LATENCY: Final = 0.5
"""Messages are small where at least this share of their transfer is latency."""
_ON_STREAM: Final = 0.9
"""Least share of communication on compute streams that a claim mentions."""
_AWAITED: Final = ("all_to_all",)
"""Kinds whose result the next operator needs, so that only independent work could overlap them."""
_AT_THE_ENDS: Final = 2
"""Calls of a step that no compute can hide: the first and the last."""
_HIDDEN: Final = 0.1
"""Transfers count as not overlapped where compute hides less than this share of them."""
_CALLS: Final = """SELECT rank, kind, "group", step, in_bytes, start_ns, end_ns - start_ns AS ns, wait_ns
FROM collectives WHERE kind = '{kind}'{more} ORDER BY ns - coalesce(wait_ns, 0) DESC LIMIT 20"""


@dataclass(slots=True)
class _Traffic:
    """The collectives of one kind in groups of one shape, such as all pairs of neighbouring ranks."""

    kind: str
    shape: tuple[int, ...]
    groups: list[str] = field(default_factory=list)
    exposed: dict[int, float] = field(default_factory=dict)


def _exposed_traffic(case: Case) -> list[_Traffic]:
    """Exposed transfers by kind and group shape, the largest first."""
    by_shape: dict[tuple[str, tuple[int, ...]], _Traffic] = {}
    for row in case.rows_of_groups(_TRANSFER):
        kind, group = row.collective or "", row.group or ""
        shape = shape_of(group)
        traffic = by_shape.setdefault((kind, shape), _Traffic(kind, shape))
        traffic.groups.append(group)
        traffic.exposed = sum_by_rank([traffic.exposed, case.ranks(_TRANSFER, collective=kind, group=group)])
    return sorted(by_shape.values(), key=lambda entry: -max(entry.exposed.values(), default=0.0))


def _traffic_amount(case: Case, metric: MetricName, traffic: _Traffic) -> float:
    """A rank's value of a metric by kind and group: the mean over the groups of this shape."""
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
    title="many small collectives",
    rule="at least 8 calls a step of one kind and group shape, of whose transfer latency is at least half (by"
    " the fit of comm.alpha and comm.beta), or, where the fit's interval does not decide, of at most"
    " 256 KiB on average (1 MiB from 64 calls on)",
    gain="the transfers have no latency (alpha); at most their launches take no time either, as if the calls"
    " were one (where the CPU is the device: handing calls over and resuming). Where no fit shows the"
    " latency, at most the transfers take the time of one call, and no least gain is known",
    actions={
        "pytorch": (
            "larger buckets: DDP(bucket_cap_mb=...), FSDP wrapping of whole blocks, coalesced collectives",
        ),
        "any": ("send tensors that are ready together in one call",),
    },
)
def small_messages(case: Case) -> Iterator[Finding]:
    shapes: dict[tuple[int, ...], list[tuple[_Traffic, _Removable]]] = {}
    for traffic in _exposed_traffic(case):
        calls, transfer = (
            _traffic_amount(case, _COLLECTIVES, traffic),
            _traffic_amount(case, _COMM_TRANSFER, traffic),
        )
        removable = _removable_share(case, traffic, calls, transfer)
        if removable is not None:
            shapes.setdefault(traffic.shape, []).append((traffic, removable))
    for small in shapes.values():
        calls_of, joined, surely, shares = [], [], [], []
        for traffic, (share, is_fitted) in small:
            calls, volume, transfer = (
                _traffic_amount(case, metric, traffic) for metric in (_COLLECTIVES, _VOLUME, _COMM_TRANSFER)
            )
            size = f"{calls:,.0f} {traffic.kind} calls a step move {humanise(volume / calls, 'B')} each"
            settings = _transfer_settings(traffic, f"x{1 - share:.3f}" if share < 1 else "0")
            if is_fitted:
                calls_of.append(f"{size}; about {humanise(share, '1')} of their transfer is latency")
                surely += settings
            else:
                calls_of.append(f"{size}, at {humanise(volume / transfer, 'B/s')} of transfer time")
            joined += settings
            shares.append({rank: seconds * share for rank, seconds in traffic.exposed.items()})
        unfitted = "" if surely else "; no fit shows how much of the transfers is latency"
        figures = (_COLLECTIVES, _VOLUME, _ALPHA, _BETA, _TRANSFER)
        yield case.finding(
            "small_messages",
            f"In {describe_groups(small[0][0].groups)} {'; '.join(calls_of)}.",
            lost=sum_by_rank(shares),
            whatif=[*joined, f"host[{'sync' if case.on_host else 'launch+operators'}].time=0"],
            surely=surely,
            confidence="medium" if surely else "low",
            because="the trace does not show which calls can be merged: those needed one by one cannot"
            + unfitted,
            evidence=case.evidence(
                *(pair for traffic, _ in small for pair in _traffic_evidence(traffic, *figures))
            ),
            query=_kind_selector(small[0][0]),
        )


def _transfer_settings(traffic: _Traffic, value: str) -> list[str]:
    """The setting that changes the transfer time of those collectives."""
    return [f"transfers[{traffic.kind}&group={'|'.join(sorted(traffic.groups))}].time={value}"]


class _Removable(NamedTuple):
    """Share of the transfers of small messages that fewer calls would not need.

    By a fit of latency, α / (α + β·S) for a call on the line, since other delays only lengthen measured
    transfers; without one, as if all calls took the time of one.
    """

    share: float
    is_fitted: bool


def _removable_share(case: Case, traffic: _Traffic, calls: float, transfer_s: float) -> _Removable | None:
    """What fewer calls would not need, where the messages are small; None elsewhere."""
    if calls < _MANY or not transfer_s or traffic.kind == "barrier":
        return None
    size = _traffic_amount(case, _VOLUME, traffic) / calls
    alpha, low, high, beta = (
        _over_groups(case, traffic, metric, stat)
        for metric, stat in ((_ALPHA, None), (_ALPHA, "low"), (_ALPHA, "high"), (_BETA, None))
    )
    if alpha is not None and (call_s := alpha + (beta or 0.0) * size):
        if (alpha if low is None else low) >= _LATENCY * call_s:
            return _Removable(alpha / call_s, is_fitted=True)
        if (alpha if high is None else high) < _LATENCY * call_s:
            return None
    most = _SMALL_BYTES if calls < _VERY_MANY else _SMALL_OF_VERY_MANY
    return _Removable(1 - 1 / calls, is_fitted=False) if 0 < size <= most else None


def _over_groups(case: Case, traffic: _Traffic, figure: MetricName, stat: str | None) -> float | None:
    """Median over the groups of a parameter of the latency fit; None where no group has one."""
    keys = {"collective": traffic.kind} | ({} if stat is None else {"stat": stat})
    values = [case.number(figure, group=group, **keys) for group in traffic.groups]
    present = [value for value in values if value is not None]
    return median(present) if present else None


@finding(
    "exposed_communication",
    title="communication is not hidden under compute",
    rule=_TRANSFER + " by group shape, except slow links and networks and small messages",
    gain=_GAIN,
    actions={
        "pytorch": (
            "overlap it: FSDP by prefetch (forward_prefetch, backward_prefetch), tensor parallelism by"
            " asynchronous collectives, others by a separate stream",
            "overlap it: DDP by buckets that start earlier, tensor parallelism by asynchronous collectives,"
            " others by a separate stream",
            "overlap sends and receives: asynchronous ones (batch_isend_irecv), an interleaved or zero-bubble"
            " schedule, more micro-batches",
            "overlap dispatch and combine with shared experts, or with another batch's compute",
            "move less: another parallel layout, lower precision, fewer ranks in the group",
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
        small = _removable_share(case, traffic, calls, transfer) is not None
        if not small and not any((traffic.kind, group) in slow for group in traffic.groups):
            shapes.setdefault(traffic.shape, []).append(traffic)
    for listed in shapes.values():
        lost = sum_by_rank(traffic.exposed for traffic in listed)
        rank = largest_rank(lost)
        if rank is None:
            continue
        transfer, alone = (
            sum(_traffic_amount(case, metric, traffic) for traffic in listed)
            for metric in (_COMM_TRANSFER, _TRANSFER)
        )
        hidden = max(0.0, 1 - alone / transfer) if transfer else 0.0
        overlap = "no transfer overlaps" if hidden < _HIDDEN else f"{hidden:.0%} of them overlap"
        stream = "; they are on a compute stream" if _on_compute_stream(case) else ""
        confidence: Confidence = "high" if hidden < _HIDDEN else "medium"
        kinds = [(traffic.exposed.get(rank, 0.0), traffic.kind) for traffic in listed]
        yield case.finding(
            "exposed_communication",
            f"Transfers in {describe_groups(listed[0].groups)} take {loss_words(lost)} while nothing computes"
            f"{parts_words(kinds)}; {overlap.replace('%', ' %')} compute{stream}.",
            lost=lost,
            whatif=[text for traffic in listed for text in _transfer_settings(traffic, "0")],
            surely=[text for traffic in listed for text in _hidden_settings(case, traffic)],
            confidence=confidence,
            because="only time after the last rank's arrival; whether compute could hide it depends on what"
            " needs the result: at least all calls of a step but the first and the last"
            + _awaited_words(listed),
            evidence=case.evidence(
                *[
                    pair
                    for traffic in listed
                    for pair in _traffic_evidence(traffic, _TRANSFER, _COMM_TRANSFER, _BUSBW)
                ],
                _SAME_STREAM,
                _BANDWIDTH_UTILIZATION,
            ),
            query=_kind_selector(listed[0]),
        )
    yield from _unmatched_findings(case)


def _hidden_settings(case: Case, traffic: _Traffic) -> list[str]:
    """The setting for what compute can certainly hide: all calls of a step but the first and the last."""
    calls = _traffic_amount(case, _COLLECTIVES, traffic)
    if traffic.kind in _AWAITED or calls <= _AT_THE_ENDS:
        return []
    return _transfer_settings(traffic, f"x{_AT_THE_ENDS / calls:.3f}")


def _awaited_words(listed: Sequence[_Traffic]) -> str:
    """The exception for kinds whose result is needed at once, in words."""
    kinds = [traffic.kind for traffic in listed if traffic.kind in _AWAITED]
    return f", and none of {kinds[0]}, whose result is needed at once" if kinds else ""


def _on_compute_stream(case: Case) -> bool:
    """Whether nearly all communication kernels are on compute streams, where programs choose streams."""
    xla = any("XLA" in (rank.facts.producer or "") for rank in case.record.ranks)
    return not xla and (case.number(_SAME_STREAM) or 0.0) >= _ON_STREAM and case.framework() != "jax"


def _unmatched_findings(case: Case) -> Iterator[Finding]:
    """Exposed communication that is not split into wait and transfer."""
    lost = case.ranks(_EXPOSED_UNMATCHED)
    rank = largest_rank(lost)
    if rank is None:
        return
    names = {row.collective for row in case.parts(_EXPOSED_BY) if row.collective}
    parts = ((case.ranks(_EXPOSED_BY, collective=name).get(rank, 0.0), name) for name in names)
    kinds = sorted(parts, reverse=True)
    kind_words = "" if max(kinds, default=(0.0, UNKNOWN))[1] == UNKNOWN else parts_words(kinds)
    kind_words += ", on a compute stream" if _on_compute_stream(case) else ""
    yield case.finding(
        "exposed_communication",
        f"Communication runs for {loss_words(lost)} while nothing computes{kind_words};"
        f" how much of it waits for other ranks is unknown.",
        lost=lost,
        whatif=["transfers.time=0"],
        confidence="medium",
        because="the time is exact, but not matched across ranks, so it includes waiting",
        evidence=case.evidence(
            *(_EXPOSED_UNMATCHED, _EXPOSED_COMM, _OVERLAP),
            *[(_EXPOSED_BY, {"collective": name}) for seconds, name in kinds if seconds and name != UNKNOWN],
        ),
        query=_CALLS.replace("WHERE kind = '{kind}'{more} ", ""),
    )
