# SPDX-License-Identifier: Apache-2.0
"""What held the host while the device waited for it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import pyarrow as pa

from cclbench.analyzers.view.columns import row_spans, word_codes
from cclbench.analyzers.view.launches import correlations_of, device_events
from cclbench.ground import intervals
from cclbench.ground.intervals import Int64, Intervals, Mask, intersect, join
from cclbench.normalize.host_calls import ALLOCATES, ASYNCHRONOUS, PINNED, blocks, take_turns
from cclbench.normalize.phases import LOADER

if TYPE_CHECKING:
    from cclbench.analyzers.view.rank_view import RankView

CAUSES: Final = (
    *("sync", "capture", "cold_start", "allocation", "loader", "launch", "operators", "python", "unrecorded"),
)
"""What drained the queue: a wait of the host for the device, or what the host did; of two the first."""
_WORK: Final = CAUSES[2:]
"""What the host does itself."""
_ACTIVE: Final = ("cold_start", "allocation", "loader", "sync", "launch", "operators")
"""What shows that a thread is active: calls of Python enclose what it waits for."""
_NEVER: Final = np.iinfo(np.int64).max
_LATENCY_NS: Final = 1_000_000
"""No latency: from a launch's return to its row's begin on an idle device some 10 µs are usual."""
_CLOCK_NS: Final = 1_000
"""Clocks of host and device are no better than this."""


@dataclass(frozen=True, slots=True, eq=False)
class HostGaps:
    """The idle time of `time.idle_host` by what drained the queue: sets that partition it, by `CAUSES`;
    and the part of `sync` that lies after the host's wait, by what the host did then."""

    by: dict[str, Intervals]
    after_wait: dict[str, Intervals]
    turns: dict[int, Int64]
    """By thread that launches, the threads that count as one with it, itself among them."""


def host_gaps(rank: RankView) -> HostGaps:
    """What drained the queue before each gap in which the device waits for its host.

    A gap lasts until its event begins.  Where it begins while the thread that launches this event waits for
    the device, the wait has drained the queue, and the whole gap is its (`sync`), whatever the host did then;
    it belongs to `capture` where the host waited for work launched before the capture, and so does the gap
    before the first event of all.  In other gaps each instant goes to what that thread does, of two at once
    the first of `CAUSES` (waits behind `loader`); from the begin of the launching call on it is `launch`.
    Threads that launch and take turns with it count as one with it: a main thread that waits before the
    backward pass has drained the queue of autograd's thread.
    """
    late, calls = rank.idle.late, rank.launch_calls
    found, after = (dict[str, list[Intervals]]((cause, []) for cause in CAUSES) for _ in range(2))
    rows, turns = _in_turns(_rows_by_thread(rank, np.unique(calls.threads)))
    first = _first_of_all(rank)
    thread_of = calls.threads[late.call]
    for thread in np.unique(thread_of).tolist():
        here = thread_of == thread
        starts, ends, call = late.starts[here], late.ends[here], late.call[here]
        returned = np.maximum(calls.ends[call] + _LATENCY_NS, starts)
        gaps = _Gaps(starts, np.minimum(ends, returned), calls.starts[call].clip(starts, ends))
        # what begins so much later than its call returned waited for something that is not in the trace
        of_stream = np.isin(call, first.calls)
        for cause, chosen in (("capture", of_stream), ("unrecorded", ~of_stream)):
            found[cause].append(intervals.union(gaps.ends[chosen], ends[chosen]))
        waits = rows[thread].waits
        wait = wait_at_begin(waits.starts, waits.ends, gaps.starts)
        before = gaps.ends <= first.event_ns
        before |= np.append(waits.starts, _NEVER)[wait] <= first.launch_ns
        drained = (wait >= 0) & ~before
        found["capture"].append(gaps.take_gaps(before).union())
        waited = gaps.take_gaps(drained)
        found["sync"].append(waited.union())
        resumed = waits.ends[wait[drained]].clip(waited.starts, waited.ends)
        for cause, part in _work_in_gaps(waited._replace(starts=resumed), rows[thread]):
            after[cause].append(part)
        for cause, part in _work_in_gaps(gaps.take_gaps((wait < 0) & ~before), rows[thread]):
            found[cause].append(part)
    by, after_wait = ({cause: join(*parts) for cause, parts in of.items()} for of in (found, after))
    return HostGaps(by, after_wait, turns)


class _Gaps(NamedTuple):
    """Gaps that a thread's launches end, in order; arrays of shape (gaps,), times in ns."""

    starts: Int64
    ends: Int64
    called: Int64
    """Begin of the call that launches what ends the gap, within the gap."""

    def take_gaps(self, chosen: Mask) -> _Gaps:
        """Some of them."""
        return _Gaps(self.starts[chosen], self.ends[chosen], self.called[chosen])

    def union(self) -> Intervals:
        """The time in them."""
        return intervals.union(self.starts, self.ends)


class _ThreadRows(NamedTuple):
    """When a thread does what: single waits for the device, and sets by cause."""

    waits: Intervals
    by: dict[str, Intervals]


def wait_at_begin(starts: Int64, ends: Int64, at: Int64) -> Int64:
    """Index of the wait, of waits in order of start, in which each gap begins, −1 for none; shape of `at`.

    A wait returns after the device has run dry, as far as clocks agree.
    """
    index = intervals.innermost(starts, ends + _CLOCK_NS, at)
    return np.asarray(index, np.int64)


