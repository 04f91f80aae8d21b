# SPDX-License-Identifier: Apache-2.0
"""Launches: what the host's calls that start kernels take, and how far ahead of the device they run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

import numpy as np

from cclbench import intervals
from cclbench.analyzers.metric import Coverage, Unknown, Value, metric
from cclbench.analyzers.view.columns import is_category, spans
from cclbench.analyzers.view.launches import ROWS_AT_ONCE, Stream, device_events, kernels_with_calls
from cclbench.analyzers.view.rank_view import RankView, Windows
from cclbench.analyzers.view.values import NS_PER_S, distribution, share, spread_over_ranks
from cclbench.disk_columns import DiskColumn, DiskTable, pieces, release
from cclbench.intervals import Index, Int64, Intervals, Joined

QUEUE_LIMIT: Final = 1024
"""Launches that wait on a stream from which on CUDA's next call waits too, unless it is set otherwise."""
_CHANGES: Final = np.array([1, -1, 0], np.int8)
"""Of a queue's length, by what happens: work is launched, work ends, a window begins or ends."""

_NO_LAUNCH: Final = (
    "no launch in the trace is linked to a kernel in the window, it has none, or the CPU is the device"
)
_LINK: Final = " Kernels are linked to calls by correlation; those without a launch record are left out."
_GRAPHS: Final = (
    " A call that launches several kernels (a CUDA graph) is compared with their summed duration."
)


_launch_metric = partial(metric, not_applicable=_NO_LAUNCH, combine=spread_over_ranks)


@_launch_metric(
    "launch.call_time",
    definition="Duration of the host's calls that launch kernels (cudaLaunchKernel, hipLaunchKernel,"
    " cudaGraphLaunch, ...): mean over the calls whose first kernel begins in the window, with p50, p95 (from"
    f" 20 on) and max. A graph's launch is one call.{_LINK}",
    formula="Σ (call end − call begin) / calls",
    unit="s",
    better="lower",
)
def call_time(rank: RankView) -> Iterator[Value]:
    times = _LaunchTimes(rank)
    for window, begun, ended, _ in _calls(rank):
        times.add(window, ended - begun)
    yield from times.values({})


@_launch_metric(
    "launch.delay",
    definition="From the begin of a call that launches kernels to the begin of its first kernel: mean over"
    " the calls whose first kernel begins in the window, with p50, p95 (from 20 on) and max; after_call is"
    " the mean from the call's end on, negative where kernels begin before their call returns. A short delay"
    " with an empty queue means that the device waits for the host, a long one that the host runs ahead. A"
    f" kernel that begins before its call is a clock's error: it is left out and counted.{_LINK}",
    formula="Σ (kernel begin − call begin) / calls",
    unit="s",
)
def delay(rank: RankView) -> Iterator[Value]:
    times = _LaunchTimes(rank)
    early = after_end = 0
    for window, begun, ended, first in _calls(rank):
        used = first >= begun
        early += int((~used).sum())
        after_end += int((first - ended)[used].sum())
        times.add(window[used], (first - begun)[used])
    yield from times.values({"calls that begin after their kernel": early})
    yield Value(value=after_end / (len(times) * NS_PER_S), stat="after_call", weight=len(times))


def _calls(rank: RankView) -> Iterator[tuple[Int64, Int64, Int64, Int64]]:
    """Of calls whose first kernel begins in a window: the window, begin, end, and begin of the kernel."""
    launched = rank.launched
    for some in pieces(len(launched.calls), most=ROWS_AT_ONCE):
        columns = (column[some] for column in (launched.calls.starts, launched.calls.ends, launched.first))
        begun, ended, first = columns
        window = rank.window_of(first)
        own = window >= 0
        yield window[own], begun[own], ended[own], first[own]
        release(launched)


class _LaunchTimes:
    """Times of launch calls, by window."""

    def __init__(self, rank: RankView) -> None:
        self._rank = rank
        self._calls, self._sums = np.zeros((2, len(rank.windows)), np.int64)
        self._ns = DiskColumn(np.int64)

    def __len__(self) -> int:
        return len(self._ns)

    def add(self, window: Int64, ns: Int64) -> None:
        """Add calls' times, each in its window."""
        self._calls += np.bincount(window, minlength=len(self._calls))
        np.add.at(self._sums, window, ns)
        self._ns.append(ns)

    def values(self, left_out: Mapping[str, int]) -> Iterator[Value]:
        """Mean of the calls' times, of each step too, and p50, p95 and max; `left_out` are further calls."""
        launched = self._rank.launched
        if not len(self):
            raise Unknown("no launch of the window is usable", replace(launched.coverage, rows=0, ns=0))
        used = replace(launched.coverage, rows=launched.coverage.rows - sum(left_out.values()))
        whole, *steps = share(self._rank, self._sums, self._calls * NS_PER_S, of="launch")
        yield replace(whole, weight=len(self), left_out={**launched.left_out, **left_out}, coverage=used)
        yield from steps
        yield from distribution(self._ns.values())


