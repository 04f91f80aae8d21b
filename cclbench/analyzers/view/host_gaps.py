# SPDX-License-Identifier: Apache-2.0
"""Gaps in which the device waits for its host, by cause."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import pyarrow as pa

from cclbench.analyzers.view.columns import has_word, matching_rows, row_spans
from cclbench.analyzers.view.launches import correlations_of, device_events
from cclbench.ground import intervals
from cclbench.ground.intervals import Int64, Intervals, Mask, intersect, join
from cclbench.normalize.host_calls import ALLOCATES, ASYNCHRONOUS, PINNED, blocks, take_turns
from cclbench.normalize.operators import count_launches
from cclbench.normalize.phases import LOADER

if TYPE_CHECKING:
    from cclbench.analyzers.view.rank_view import RankView

CAUSES: Final = (
    *("sync", "capture", "cold_start", "allocation", "loader", "launch", "operators", "python", "unrecorded"),
)
"""Causes of a drained queue, in order of precedence: a wait for the device, or host work."""
_WORK: Final = CAUSES[2:]
"""Causes that are host work."""
_ACTIVE: Final = ("cold_start", "allocation", "loader", "sync", "launch", "operators")
"""Causes that show that a thread is active; Python calls do not, since they enclose waits."""
_NEVER: Final = np.iinfo(np.int64).max
_LATENCY_NS: Final = 1_000_000
"""More than a launch latency, which is some 10 µs on an idle device."""
_COMPUTES_NS: Final = 100_000
"""Least duration of an operator that launches nothing and is no view, allocation or other overhead."""
_SLOW_LAUNCH_NS: Final = 1_000_000
"""Least time of an operator for each of its launches that is no launch overhead: some ten times what Python,
dispatch, the call and a profiler take together."""
_CLOCK_NS: Final = 1_000
"""Error of host and device clocks."""


@dataclass(frozen=True, slots=True, eq=False)
class HostGaps:
    """`time.idle_host` by cause: disjoint sets by `CAUSES`; and the part of `sync` after the host's wait, by
    what the host did then."""

    by: dict[str, Intervals]
    after_wait: dict[str, Intervals]
    turns: dict[int, Int64]
    """By launching thread: the threads that count as one with it, including itself."""


def host_gaps(rank: RankView) -> HostGaps:
    """Causes of the gaps in which the device waits for its host.

    A gap ends with the event that follows. If it begins while the thread that launches this event waits for
    the device, that wait drained the queue and has the whole gap (`sync`), whatever the host did afterwards;
    it is `capture` if the host waited for work launched before the capture, as is the gap before the first
    event. The time of other gaps goes to what that thread does, by the precedence of `CAUSES` (waits after
    `loader`); from the start of the launching call on it is `launch`. Threads that launch and take turns
    count as one: a main thread that waits before the backward pass drains the queue of autograd's thread.
    """
    late, calls = rank.idle.late, rank.launch_calls
    by_cause, after_by_cause = (dict[str, list[Intervals]]((cause, []) for cause in CAUSES) for _ in range(2))
    rows, turns = _in_turns(_rows_by_thread(rank, np.unique(calls.threads)))
    first = _first_of_all(rank)
    thread_of = calls.threads[late.call]
    for thread in np.unique(thread_of).tolist():
        of_thread = thread_of == thread
        starts, ends, call = late.starts[of_thread], late.ends[of_thread], late.call[of_thread]
        returned = np.maximum(calls.ends[call] + _LATENCY_NS, starts)
        gaps = _Gaps(starts, np.minimum(ends, returned), calls.starts[call].clip(starts, ends))
        # an event so much later than its call's return waited for something that is not in the trace
        of_stream = np.isin(call, first.calls)
        for cause, chosen in (("capture", of_stream), ("unrecorded", ~of_stream)):
            by_cause[cause].append(intervals.union(gaps.ends[chosen], ends[chosen]))
        waits = rows[thread].waits
        wait = wait_at_begin(waits.starts, waits.ends, gaps.starts)
        before = gaps.ends <= first.event_ns
        before |= np.append(waits.starts, _NEVER)[wait] <= first.launch_ns
        drained = (wait >= 0) & ~before
        by_cause["capture"].append(gaps.take_gaps(before).union())
        waited = gaps.take_gaps(drained)
        by_cause["sync"].append(waited.union())
        resumed = waits.ends[wait[drained]].clip(waited.starts, waited.ends)
        for cause, part in _work_in_gaps(waited._replace(starts=resumed), rows[thread]):
            after_by_cause[cause].append(part)
        for cause, part in _work_in_gaps(gaps.take_gaps((wait < 0) & ~before), rows[thread]):
            by_cause[cause].append(part)
    by, after_wait = (
        {cause: join(*parts) for cause, parts in sets.items()} for sets in (by_cause, after_by_cause)
    )
    return HostGaps(by, after_wait, turns)


def host_computations(rank: RankView) -> Intervals:
    """Times of a launching thread's operators that work on the host: those of at least `_COMPUTES_NS` that
    launch nothing, and those of at least `_SLOW_LAUNCH_NS` for each launch."""
    calls = rank.launch_calls
    launched = {
        thread: np.sort(calls.starts[calls.threads == thread]) for thread in np.unique(calls.threads).tolist()
    }
    parts = []
    for batch in rank.tables.events(("op",), ("track", "start_ns", "dur_ns")):
        starts, ends = row_spans(batch)
        thread = batch["track"].to_numpy()
        chosen = (ends - starts >= _COMPUTES_NS) & np.isin(thread, [*launched])
        starts, ends, thread = starts[chosen], ends[chosen], thread[chosen]
        launches = count_launches(thread, starts, ends, launched)
        computes = ends - starts >= launches * _SLOW_LAUNCH_NS
        parts.append(intervals.union(starts[computes], ends[computes]))
    return join(*parts)


class _Gaps(NamedTuple):
    """Gaps that end with a thread's launches, in order; arrays of shape (gaps,), times in ns."""

    starts: Int64
    ends: Int64
    called: Int64
    """Start of the call that launches the event after the gap, clipped to the gap."""

    def take_gaps(self, chosen: Mask) -> _Gaps:
        """The gaps of the mask."""
        return _Gaps(self.starts[chosen], self.ends[chosen], self.called[chosen])

    def union(self) -> Intervals:
        """The union of the gaps."""
        return intervals.union(self.starts, self.ends)


