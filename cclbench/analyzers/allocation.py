# SPDX-License-Identifier: Apache-2.0
"""What the framework's allocator held: its peak, what it reserved for that, what grew from step to step.

A trace's [memory] events tell what was allocated, rounded to blocks, and what was reserved.  Where no trace
has any, a memory snapshot tells: of its events what the program asked for, over the whole recording.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import numpy as np

from cclbench.analyzers.metric import (
    Coverage,
    NotApplicable,
    Unknown,
    Value,
    max_over_ranks,
    metric,
    no_value,
)
from cclbench.analyzers.stand_ins import from_evidence
from cclbench.analyzers.view.allocator import History
from cclbench.analyzers.view.histories import of_trace
from cclbench.analyzers.view.rank_view import RankView
from cclbench.analyzers.view.run_view import RunView

_INPUTS: Final = ("events", "steps", "allocations", "memory_blocks")
_RECORD: Final = "record them with profile_memory, or take a memory snapshot"
_ELSE: Final = (
    " Where no trace tells, a memory snapshot does, of its whole recording and of the bytes that the program"
    " asked for, which the allocator rounds up: rows are then by device (category), and `source` says so."
)


def _device_histories(rank: RankView) -> list[History]:
    """The histories of the rank's own devices over the moments in the windows; not applicable without any."""
    if rank.facts.works_on is None:
        raise Unknown(rank.no_work)
    found = []
    for history in of_trace(rank.tables, rank=rank.rank):
        if (history.device is None) == rank.on_host and history.time_ns is not None:
            inside = rank.in_windows(history.time_ns)
            if inside.any():
                found.append(history.at_moments(inside))
    if not found:
        raise NotApplicable("the trace has no allocator events of the device in the window")
    return found


def _largest_of_devices(rank: RankView, number: Callable[[History], float | None]) -> float:
    """The largest number of any of the rank's devices; not applicable where the trace tells none."""
    told = [value for history in _device_histories(rank) if (value := number(history)) is not None]
    if not told:
        raise NotApplicable("the trace does not state what the allocator reserved")
    return max(told)


def _of_snapshots(run: RunView, number: Callable[[History], float | None]) -> Iterator[Value]:
    """The largest number of any device of any snapshot, then each device's; not applicable without any.

    It is partial where some device's is not told.
    """
    recorded = [one for one in run.snapshots if one.recorded]
    if not recorded:
        raise NotApplicable("the run has no memory snapshot with a history")
    told = [(history, value) for history in recorded if (value := number(history)) is not None]
    if not told:
        raise NotApplicable("the snapshots do not tell what was reserved")
    worst, most = max(told, key=lambda pair: pair[1])
    coverage = Coverage(len(told), len(run.snapshots))
    reason = worst.qualifier_words
    yield Value(value=most, provenance="derived", reason=reason, source=worst.source, coverage=coverage)
    if len(told) > 1:
        several = len({(one.file, one.rank) for one in recorded if one.rank is None}) > 1
        for history, value in told:
            yield Value(
                value=value,
                provenance="derived",
                rank=history.rank,
                category=history.device_label(with_file=several),
                reason=history.qualifier_words,
                source=history.source,
            )


@metric(
    "memory.peak_allocated",
    definition="Most bytes the framework's allocator held on the device (on a CPU-only rank: in its own"
    " memory) at any allocator event in the window." + _ELSE,
    formula="max of allocated bytes over [memory] events; of a snapshot max over events of"
    " (live before the first + Σ alloc − Σ free_requested)",
    unit="B",
    better="lower",
    inputs=_INPUTS,
    graphs="counted",
    not_applicable=f"nothing tells of the allocator in the window ({_RECORD})",
    combine=max_over_ranks,
)
def peak_allocated(rank: RankView) -> Value:
    return Value(value=max(history.peak_allocated for history in _device_histories(rank)))


