# SPDX-License-Identifier: Apache-2.0
"""The host: what keeps it busy while the device waits for launches."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from cclbench.analyzers.metric import Value, metric
from cclbench.analyzers.time import linked_idle
from cclbench.analyzers.view.cpu_gaps import cpu_gaps
from cclbench.analyzers.view.host_gaps import host_computations, host_gaps
from cclbench.analyzers.view.rank_view import RankView
from cclbench.analyzers.view.values import NS_PER_S, parts_over_ranks, per_step
from cclbench.ground.intervals import Intervals, intersect, join


@metric(
    "time.idle_host_by",
    definition="Idle time in which the device waits for its host (time.idle_host), by cause (category). sync:"
    " the gap begins while the launching thread waits for the device (a synchronisation, or a blocking copy"
    " between host and device), and belongs to that wait; the stats then_<cause> split it by what the host"
    " did after the wait. capture: that wait is for work launched before the capture, or nothing has run yet."
    " Other gaps belong to what the launching thread does, in this order of precedence:"
    " cold_start, first calls that load code or create a context; allocation, calls that allocate or free"
    " device or pinned memory; loader, ranges of a data loader or a checkpoint; sync, waits for a device that"
    " is already idle; launch, launch calls, and the time from the launch of the event that ends the gap to"
    " its start; operators of the framework (stat on_host: of these, operators of at least 100 µs that launch"
    " nothing, or of at least 1 ms for each launch, also after a wait); python, recorded Python calls;"
    " unrecorded, everything else."
    " Where the CPU is the device, all of time.idle by what the thread of the steps does: loader; sync, calls"
    " of the communication library, and up to 1 ms after a transfer; cold_start, time between two operators"
    " of 50 times the median, only in the first step; launch, less than 50 µs between two operators;"
    " operators, nodes of autograd; python; unrecorded.",
    formula="|{gaps of time.idle_host} ∩ {gaps that begin in a wait, else what the launching thread does} ∩"
    " W|; where the CPU is the device |{time.idle} ∩ {what the thread of the steps does} ∩ W|",
    unit="s",
    better="lower",
    inputs=("events", "steps"),
    version=4,
    combine=parts_over_ranks,
    graphs="counted",
    not_applicable="no launch in the trace is linked to device work; or the CPU is the device, and the trace"
    " has calls of the communication library but no transfers",
)
def idle_host_by(rank: RankView) -> Iterator[Value]:
    windows = len(rank.windows) * NS_PER_S

    def seconds(cause_times: Intervals) -> float:
        return float(Fraction(int(rank.inside(cause_times).sum()), windows))

    if rank.on_host:
        yield from per_step(rank, rank.parts.idle)
        for cause, cause_times in cpu_gaps(rank).items():
            yield Value(value=seconds(cause_times), category=cause)
        return
    host_idle = linked_idle(rank).host
    yield from per_step(rank, rank.inside(host_idle))
    gaps = host_gaps(rank)
    for cause, cause_times in gaps.by.items():
        yield Value(value=seconds(cause_times), category=cause)
    for cause, cause_times in gaps.after_wait.items():
        if len(cause_times.starts):
            yield Value(value=seconds(cause_times), category="sync", stat=f"then_{cause}")
    operators = join(gaps.by["operators"], gaps.after_wait["operators"])
    if len((on_host := intersect(operators, host_computations(rank))).starts):
        yield Value(value=seconds(on_host), category="operators", stat="on_host")