@metric(
    "launch.short_kernels",
    definition="Share of the kernels that begin in the window and run shorter than the call that launched"
    f" them: launching them costs the host more time than running them costs the device.{_GRAPHS}{_LINK}",
    formula="kernels with duration < launch call's duration / kernels with a launch record",
    unit="1",
    better="lower",
    not_applicable=_NO_LAUNCH,
)
def short_kernels(rank: RankView) -> Iterator[Value]:
    launched = rank.launched
    longer = launched.longer_than_kernels
    short, known = (np.zeros(len(rank.windows), np.int64) for _ in range(2))
    for batch, call in kernels_with_calls(rank, launched.calls):
        window = rank.window_of(batch["start_ns"].to_numpy())
        linked = (window >= 0) & (call >= 0)
        known += np.bincount(window[linked], minlength=len(known))
        of_short = longer[call[linked]]
        short += np.bincount(window[linked][of_short], minlength=len(short))
    whole, *steps = share(rank, short, known, of="launched kernel")
    yield replace(whole, left_out=launched.left_out, coverage=launched.coverage)
    yield from steps


@metric(
    "compute.launch_bound_share",
    definition="Share of the compute time in which kernels run that are shorter than the call that launched"
    " them. One thread that launches such kernels one after another cannot keep the device busy: fuse them,"
    " or launch them as a CUDA graph. time.idle_host says how long the device did wait for launches; this"
    " says how much of its work is of the sort that makes it wait. Both high: the launches are the"
    f" bottleneck. This high and idle_host low: other streams or launches made ahead hide"
    f" them.{_GRAPHS}{_LINK}",
    formula="|C of kernels with duration < launch call's duration| / |C|",
    unit="1",
    better="lower",
    not_applicable=_NO_LAUNCH,
)
def launch_bound_share(rank: RankView) -> Iterator[Value]:
    launched = rank.launched
    short_kernels, longer = Joined(), np.append(launched.longer_than_kernels, False)
    for batch, call in kernels_with_calls(rank, launched.calls, "category"):
        short = longer[call]
        starts, ends = spans(batch)
        own = short & ~is_category(batch, "communication")
        short_kernels.add(intervals.union(starts[own], ends[own]))
    compute = rank.parts.compute_only + rank.parts.overlapped
    whole, *steps = share(rank, rank.inside(short_kernels.whole()), compute, of="compute time")
    yield replace(whole, left_out=launched.left_out, coverage=launched.coverage)
    yield from steps


