# SPDX-License-Identifier: Apache-2.0
"""The host: what holds it while the device waits for its launches."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from cclbench.analyzers.metric import Value, metric
from cclbench.analyzers.time import linked_idle
from cclbench.analyzers.view.cpu_gaps import cpu_gaps
from cclbench.analyzers.view.host_gaps import host_gaps
from cclbench.analyzers.view.rank_view import RankView
from cclbench.analyzers.view.values import NS_PER_S, parts_over_ranks, per_step
from cclbench.ground.intervals import Intervals


@metric(
    "time.idle_host_by",
    definition="Idle time in which the device waits for its host (time.idle_host) by what drained the queue"
    " (category), exactly. sync: the gap begins while the thread that launches next waits for the device (a"
    " synchronisation, or a copy between host and device that blocks), and is that wait's, whatever the host"
    " did then, which the stats then_<cause> divide; capture: that wait is for work launched before the"
    " capture, or nothing had run yet. Other gaps go to what that thread does, of two at once the first:"
    " cold_start, first calls that load code or create a context; allocation, calls that allocate or free"
    " memory of the device or pinned memory; loader, a range of a data loader or of a checkpoint; sync,"
    " waits for a device that is idle already; launch, calls that launch, and from the launch of the event"
    " that ends the gap to its begin; operators, the framework's; python, recorded calls of Python;"
    " unrecorded, none of those. Where the CPU is the device, it is all of time.idle, by what the thread that"
    " runs the steps does: loader; sync, calls of the communication library, and up to 1 ms after a"
    " transfer's end; cold_start, time between two operators that takes 50 times the median of such time, in"
    " the first step alone; launch, less than 50 µs between two operators, which their calls take; operators,"
    " nodes of autograd; python; unrecorded.",
    formula="|{gaps of time.idle_host} ∩ {gaps that a wait begins, else what the launching thread does} ∩ W|;"
    " where the CPU is the device |{time.idle} ∩ {what the thread of the steps does} ∩ W|",
    unit="s",
    better="lower",
    inputs=("events", "steps"),
    version=3,
    combine=parts_over_ranks,
    graphs="counted",
    not_applicable="no launch in the trace is linked to what it launched; or the CPU is the device, and the"
    " trace has calls of the communication library but no transfers",
)
def idle_host_by(rank: RankView) -> Iterator[Value]:
    windows = len(rank.windows) * NS_PER_S

    def seconds(held: Intervals) -> float:
        return float(Fraction(int(rank.inside(held).sum()), windows))

    if rank.on_host:
        yield from per_step(rank, rank.parts.idle)
        for cause, held in cpu_gaps(rank).items():
            yield Value(value=seconds(held), category=cause)
        return
    whole = linked_idle(rank).host
    yield from per_step(rank, rank.inside(whole))
    gaps = host_gaps(rank)
    for cause, held in gaps.by.items():
        yield Value(value=seconds(held), category=cause)
    for cause, held in gaps.after_wait.items():
        if len(held.starts):
            yield Value(value=seconds(held), category="sync", stat=f"then_{cause}")