class _ThreadRows(NamedTuple):
    """A thread's waits for the device, one by one, and its times by cause."""

    waits: Intervals
    by: dict[str, Intervals]


def wait_at_begin(starts: Int64, ends: Int64, at: Int64) -> Int64:
    """Index of the wait (ordered by start) in which each gap begins, −1 for none; shape of `at`.

    A wait returns after the device becomes idle, up to clock error.
    """
    index = intervals.innermost(starts, ends + _CLOCK_NS, at)
    return np.asarray(index, np.int64)


def _work_in_gaps(gaps: _Gaps, rows: _ThreadRows) -> Iterator[tuple[str, Intervals]]:
    """What the thread does in the gaps, by cause."""
    if not len(gaps.starts):
        return
    called = np.maximum(gaps.called, gaps.starts)
    free, launching = intervals.union(gaps.starts, called), intervals.union(called, gaps.ends)
    since, until = int(gaps.starts.min()), int(gaps.ends[-1])
    for cause in ("cold_start", "allocation", "loader", "sync", "launch", "operators", "python"):
        cause_times = intervals.clipped(rows.by[cause], since, until)
        part = intervals.intersect(free, cause_times)
        free = intervals.subtract(free, cause_times)
        if cause == "launch":
            part = intervals.join(part, launching)
        if cause == "cold_start":
            part = intervals.join(part, intervals.intersect(launching, cause_times))
            launching = intervals.subtract(launching, cause_times)
        yield cause, part
    yield "unrecorded", free


class _First(NamedTuple):
    """Start of the first call that launches recorded work and of the first recorded work, ns; and the calls
    that launch the first work of each stream."""

    launch_ns: int
    event_ns: int
    calls: Int64


def _first_of_all(rank: RankView) -> _First:
    calls, events = rank.launch_calls, device_events(rank.tables)
    call = calls.indices_of(events.correlations)
    order = np.lexsort((call, events.starts, events.stream))
    return _First(
        launch_ns=int(calls.starts[call[call >= 0]].min(initial=_NEVER)),
        event_ns=int(events.starts.min(initial=_NEVER)),
        calls=call[order[intervals.begins(events.stream[order])]],
    )


def _rows_by_thread(rank: RankView, threads: Int64) -> dict[int, _ThreadRows]:
    """The rows of each thread, by cause."""
    parts: dict[int, dict[str, list[Intervals]]] = {
        thread: {name: [] for name in (*_WORK, "sync", "waits")} for thread in threads.tolist()
    }
    kinds = ("op", "launch", "sync", "other", "annotation", "python")
    for batch in rank.tables.events(kinds, ("side", "track", "kind", "name", "start_ns", "dur_ns")):
        starts, ends = row_spans(batch)
        _add_parts(parts, batch["track"].to_numpy(), starts, ends, causes_of(batch))
    for thread, starts, ends in blocking_copies(rank):
        _add_parts(parts, thread, starts, ends, {"waits": np.ones(len(starts), np.bool_)})
    cold = rank.first_calls
    _add_parts(parts, cold.threads, cold.starts, cold.ends, {"cold_start": np.ones(len(cold), np.bool_)})
    return {
        thread: _ThreadRows(
            join(*thread_parts.pop("waits")), {name: join(*sets) for name, sets in thread_parts.items()}
        )
        for thread, thread_parts in parts.items()
    }


