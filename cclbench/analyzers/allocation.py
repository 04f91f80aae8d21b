# SPDX-License-Identifier: Apache-2.0
"""The framework's memory allocator: peak, reserved and unused memory, fragmentation, growth over steps.

A trace's [memory] events state allocated bytes, rounded to blocks, and reserved bytes. Where no trace has
them, a memory snapshot states the requested bytes, over its whole recording.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

import numpy as np

from cclbench.analyzers.metric import (
    Coverage,
    NotApplicable,
    Unknown,
    Value,
    max_over_ranks,
    metric,
    no_value,
    run_metric,
)
from cclbench.analyzers.stand_ins import from_evidence
from cclbench.analyzers.view.rank_view import RankView
from cclbench.analyzers.view.run_view import RunView

if TYPE_CHECKING:
    from cclbench.analyzers.view.allocator import History
    from cclbench.analyzers.view.arena import FreeBlocks

_INPUTS: Final = ("events", "steps", "allocations", "memory_blocks")
_RECORD: Final = "record them with profile_memory, or take a memory snapshot"
_ELSE: Final = (
    " Without such events, from a memory snapshot: over its whole recording, and of the requested bytes,"
    " which the allocator rounds up; rows are then by device (category), and `source` names the snapshot."
)


def _traced_histories(rank: RankView) -> Iterator[History]:
    # Not needed to declare the metrics.
    from cclbench.analyzers.view.histories import trace_histories

    return trace_histories(rank.tables, rank=rank.rank)


def _device_histories(rank: RankView) -> list[History]:
    """Allocator histories of the rank's devices within the windows; `NotApplicable` without any."""
    if rank.facts.works_on is None:
        raise Unknown(rank.no_work)
    histories = []
    for history in _traced_histories(rank):
        if (history.device is None) == rank.on_host and history.time_ns is not None:
            inside = rank.in_windows(history.time_ns)
            if inside.any():
                histories.append(history.at_moments(inside))
    if not histories:
        raise NotApplicable("the trace has no allocator events of the device in the window")
    return histories


def _largest_of_devices(rank: RankView, number: Callable[[History], float | None]) -> float:
    """The largest value of the rank's devices; `NotApplicable` where the trace states none."""
    values = [value for history in _device_histories(rank) if (value := number(history)) is not None]
    if not values:
        raise NotApplicable("the trace does not state reserved memory")
    return max(values)


def _snapshot_values(run: RunView, number: Callable[[History], float | None]) -> Iterator[Value]:
    """The largest value over all snapshots' devices, then each device's; `NotApplicable` without any.

    Partial where a device has none.
    """
    recorded = [snapshot for snapshot in run.snapshots if snapshot.recorded]
    if not recorded:
        raise NotApplicable("the run has no memory snapshot with a history")
    with_values = [(history, value) for history in recorded if (value := number(history)) is not None]
    if not with_values:
        raise NotApplicable("the snapshots do not state reserved memory, or none of it is free")
    worst, most = max(with_values, key=lambda pair: pair[1])
    coverage = Coverage(len(with_values), len(run.snapshots))
    reason = worst.qualifier_words
    yield Value(value=most, provenance="derived", reason=reason, source=worst.source, coverage=coverage)
    if len(with_values) > 1:
        several = len({(snapshot.file, snapshot.rank) for snapshot in recorded if snapshot.rank is None}) > 1
        for history, value in with_values:
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
    definition="Peak of the bytes allocated by the framework's allocator on the device (on a CPU-only rank:"
    " in host memory), over the allocator events in the window." + _ELSE,
    formula="max of allocated bytes over [memory] events; for a snapshot max over events of"
    " (live before the first + Σ alloc − Σ free_requested)",
    unit="B",
    better="lower",
    inputs=_INPUTS,
    graphs="counted",
    not_applicable=f"there are no allocator events in the window ({_RECORD})",
    combine=max_over_ranks,
)
def peak_allocated(rank: RankView) -> Value:
    return Value(value=max(history.peak_allocated for history in _device_histories(rank)))


@from_evidence("memory.peak_allocated")
def peak_allocated_of_snapshots(run: RunView) -> Iterator[Value]:
    """Peak of allocated bytes, from snapshots."""
    return _snapshot_values(run, lambda history: history.peak_allocated)


@metric(
    "memory.peak_reserved",
    definition="Peak of the bytes that the framework's allocator reserved on the device, used or not, over"
    " the allocator events in the window." + _ELSE,
    formula="max of reserved bytes over [memory] events; for a snapshot backwards from the size of its"
    " segments: end − Σ (segment_alloc + segment_map − segment_free − segment_unmap) after the event",
    unit="B",
    better="lower",
    inputs=_INPUTS,
    graphs="counted",
    not_applicable=f"reserved memory is not recorded ({_RECORD}), or the CPU is the device",
    combine=max_over_ranks,
)
def peak_reserved(rank: RankView) -> Value:
    return Value(value=_largest_of_devices(rank, lambda history: history.peak_reserved))


