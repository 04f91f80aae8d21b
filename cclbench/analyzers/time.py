# SPDX-License-Identifier: Apache-2.0
"""Time: exact partition of each rank's windows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import partial

import numpy as np

from cclbench.analyzers.metric import MATCHED, Coverage, NotApplicable, Unknown, Value, metric
from cclbench.analyzers.view.arrivals import matched_rows
from cclbench.analyzers.view.categories import kernels_by_category, window_shares
from cclbench.analyzers.view.copies import exposed_copies
from cclbench.analyzers.view.exposed import Exposed, Shared
from cclbench.analyzers.view.idle import Idle
from cclbench.analyzers.view.rank_view import RankView
from cclbench.analyzers.view.values import (
    ALL_OPEN,
    NS_PER_S,
    OPEN_WINDOW,
    by_label,
    by_step,
    parts_over_ranks,
    per_step,
    spread_values,
)
from cclbench.analyzers.view.whole_graphs import graph_times
from cclbench.ground import intervals
from cclbench.ground.schema import OPEN

NO_GRAPHS = "no CUDA graph was traced as a whole"
UNKNOWN_SPLIT = "none of the rank's exposed communication is matched across ranks"
_AS_COMPUTE = " Partial where CUDA graphs were traced as a whole: their launches count as compute."
_seconds = partial(metric, unit="s", better="lower")
_split_metric = partial(_seconds, inputs=("events", MATCHED, "steps"), not_applicable=UNKNOWN_SPLIT)
_launch_metric = partial(
    _seconds,
    not_applicable="no launch in the trace is linked to device work, or the CPU is the device",
    graphs="counted",
)


def slowest_rank_each_step(ranks: Mapping[int, Sequence[Value]]) -> Iterable[Value]:
    """Mean over steps of the maximum over ranks; p50, p95 (from 20 steps), max and cv of these maxima."""
    longest = {step: max(lengths) for step, lengths in by_step(ranks).items()}
    lengths = np.array(list(longest.values()), np.float64)
    reasons = dict.fromkeys(values[0].reason for values in ranks.values() if values[0].reason)
    yield Value(value=float(lengths.mean()), reason="; ".join(reasons) or None)
    yield from spread_values(lengths)
    if len(lengths) > 1:
        yield Value(value=float(lengths.std(ddof=1) / lengths.mean()), stat="cv", unit="1")
    for step in sorted(s for s in longest if s is not None):
        yield Value(value=longest[step], step=step)
    still_open: dict[int, float] = {}
    for value in (v for values in ranks.values() for v in values if v.stat == OPEN):
        assert value.step is not None and value.value is not None  # noqa: S101, PT018 - rows of a window
        still_open[value.step] = max(still_open.get(value.step, 0.0), value.value)
    for step, length in sorted(still_open.items()):
        yield Value(value=length, step=step, stat=OPEN, reason=OPEN_WINDOW)


@_seconds(
    "time.step",
    definition="Length of the window. The run's value is the mean over steps of the slowest rank's window."
    " The last annotated step is incomplete, since no step follows it: it has a row of stat open and is in"
    " no mean. Without annotations, where CUDA graphs were traced as a whole, repetitions of their launches"
    " are steps.",
    formula="W",
    combine=slowest_rank_each_step,
    not_applicable="the trace has no work",
    version=2,
    graphs="counted",
)
def step(rank: RankView) -> Iterator[Value]:
    reason = ALL_OPEN if rank.windows.open else None
    yield from per_step(rank, rank.parts.window, of_open=rank.open_parts.window, reason=reason)


@metric(
    "time.compute_only",
    definition=f"Time in which compute kernels run and no communication does.{_AS_COMPUTE}",
    formula="|C| − |C∩K|",
    unit="s",
    graphs="as compute",
)
def compute_only(rank: RankView) -> Iterator[Value]:
    parts, of_open = rank.parts.compute_only, rank.open_parts.compute_only
    yield from per_step(rank, parts, of_open=of_open, blurred=rank.blurred)


@metric(
    "time.graph_only",
    definition="Part of time.compute_only in which only CUDA graphs run that were traced as a whole: their"
    " start and end are known, their kernels are not.",
    formula="|G \\ (kernels)|, G = launches of graphs",
    unit="s",
    not_applicable=NO_GRAPHS,
    graphs="counted",
)
def graph_only(rank: RankView) -> Iterator[Value]:
    graphs = graph_times(rank)
    if not len(graphs):
        raise NotApplicable(NO_GRAPHS)
    alone = intervals.subtract(graphs, intervals.join(*kernels_by_category(rank).values()))
    w = rank.open_windows
    yield from per_step(rank, rank.inside(alone), of_open=intervals.within(alone, w.starts, w.ends))


@metric(
    "time.overlapped",
    definition=f"Time in which compute kernels and communication run at once.{_AS_COMPUTE}",
    formula="|C∩K|",
    unit="s",
    graphs="as compute",
)
def overlapped(rank: RankView) -> Iterator[Value]:
    parts, of_open = rank.parts.overlapped, rank.open_parts.overlapped
    yield from per_step(rank, parts, of_open=of_open, blurred=rank.blurred)


@_seconds(
    "time.exposed_comm",
    definition=f"Time in which communication runs and nothing computes.{_AS_COMPUTE}",
    formula="|K| − |C∩K|",
    graphs="as compute",
)
def exposed_comm(rank: RankView) -> Iterator[Value]:
    parts, of_open = rank.parts.exposed_comm, rank.open_parts.exposed_comm
    yield from per_step(rank, parts, of_open=of_open, blurred=rank.blurred)


_SPLIT = (
    " Collectives that run at once share the exposed time equally; the time before the last rank's arrival is"
    " wait, after it transfer; unmatched collectives have neither. The three sum to time.exposed_comm."
    " Partial where some are not matched; for a collective that lacks a rank's trace the wait is a lower"
    " bound."
)
_BY = " By kind, by process group, by parallel dimension (category)."


@_split_metric(
    "time.exposed_wait",
    definition=f"Exposed communication that waits for a late rank: an imbalance.{_SPLIT}{_BY}",
    formula="Σ over instants t in K \\ C of waiting(t) / running(t)",
)
def exposed_wait(rank: RankView) -> Iterator[Value]:
    yield from _shared_values(rank, _exposed_split(rank).wait)


@_split_metric(
    "time.exposed_transfer",
    definition=f"Exposed communication after the last rank's arrival: the network's time.{_SPLIT}{_BY}",
    formula="Σ over instants t in K \\ C of transferring(t) / running(t)",
)
def exposed_transfer(rank: RankView) -> Iterator[Value]:
    yield from _shared_values(rank, _exposed_split(rank).transfer)


@metric(
    "time.exposed_unmatched",
    definition=f"Exposed communication that cannot be split into wait and transfer.{_SPLIT}",
    formula="time.exposed_comm − time.exposed_wait − time.exposed_transfer",
    unit="s",
    inputs=("events", MATCHED, "steps"),
)
def exposed_unmatched(rank: RankView) -> Iterator[Value]:
    exposed, total = rank.exposed, rank.parts.exposed_comm.tolist()
    parts = zip(total, exposed.wait.by_window(), exposed.transfer.by_window(), strict=True)
    yield from per_step(rank, [ns - wait - transfer for ns, wait, transfer in parts])


def _exposed_split(rank: RankView) -> Exposed:
    """The split of exposed communication; `Unknown` if there is some, and none of it is matched."""
    exposed = rank.exposed
    if rank.parts.exposed_comm.any() and not exposed.any_matched:
        raise Unknown(UNKNOWN_SPLIT, split_coverage(rank))
    return exposed


def split_coverage(rank: RankView) -> Coverage:
    """How much of the exposed communication is split, by collectives and by time."""
    total = int(rank.parts.exposed_comm.sum())
    exposed = rank.exposed
    split = sum((sum(part.by_label(), Fraction(0)) for part in (exposed.wait, exposed.transfer)), Fraction(0))
    rows = matched_rows(rank.collectives).coverage
    if total == split:
        return Coverage(rows.all_rows, rows.all_rows, total, total)
    return Coverage(rows.rows, rows.all_rows, int(split), total)


def _shared_values(rank: RankView, shared: Shared) -> Iterator[Value]:
    yield from per_step(rank, shared.by_window(), coverage=split_coverage(rank))
    per_window = len(rank.windows) * NS_PER_S
    yield from by_label(rank.exposed.labels, [ns / per_window for ns in shared.by_label()])


@_seconds(
    "time.exposed_copy",
    definition="Time in which only copies and memsets run; by direction and kind of host memory (category),"
    f" shared equally by copies that run at once.{_AS_COMPUTE}",
    formula="|M \\ (C∪K)|",
    version=2,
    graphs="as compute",
    combine=parts_over_ranks,
)
def exposed_copy(rank: RankView) -> Iterator[Value]:
    yield from per_step(rank, rank.parts.exposed_copy, of_open=rank.open_parts.exposed_copy)
    w = rank.windows
    alone = exposed_copies(rank)
    for label, ns in zip(alone, window_shares(alone, w.starts, w.ends).by_label(), strict=True):
        if ns:
            yield Value(value=float(ns / Fraction(len(w) * NS_PER_S)), category=label)


@_seconds(
    "time.idle",
    definition="Time in which the device runs nothing. Gaps inside CUDA graphs that were traced as a whole"
    " are not recorded and do not count.",
    formula="W − |C∪K∪M|",
    graphs="counted",
)
def idle(rank: RankView) -> Iterator[Value]:
    graphs = rank.whole_graphs
    reason = None if graphs is None else f"between graphs and kernels: {graphs.unknown_reason}"
    yield from per_step(rank, rank.parts.idle, of_open=rank.open_parts.idle, reason=reason)


_GAPS = (
    "A gap belongs to the device event that ends it, also across a window's edge; of several events that"
    " start at once, to the one on the lowest stream. A stream is free from the end of its previous event,"
    " before its first event always; a launch begins with its call. The three kinds of idle time sum to"
    " time.idle."
)


@_launch_metric(
    "time.idle_host",
    definition="Idle time before a device event that was launched after its stream became free: the device"
    f" waits for the host. {_GAPS}",
    formula="Σ |gap ∩ W| over gaps with launch start > stream free",
)
def idle_host(rank: RankView) -> Iterator[Value]:
    yield from per_step(rank, rank.inside(linked_idle(rank).host))


@_launch_metric(
    "time.idle_device",
    definition="Idle time before a device event that was launched before its stream became free: it waits for"
    f" another stream, an event or the device's scheduling. {_GAPS}",
    formula="Σ |gap ∩ W| over gaps with launch start ≤ stream free",
)
def idle_device(rank: RankView) -> Iterator[Value]:
    yield from per_step(rank, rank.inside(linked_idle(rank).device))


@_seconds(
    "time.idle_unknown",
    definition=f"Idle time before a device event without a launch, or after the last event. {_GAPS}",
    formula="Σ |gap ∩ W| over the other gaps",
    not_applicable="the CPU is the device",
    graphs="counted",
)
def idle_unknown(rank: RankView) -> Iterator[Value]:
    yield from per_step(rank, rank.inside(rank.idle.unknown))


def linked_idle(rank: RankView) -> Idle:
    """Idle time by cause; `NotApplicable` where no launch is linked."""
    if not rank.idle.any_launch:
        raise NotApplicable("no launch in the trace is linked to device work: all idle time is unknown")
    return rank.idle
