# SPDX-License-Identifier: Apache-2.0
"""Launches: what the host's calls that start kernels take, and how far ahead of the device they run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

import numpy as np

from cclbench.analyzers.metric import Coverage, Unknown, Value, metric
from cclbench.analyzers.view.columns import is_category, row_spans
from cclbench.analyzers.view.launches import DeviceEvents, Stream, device_events, kernels_with_calls
from cclbench.analyzers.view.rank_view import RankView, Windows
from cclbench.analyzers.view.values import NS_PER_S, share_values, spread_over_ranks, time_distribution
from cclbench.ground import intervals
from cclbench.ground.intervals import Int64, Intervals

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
    window, begun, ended, _ = _launching_calls(rank)
    yield from _times(rank, window, ended - begun, {})


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
    window, begun, ended, first = _launching_calls(rank)
    used = first >= begun
    early, calls = int((~used).sum()), int(used.sum())
    yield from _times(
        rank, window[used], (first - begun)[used], {"calls that begin after their kernel": early}
    )
    after_end = int((first - ended)[used].sum())
    yield Value(value=after_end / (calls * NS_PER_S), stat="after_call", weight=calls)


def _launching_calls(rank: RankView) -> tuple[Int64, Int64, Int64, Int64]:
    """Of calls whose first kernel begins in a window: the window, begin, end, and begin of the kernel."""
    launched = rank.launched
    window = rank.window_of(launched.first)
    own = window >= 0
    return window[own], launched.calls.starts[own], launched.calls.ends[own], launched.first[own]


def _times(rank: RankView, window: Int64, ns: Int64, left_out: Mapping[str, int]) -> Iterator[Value]:
    """Mean of calls' times, of each step too, and p50, p95 and max; `left_out` are further calls."""
    launched = rank.launched
    if not len(ns):
        raise Unknown("no launch of the window is usable", replace(launched.coverage, rows=0, ns=0))
    used = replace(launched.coverage, rows=launched.coverage.rows - sum(left_out.values()))
    sums = np.zeros(len(rank.windows), np.int64)
    np.add.at(sums, window, ns)
    calls = np.bincount(window, minlength=len(sums))
    whole, *steps = share_values(rank, sums, calls * NS_PER_S, of="launch")
    yield replace(whole, weight=len(ns), left_out={**launched.left_out, **left_out}, coverage=used)
    yield from steps
    yield from time_distribution(ns)


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
    whole, *steps = share_values(rank, short, known, of="launched kernel")
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
    short_kernels, longer = list[Intervals](), np.append(launched.longer_than_kernels, False)
    for batch, call in kernels_with_calls(rank, launched.calls, "category"):
        short = longer[call]
        starts, ends = row_spans(batch)
        own = short & ~is_category(batch, "communication")
        short_kernels.append(intervals.union(starts[own], ends[own]))
    compute = rank.parts.compute_only + rank.parts.overlapped
    whole, *steps = share_values(
        rank, rank.inside(intervals.join(*short_kernels)), compute, of="compute time"
    )
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
    queued, left_out, coverage = _queued_rows(rank)
    w = rank.windows
    streams, blocked = list[Value](), list[Intervals]()
    for number in np.unique(queued.stream).tolist():
        here = queued.stream == number
        length = _Length(queued.starts[here], queued.ends[here], w)
        blocked.append(length.at_least(QUEUE_LIMIT))
        streams += _of_queue(rank, length, blocked[-1], category=_stream_label(queued.streams, number))
    length = _Length(queued.starts, queued.ends, w)
    whole, *others = _of_queue(rank, length, intervals.join(*blocked), category=None)
    yield replace(whole, left_out=left_out, coverage=coverage)
    yield from others
    yield from streams


def _queued_rows(rank: RankView) -> tuple[DeviceEvents, dict[str, int], Coverage]:
    """What was launched and runs or waits in a window, since the begin of its call; what is left out."""
    events, calls = device_events(rank.tables), rank.launch_calls
    call = calls.indices_of(events.correlations)
    begun = events.starts.copy()
    begun[call >= 0] = calls.starts[call[call >= 0]]
    here = (begun < rank.windows.ends.max()) & (events.ends > rank.windows.starts.min())
    early = begun > events.starts
    known = here & (call >= 0) & ~early
    coverage = Coverage.of_rows(known[here], (events.ends - events.starts)[here])
    if not coverage.rows:
        raise Unknown("no launch in the trace is linked to what it launched", coverage)
    left_out = {
        "device events without a launch record": int((here & (call < 0)).sum()),
        "that begin before their call": int((here & early).sum()),
    }
    return replace(events, starts=begun).take_events(known), left_out, coverage


def _of_queue(
    rank: RankView, length: _Length, blocked: Intervals, *, category: str | None
) -> Iterator[Value]:
    """Mean length, that of each step where it is the whole rank's, most, and shares of the window."""
    whole = rank.windows.ends - rank.windows.starts
    mean, *steps = share_values(rank, length.area_ns, whole, of="time")
    yield replace(mean, category=category)
    yield from steps if category is None else ()
    yield Value(value=float(length.largest_length), stat="max", category=category)
    for stat, ns in (
        ("empty", whole.sum() - rank.inside(length.at_least(1)).sum()),
        ("blocked", rank.inside(blocked).sum()),
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
    def largest_length(self) -> int:
        """The largest length."""
        return int(self._length.max(initial=0, where=self._lasts > 0))

    def at_least(self, length: int) -> Intervals:
        """When it has that length or more, in the windows or between them."""
        long = self._length >= length
        turns = self._edges[np.diff(long, prepend=False, append=False)]
        return Intervals(turns[::2], turns[1::2])


def _stream_label(streams: Sequence[Stream], number: int) -> str:
    """`stream 7`, or `device 1 stream 7` where the rank has several devices."""
    track, device = streams[number]
    several = len({of for _, of in streams}) > 1
    return f"device {device} stream {track}" if several else f"stream {track}"