def _in_turns(rows: dict[int, _ThreadRows]) -> tuple[dict[int, _ThreadRows], dict[int, Int64]]:
    """Each thread's rows together with those of threads that it takes turns with; and these threads."""
    threads = np.array([*rows], np.int64)
    active = [join(*(member_rows.by[cause] for cause in _ACTIVE)) for member_rows in rows.values()]
    turns = take_turns(active)
    merged, members_of = {}, {}
    for index, thread in enumerate(threads.tolist()):
        turns[index, index] = True
        members = np.flatnonzero(turns[index])
        members_of[thread] = threads[members]
        if len(members) == 1:
            merged[thread] = rows[thread]
            continue
        member_rows = [rows[thread_rows] for thread_rows in threads[members].tolist()]
        by = {
            cause: join(*(thread_rows.by[cause] for thread_rows in member_rows)) for cause in rows[thread].by
        }
        # Python calls enclose waits: they count only while their thread was the last active one
        turn = _turn_of_each([active[member] for member in members.tolist()])
        by["python"] = join(
            *(
                intersect(thread_rows.by["python"], active_last)
                for thread_rows, active_last in zip(member_rows, turn, strict=True)
            )
        )
        merged[thread] = _ThreadRows(join(*(thread_rows.waits for thread_rows in member_rows)), by)
    return merged, members_of


def _turn_of_each(active: Sequence[Intervals]) -> list[Intervals]:
    """Times in which each thread is the one that became active last."""
    starts = np.concatenate([times.starts for times in active])
    thread = np.repeat(np.arange(len(active)), [len(times) for times in active])
    order = np.argsort(starts, kind="stable")
    starts, thread = starts[order], thread[order]
    first = intervals.begins(thread)
    since, thread = starts[first], thread[first]
    until = np.append(since[1:], _NEVER)
    return [intervals.union(since[thread == times], until[thread == times]) for times in range(len(active))]


def _add_parts(
    parts: dict[int, dict[str, list[Intervals]]],
    track: Int64,
    starts: Int64,
    ends: Int64,
    masks: dict[str, Mask],
) -> None:
    for thread in np.intersect1d(list(parts), track).tolist():
        for name, chosen in masks.items():
            rows = chosen & (track == thread)
            if rows.any():
                parts[thread][name].append(intervals.union(starts[rows], ends[rows]))


def causes_of(batch: pa.RecordBatch) -> dict[str, Mask]:
    """Masks of rows by cause, shape (rows,)."""
    host = has_word(batch, "side", "host")
    sync, launch, operators, python, other = (
        host & has_word(batch, "kind", kind) for kind in ("sync", "launch", "op", "python", "other")
    )
    loads = matching_rows(batch, "name", partial(re.search, LOADER))
    return {
        "loader": host & loads & has_word(batch, "kind", "op", "annotation"),
        "allocation": other & matching_rows(batch, "name", ALLOCATES.match),
        "sync": sync,
        "waits": sync,
        "launch": launch,
        "operators": operators & ~loads,
        "python": python,
    }


def blocking_copies(rank: RankView) -> Iterator[tuple[Int64, Int64, Int64]]:
    """Thread, start and end of calls that wait for the copy that they launch."""
    calls = rank.launch_calls
    at_once = np.zeros(len(calls), np.bool_)
    for batch in rank.tables.events(("launch",), ("correlation", "name")):
        call = calls.indices_of(correlations_of(batch))
        asynchronous = matching_rows(batch, "name", lambda word: ASYNCHRONOUS in word)
        at_once[call[call >= 0]] = asynchronous[call >= 0]
    columns = ("start_ns", "dur_ns", "correlation", "name", "copy_direction")
    for batch in rank.tables.events(("copy",), columns):
        call = calls.indices_of(correlations_of(batch))
        linked = np.flatnonzero(call >= 0)
        call = call[linked]
        pinned = matching_rows(batch, "name", PINNED.search)
        with_host = has_word(batch, "copy_direction", "h2d", "d2h")
        copy_starts, copy_ends = row_spans(batch)
        awaited = blocks(
            calls.ends[call],
            copy_starts[linked],
            copy_ends[linked],
            with_host[linked],
            pinned[linked],
            at_once[call],
        )
        chosen = call[awaited]
        yield calls.threads[chosen], calls.starts[chosen], calls.ends[chosen]