def _work_in_gaps(gaps: _Gaps, rows: _ThreadRows) -> Iterator[tuple[str, Intervals]]:
    """What the thread does in those gaps, by cause."""
    if not len(gaps.starts):
        return
    called = np.maximum(gaps.called, gaps.starts)
    free, launching = intervals.union(gaps.starts, called), intervals.union(called, gaps.ends)
    since, until = int(gaps.starts.min()), int(gaps.ends[-1])
    for cause in ("cold_start", "allocation", "loader", "sync", "launch", "operators", "python"):
        own = intervals.clipped(rows.by[cause], since, until)
        part = intervals.intersect(free, own)
        free = intervals.subtract(free, own)
        if cause == "launch":
            part = intervals.join(part, launching)
        if cause == "cold_start":
            part = intervals.join(part, intervals.intersect(launching, own))
            launching = intervals.subtract(launching, own)
        yield cause, part
    yield "unrecorded", free


class _First(NamedTuple):
    """Begin of the first call that launches recorded work, and of the first recorded work, ns; and the calls
    that launch the first work of a stream."""

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
    """When each of the threads does what."""
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
        thread: _ThreadRows(join(*of.pop("waits")), {name: join(*sets) for name, sets in of.items()})
        for thread, of in parts.items()
    }


def _in_turns(rows: dict[int, _ThreadRows]) -> tuple[dict[int, _ThreadRows], dict[int, Int64]]:
    """What each thread does together with those that it takes turns with; which these are, itself too."""
    threads = np.array([*rows], np.int64)
    active = [join(*(of.by[cause] for cause in _ACTIVE)) for of in rows.values()]
    turns = take_turns(active)
    found, together = {}, {}
    for place, thread in enumerate(threads.tolist()):
        turns[place, place] = True
        members = np.flatnonzero(turns[place])
        together[thread] = threads[members]
        if len(members) == 1:
            found[thread] = rows[thread]
            continue
        of = [rows[one] for one in threads[members].tolist()]
        by = {cause: join(*(one.by[cause] for one in of)) for cause in rows[thread].by}
        # a thread's calls of Python enclose what it waits for: they count while it was active last
        turn = _turn_of_each([active[member] for member in members.tolist()])
        by["python"] = join(*(intersect(one.by["python"], own) for one, own in zip(of, turn, strict=True)))
        found[thread] = _ThreadRows(join(*(one.waits for one in of)), by)
    return found, together


def _turn_of_each(active: Sequence[Intervals]) -> list[Intervals]:
    """When each thread is the one that became active last."""
    starts = np.concatenate([one.starts for one in active])
    thread = np.repeat(np.arange(len(active)), [len(one) for one in active])
    order = np.argsort(starts, kind="stable")
    starts, thread = starts[order], thread[order]
    first = intervals.begins(thread)
    since, thread = starts[first], thread[first]
    until = np.append(since[1:], _NEVER)
    return [intervals.union(since[thread == one], until[thread == one]) for one in range(len(active))]


def _add_parts(
    parts: dict[int, dict[str, list[Intervals]]],
    track: Int64,
    starts: Int64,
    ends: Int64,
    what: dict[str, Mask],
) -> None:
    for thread in np.intersect1d(list(parts), track).tolist():
        for name, chosen in what.items():
            rows = chosen & (track == thread)
            if rows.any():
                parts[thread][name].append(intervals.union(starts[rows], ends[rows]))


def causes_of(batch: pa.RecordBatch) -> dict[str, Mask]:
    """Which rows are of what, masks of shape (rows,)."""
    name, names = word_codes(batch, "name")
    kind, side = (
        batch[column].cast(pa.string()).to_numpy(zero_copy_only=False) for column in ("kind", "side")
    )
    host = side == "host"

    def names_matching(matches: Callable[[str], object]) -> Mask:
        return np.array([bool(matches(word or "")) for word in names], np.bool_)[name]

    loads = names_matching(lambda word: re.search(LOADER, word))
    sync = host & (kind == "sync")
    return {
        "loader": host & loads & np.isin(kind, ("op", "annotation")),
        "allocation": host & names_matching(ALLOCATES.match) & (kind == "other"),
        "sync": sync,
        "waits": sync,
        "launch": host & (kind == "launch"),
        "operators": host & (kind == "op") & ~loads,
        "python": host & (kind == "python"),
    }


def blocking_copies(rank: RankView) -> Iterator[tuple[Int64, Int64, Int64]]:
    """Thread, begin and end of calls that wait for the copy that they launch."""
    calls = rank.launch_calls
    at_once = np.zeros(len(calls), np.bool_)
    for batch in rank.tables.events(("launch",), ("correlation", "name")):
        name, names = word_codes(batch, "name")
        call = calls.indices_of(correlations_of(batch))
        asynchronous = np.array([ASYNCHRONOUS in (word or "") for word in names], np.bool_)[name]
        at_once[call[call >= 0]] = asynchronous[call >= 0]
    columns = ("start_ns", "dur_ns", "correlation", "name", "copy_direction")
    for batch in rank.tables.events(("copy",), columns):
        call = calls.indices_of(correlations_of(batch))
        known = np.flatnonzero(call >= 0)
        call = call[known]
        name, names = word_codes(batch, "name")
        pinned = np.array([PINNED.search(word or "") is not None for word in names], np.bool_)[name]
        direction = batch["copy_direction"].cast(pa.string()).to_numpy(zero_copy_only=False)
        hosted, (begun, ended) = np.isin(direction, ("h2d", "d2h")), row_spans(batch)
        awaited = blocks(
            calls.ends[call],
            begun[known],
            ended[known],
            hosted[known],
            pinned[known],
            at_once[call],
        )
        chosen = call[awaited]
        yield calls.threads[chosen], calls.starts[chosen], calls.ends[chosen]