@_launch_metric(
    "launch.queue_length",
    definition="Kernels, copies and memsets that are launched and not finished, from the begin of their call"
    " to their own end: mean over time of those of all streams together, and by stream (category). max is the"
    " most at once, empty the share of the window in which there is none, blocked the share in which a stream"
    f" has {QUEUE_LIMIT:,} or more, about where CUDA's next launch on it waits. Left out is what has no"
    " launch record, or begins before its call: a clock's error.",
    formula="Σ |[call begin, end) ∩ W| / W",
    unit="count",
    not_applicable="no launch in the trace is linked to what it launched, or the CPU is the device",
)
def queue_length(rank: RankView) -> Iterator[Value]:
    rank.needs_accelerator("nothing is launched to it")
    queued, streams, left_out, coverage = _queued(rank)
    w = rank.windows
    number = np.unique(queued["stream"])
    of_all, *of_streams = (_QueueSums(len(w)) for _ in range(1 + len(number)))
    for some in np.array_split(np.arange(len(w)), 1 + len(queued) // ROWS_AT_ONCE):
        if len(some):
            own = replace(w, steps=w.steps[some[0] : some[-1] + 1], starts=w.starts[some], ends=w.ends[some])
            begun, ends, stream = _overlapping(queued, own)
            blocked: list[Intervals] = []
            for one, sums in zip(number, of_streams, strict=True):
                here = stream == one
                length = _Length(begun[here], ends[here], own)
                blocked.append(length.at_least(QUEUE_LIMIT))
                sums.add(some, length, blocked[-1], own)
            of_all.add(some, _Length(begun, ends, own), intervals.join(*blocked), own)
    whole, *others = of_all.values(rank, category=None)
    yield replace(whole, left_out=left_out, coverage=coverage)
    yield from others
    for one, sums in zip(number.tolist(), of_streams, strict=True):
        yield from sums.values(rank, category=_label(streams, one))


def _queued(rank: RankView) -> tuple[DiskTable, Sequence[Stream], dict[str, int], Coverage]:
    """What was launched and runs or waits in a window: begin of its call, end, stream; what is left out."""
    events, calls = device_events(rank.tables), rank.launch_calls
    first, last = rank.windows.starts.min(), rank.windows.ends.max()
    table, coverage = DiskTable(begun=np.int64, ends=np.int64, stream=np.int32), Coverage(0, 0, 0, 0)
    silent = early = 0
    for some in pieces(len(events), most=ROWS_AT_ONCE):
        own = events.where(some)
        call = calls.of(own.correlations)
        begun = own.starts.copy()
        begun[call >= 0] = calls.starts[call[call >= 0]]
        here = (begun < last) & (own.ends > first)
        known = here & (call >= 0) & (begun <= own.starts)
        coverage += Coverage.of_rows(known[here], (own.ends - own.starts)[here])
        silent += int((here & (call < 0)).sum())
        early += int((here & (begun > own.starts)).sum())
        table.append(begun=begun[known], ends=own.ends[known], stream=own.stream[known])
        release(events, calls)
    if not len(table):
        raise Unknown("no launch in the trace is linked to what it launched", coverage)
    left_out = {"device events without a launch record": silent, "that begin before their call": early}
    return table, events.streams, left_out, coverage


def _overlapping(queued: DiskTable, windows: Windows) -> tuple[Int64, Int64, Index]:
    """Begin, end and stream of what is in a queue at some time from the first of the windows to the last."""
    parts = []
    for some in pieces(len(queued), most=ROWS_AT_ONCE):
        begun, ends, stream = (queued[column][some] for column in ("begun", "ends", "stream"))
        here = (begun < windows.ends[-1]) & (ends > windows.starts[0])
        parts.append((begun[here], ends[here], stream[here]))
        queued.release()
    begun, ends, stream = (np.concatenate(column) for column in zip(*parts, strict=True))
    return begun, ends, stream


class _QueueSums:
    """What a queue's length adds up to, by window."""

    def __init__(self, windows: int) -> None:
        self.area_ns, self.not_empty_ns, self.blocked_ns = np.zeros((3, windows), np.int64)
        self.longest = 0

    def add(self, at: Int64, length: _Length, blocked: Intervals, windows: Windows) -> None:
        """Add some windows, those at these places."""
        self.area_ns[at] = length.area_ns
        self.longest = max(self.longest, length.longest)
        self.not_empty_ns[at] = intervals.within(length.at_least(1), windows.starts, windows.ends)
        self.blocked_ns[at] = intervals.within(blocked, windows.starts, windows.ends)

    def values(self, rank: RankView, *, category: str | None) -> Iterator[Value]:
        """Mean length, that of each step where it is the whole rank's, most, and shares of the window."""
        whole = rank.windows.ends - rank.windows.starts
        mean, *steps = share(rank, self.area_ns, whole, of="time")
        yield replace(mean, category=category)
        yield from steps if category is None else ()
        yield Value(value=float(self.longest), stat="max", category=category)
        for stat, ns in (
            ("empty", whole.sum() - self.not_empty_ns.sum()),
            ("blocked", self.blocked_ns.sum()),
        ):
            total = rank.windows.total
            yield Value(value=int(ns) / total, stat=stat, category=category, weight=total, unit="1")


class _Length:
    """The length of a queue as a step function, summed over windows alone."""

    def __init__(self, begins: Int64, ends: Int64, windows: Windows) -> None:
        # One array is sorted in place: each instant times three, and what happens at it, in that order.
        first = windows.starts.min()
        edges = np.concatenate([begins, ends, windows.starts, windows.ends])
        edges -= first
        edges *= len(_CHANGES)
        edges += np.repeat(np.arange(3, dtype=np.int8), [len(begins), len(ends), 2 * len(windows)])
        edges.sort()
        length = np.cumsum(_CHANGES[edges % len(_CHANGES)], dtype=np.int32)
        edges //= len(_CHANGES)
        edges += first
        # Of what happens at one instant the last tells the length from then on.
        last = np.append(edges[1:] > edges[:-1], True)
        self._edges, self._length = edges[last], length[last][:-1]
        begun = self._edges[:-1]
        window = np.searchsorted(windows.starts, begun, side="right").astype(np.int32) - 1
        inside = (window >= 0) & (begun < windows.ends[window])
        self._lasts = np.where(inside, np.diff(self._edges), 0)
        self._window, self._windows = window, len(windows)

    @property
    def area_ns(self) -> Int64:
        """Σ length · time of each window, shape (windows,)."""
        area = np.zeros(self._windows, np.int64)
        np.add.at(area, self._window, self._length * self._lasts)
        return area

    @property
    def longest(self) -> int:
        """The largest length."""
        return int(self._length.max(initial=0, where=self._lasts > 0))

    def at_least(self, length: int) -> Intervals:
        """When it has that length or more, in the windows or between them."""
        long = self._length >= length
        turns = self._edges[np.diff(long, prepend=False, append=False)]
        return Intervals(turns[::2], turns[1::2])


def _label(streams: Sequence[Stream], number: int) -> str:
    """`stream 7`, or `device 1 stream 7` where the rank has several devices."""
    track, device = streams[number]
    several = len({of for _, of in streams}) > 1
    return f"device {device} stream {track}" if several else f"stream {track}"