@from_evidence("memory.peak_allocated")
def peak_allocated_of_snapshots(run: RunView) -> Iterator[Value]:
    """The peak by snapshots."""
    return _of_snapshots(run, lambda history: history.peak_allocated)


@metric(
    "memory.peak_reserved",
    definition="Most bytes the framework's allocator had taken from the device, used or not, at any"
    " allocator event in the window." + _ELSE,
    formula="max of reserved bytes over [memory] events; of a snapshot backwards from the bytes of its"
    " segments: end − Σ (segment_alloc + segment_map − segment_free − segment_unmap) after the event",
    unit="B",
    better="lower",
    inputs=_INPUTS,
    graphs="counted",
    not_applicable=f"nothing tells what the allocator reserved ({_RECORD}); a CPU's reserves nothing",
    combine=max_over_ranks,
)
def peak_reserved(rank: RankView) -> Value:
    return Value(value=_largest_of_devices(rank, lambda history: history.peak_reserved))


@from_evidence("memory.peak_reserved")
def peak_reserved_of_snapshots(run: RunView) -> Iterator[Value]:
    """What was reserved, by snapshots."""
    return _of_snapshots(run, lambda history: history.peak_reserved)


@metric(
    "memory.fragmentation",
    definition="Share of the reserved bytes that no tensor had, at the first moment at which most bytes were"
    " allocated: memory that is there and may yet be too scattered to be used. Of a snapshot the stat `end`"
    " is the share of reserved bytes in inactive blocks when it was taken, which leaves out what rounding"
    " wastes within active ones." + _ELSE,
    formula="1 − allocated / reserved at the peak of allocated bytes",
    unit="1",
    better="lower",
    inputs=_INPUTS,
    graphs="counted",
    not_applicable=f"nothing tells what the allocator reserved ({_RECORD}); a CPU's reserves nothing",
    combine=max_over_ranks,
)
def fragmentation(rank: RankView) -> Value:
    return Value(value=_largest_of_devices(rank, lambda history: history.fragmentation), provenance="derived")


@from_evidence("memory.fragmentation")
def fragmentation_of_snapshots(run: RunView) -> Iterator[Value]:
    """Fragmentation by snapshots, at the peak and at the end, which is known without a history too."""
    try:
        yield from _of_snapshots(run, lambda history: history.fragmentation)
    except NotApplicable as why:
        yield no_value(str(why))
    ends = [
        (share, history.source)
        for history in run.snapshots
        if history.end is not None and (share := history.end.inactive_share) is not None
    ]
    if ends:
        share, source = max(ends)
        yield Value(value=share, stat="end", provenance="derived", source=source)


@metric(
    "memory.growth",
    definition="Bytes that remain allocated from one step to the next: what was allocated when the last"
    " whole step ended on the host, less that of the first one, per step between them; over all devices of"
    " the rank. Above 0 in a steady state something is kept that should be freed.",
    formula="(allocated at the end of the last step − at the end of the first) / (steps − 1)",
    unit="B",
    better="lower",
    not_applicable="the trace has no allocator events (record them with profile_memory), or fewer than two"
    " whole steps",
    combine=max_over_ranks,
    graphs="counted",
)
def growth(rank: RankView) -> Value:
    if rank.facts.works_on is None:
        raise Unknown(rank.no_work)
    ends = rank.annotated.ends
    if len(ends) < 2:
        raise NotApplicable("the trace has fewer than two whole steps")
    grown, known = 0, False
    for history in of_trace(rank.tables, rank=rank.rank):
        if (history.device is None) != rank.on_host or history.time_ns is None:
            continue
        first, last = np.searchsorted(history.time_ns, ends[[0, -1]]) - 1
        if first < 0:
            raise NotApplicable("the trace has no allocator event before the first step's end")
        grown += int(history.allocated[last]) - int(history.allocated[first])
        known = True
    if not known:
        raise NotApplicable("the trace has no allocator events of the device")
    return Value(value=grown / (len(ends) - 1), provenance="derived")