@from_evidence("memory.peak_reserved")
def peak_reserved_of_snapshots(run: RunView) -> Iterator[Value]:
    """Peak of reserved bytes, from snapshots."""
    return _snapshot_values(run, lambda history: history.peak_reserved)


@metric(
    "memory.reserved_unused",
    definition="Bytes that the framework's allocator reserved and that are in no block in use, at the (first)"
    " peak of allocated bytes. For a snapshot they are its free blocks, without what rounding and unsplit"
    " blocks waste; stat `end` is when it was taken, stat `oom` at the last failed request." + _ELSE,
    formula="reserved − allocated at the peak of allocated bytes; for a snapshot Σ free blocks",
    unit="B",
    better="lower",
    inputs=_INPUTS,
    graphs="counted",
    not_applicable=f"reserved memory is not recorded ({_RECORD}), or the CPU is the device",
    combine=max_over_ranks,
)
def reserved_unused(rank: RankView) -> Value:
    return Value(
        value=_largest_of_devices(rank, lambda history: history.reserved_unused), provenance="derived"
    )


@from_evidence("memory.reserved_unused")
def reserved_unused_of_snapshots(run: RunView) -> Iterator[Value]:
    """Unused reserved bytes from snapshots, at the peak, at the end and at a failed request."""
    return _free_block_values(run, lambda history: history.reserved_unused, lambda free: float(free.bytes))


@run_metric(
    "memory.fragmentation",
    definition="Share of the free reserved memory outside the largest free block, at the (first) peak of"
    " allocated bytes: memory that one large request could not use. Blocks follow from those at the end of a"
    " memory snapshot, with later events undone; stat `end` is when it was taken, stat `oom` at the last"
    " failed request. The largest value over the snapshots' devices, then each device's.",
    formula="1 − largest free block / Σ free blocks",
    unit="1",
    better="lower",
    inputs=("allocations", "memory_blocks"),
    not_applicable="the run has no memory snapshot: [memory] events of traces do not state blocks",
    version=2,
)
def fragmentation(run: RunView) -> Iterator[Value]:
    def at_peak(history: History) -> float | None:
        free = history.free_at(history.peak_moment)
        return None if free is None else free.fragmentation

    return _free_block_values(run, at_peak, lambda free: free.fragmentation)


def _free_block_values(
    run: RunView, at_peak: Callable[[History], float | None], number: Callable[[FreeBlocks], float | None]
) -> Iterator[Value]:
    """Values at the peaks, which need a history, then the largest at the end and at failed requests."""
    try:
        yield from _snapshot_values(run, at_peak)
    except NotApplicable as why:
        yield no_value(str(why))
    moments = {
        "end": [(history, len(history.allocated) - 1) for history in run.snapshots if history.arena],
        "oom": [(history, history.failures[-1].moment) for history in run.snapshots if history.failures],
    }
    for stat, pairs in moments.items():
        numbers = [
            (value, history.source)
            for history, moment in pairs
            if (free := history.free_at(moment)) is not None and (value := number(free)) is not None
        ]
        if numbers:
            value, source = max(numbers, key=lambda pair: pair[0])
            yield Value(value=value, stat=stat, provenance="derived", source=source)


@metric(
    "memory.growth",
    definition="Growth of allocated bytes per step, over all devices of the rank: bytes at the end of the"
    " last complete step on the host, minus those of the first, per step between them. Above 0 in a steady"
    " state, memory leaks.",
    formula="(allocated at the end of the last step − at the end of the first) / (steps − 1)",
    unit="B",
    better="lower",
    not_applicable="the trace has no allocator events (record them with profile_memory), or fewer than two"
    " complete steps",
    combine=max_over_ranks,
    graphs="counted",
)
def growth(rank: RankView) -> Value:
    if rank.facts.works_on is None:
        raise Unknown(rank.no_work)
    ends = rank.annotated.ends
    if len(ends) < 2:
        raise NotApplicable("the trace has fewer than two complete steps")
    grown, any_events = 0, False
    for history in _traced_histories(rank):
        if (history.device is None) != rank.on_host or history.time_ns is None:
            continue
        first, last = np.searchsorted(history.time_ns, ends[[0, -1]]) - 1
        if first < 0:
            raise NotApplicable("the trace has no allocator event before the first step's end")
        grown += int(history.allocated[last]) - int(history.allocated[first])
        any_events = True
    if not any_events:
        raise NotApplicable("the trace has no allocator events of the device")
    return Value(value=grown / (len(ends) - 1), provenance="derived")
