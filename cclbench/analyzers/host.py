# SPDX-License-Identifier: Apache-2.0
"""The host: what holds it while the device waits for its launches."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from cclbench.analyzers.metric import Value, metric
from cclbench.analyzers.time import linked
from cclbench.analyzers.view.host_gaps import RESTART_NS, host_gaps
from cclbench.analyzers.view.rank_view import RankView
from cclbench.analyzers.view.values import NS_PER_S, parts_over_ranks, per_step
from cclbench.intervals import Intervals


@metric(
    "time.idle_host_by",
    definition="Idle time in which the device waits for its host (time.idle_host) by what held the host"
    " (category), exactly: loading, a range of a data loader or of a checkpoint; allocation, calls that"
    " allocate or free memory of the device or pinned memory; synchronization, calls that wait for the"
    " device; launch, calls that launch, and from the launch of the event that ends the gap to its begin;"
    " operators, the framework's; elsewhere, none of those: Python and what the profiler does not record."
    " Of the thread that launches that event; of two at once the first. A gap that begins while that thread"
    f" waits for the device counts up to {RESTART_NS // 1000} µs, and no more than the wait, as"
    " synchronization: the host has to begin anew. Stat before_launch: gaps that end with the first launch"
    " after a wait, as much of each at most.",
    formula="|{gaps of time.idle_host} ∩ {what the launching thread does} ∩ W|",
    unit="s",
    better="lower",
    inputs=("events", "steps"),
    combine=parts_over_ranks,
    not_applicable="no launch in the trace is linked to what it launched, or the CPU is the device",
)
def idle_host_by(rank: RankView) -> Iterator[Value]:
    whole = linked(rank).host
    yield from per_step(rank, rank.inside(whole))
    gaps, windows = host_gaps(rank), len(rank.windows) * NS_PER_S

    def seconds(held: Intervals) -> float:
        return float(Fraction(int(rank.inside(held).sum()), windows))

    for what, held in gaps.by.items():
        yield Value(value=seconds(held), category=what)
    yield Value(value=seconds(gaps.after_wait), category="synchronization", stat="before_launch")
