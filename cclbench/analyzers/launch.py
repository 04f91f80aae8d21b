# SPDX-License-Identifier: Apache-2.0
"""Launches: duration of launch calls, and how far the host runs ahead of the device."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

import numpy as np

from cclbench.analyzers.metric import Coverage, Unknown, Value, metric
from cclbench.analyzers.view.columns import has_word, row_spans
from cclbench.analyzers.view.launches import DeviceEvents, Stream, device_events, kernels_with_calls
from cclbench.analyzers.view.rank_view import RankView, Windows
from cclbench.analyzers.view.values import NS_PER_S, share_values, spread_over_ranks, time_distribution
from cclbench.ground import intervals
from cclbench.ground.intervals import Int64, Intervals

QUEUE_LIMIT: Final = 1024
"""Pending launches of a stream at which CUDA's next launch call blocks, by default."""
_CHANGES: Final = np.array([1, -1, 0], np.int8)
"""Change of a queue's length by kind of edge: launch, end of work, edge of a window."""

_NO_LAUNCH: Final = "no launch in the trace is linked to a kernel in the window, or the CPU is the device"
_LINK: Final = " Kernels are linked to calls by correlation id; those without a launch are left out."
_GRAPHS: Final = (
    " A call that launches several kernels (a CUDA graph) is compared with their summed duration."
)


_launch_metric = partial(metric, not_applicable=_NO_LAUNCH, combine=spread_over_ranks)


@_launch_metric(
    "launch.call_time",
    definition="Duration of launch calls (cudaLaunchKernel, hipLaunchKernel, cudaGraphLaunch, ...): mean over"
    " the calls whose first kernel begins in the window, with p50, p95 (from 20 calls) and max. A graph"
    f" launch is one call.{_LINK}",
    formula="Σ (call end − call begin) / calls",
    unit="s",
    better="lower",
)
def call_time(rank: RankView) -> Iterator[Value]:
    window, begun, ended, _ = _launching_calls(rank)
    yield from _times(rank, window, ended - begun, {})


@_launch_metric(
    "launch.delay",
    definition="Time from the start of a launch call to the start of its first kernel: mean over the calls"
    " whose first kernel begins in the window, with p50, p95 (from 20 calls) and max; after_call is the mean"
    " from the end of the call, negative where kernels begin before their call returns. A short delay with an"
    " empty queue means that the device waits for the host, a long one that the host runs ahead. A kernel"
    f" that begins before its call is a clock error: it is left out and counted.{_LINK}",
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
    """Window, start, end, and start of the first kernel, of the calls whose first kernel is in a window."""
    launched = rank.launched
    window = rank.window_of(launched.first)
    in_window = window >= 0
    return (
        window[in_window],
        launched.calls.starts[in_window],
        launched.calls.ends[in_window],
        launched.first[in_window],
    )


def _times(rank: RankView, window: Int64, ns: Int64, left_out: Mapping[str, int]) -> Iterator[Value]:
    """Mean of the calls' times, also by step, with p50, p95 and max; `left_out` counts further calls."""
    launched = rank.launched
    if not len(ns):
        raise Unknown("no launch in the window is usable", replace(launched.coverage, rows=0, ns=0))
    used = replace(launched.coverage, rows=launched.coverage.rows - sum(left_out.values()))
    sums = np.zeros(len(rank.windows), np.int64)
    np.add.at(sums, window, ns)
    calls = np.bincount(window, minlength=len(sums))
    mean, *steps = share_values(rank, sums, calls * NS_PER_S, noun="launch")
    yield replace(mean, weight=len(ns), left_out={**launched.left_out, **left_out}, coverage=used)
    yield from steps
    yield from time_distribution(ns)


@metric(
    "launch.short_kernels",
    definition="Share of the kernels in the window that are shorter than the call that launched them:"
    f" launching them takes the host longer than running them takes the device.{_GRAPHS}{_LINK}",
    formula="kernels with duration < launch call's duration / kernels with a launch record",
    unit="1",
    better="lower",
    not_applicable=_NO_LAUNCH,
)
def short_kernels(rank: RankView) -> Iterator[Value]:
    launched = rank.launched
    longer = launched.longer_than_kernels
    short, linked_kernels = (np.zeros(len(rank.windows), np.int64) for _ in range(2))
    for batch, call in kernels_with_calls(rank, launched.calls):
        window = rank.window_of(batch["start_ns"].to_numpy())
        linked = (window >= 0) & (call >= 0)
        linked_kernels += np.bincount(window[linked], minlength=len(linked_kernels))
        is_short = longer[call[linked]]
        short += np.bincount(window[linked][is_short], minlength=len(short))
    share, *steps = share_values(rank, short, linked_kernels, noun="launched kernel")
    yield replace(share, left_out=launched.left_out, coverage=launched.coverage)
    yield from steps


@metric(
    "compute.launch_bound_share",
    definition="Share of the compute time in kernels that are shorter than the call that launched them. One"
    " thread that launches such kernels cannot keep the device busy: fuse them, or use a CUDA graph."
    " time.idle_host is how long the device did wait for launches. If both are high, launches are the"
    f" bottleneck; if only this is, other streams or earlier launches hide them.{_GRAPHS}{_LINK}",
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
        computes = short & ~has_word(batch, "category", "communication")
        short_kernels.append(intervals.union(starts[computes], ends[computes]))
    compute = rank.parts.compute_only + rank.parts.overlapped
    share, *steps = share_values(
        rank, rank.inside(intervals.join(*short_kernels)), compute, noun="compute time"
    )
    yield replace(share, left_out=launched.left_out, coverage=launched.coverage)
    yield from steps


@_launch_metric(
    "launch.queue_length",
    definition="Number of kernels, copies and memsets that are launched and not finished, from the start of"
    " their call to their end: mean over time of all streams together, and by stream (category). Stats: max;"
    " empty, the share of the window without any; blocked, the share in which a stream has at least"
    f" {QUEUE_LIMIT:,}, at about which CUDA's next launch blocks. Work without a launch, or that begins"
    " before its call (a clock error), is left out.",
    formula="Σ |[call begin, end) ∩ W| / W",
    unit="count",
    not_applicable="no launch in the trace is linked to device work, or the CPU is the device",
)
def queue_length(rank: RankView) -> Iterator[Value]:
    rank.needs_accelerator("it has no launches")
    queued, left_out, coverage = _queued_rows(rank)
    w = rank.windows
    streams, blocked = list[Value](), list[Intervals]()
    for number in np.unique(queued.stream).tolist():
        of_stream = queued.stream == number
        length = _Length(queued.starts[of_stream], queued.ends[of_stream], w)
        blocked.append(length.at_least(QUEUE_LIMIT))
        streams += _queue_values(rank, length, blocked[-1], category=_stream_label(queued.streams, number))
    length = _Length(queued.starts, queued.ends, w)
    mean, *others = _queue_values(rank, length, intervals.join(*blocked), category=None)
    yield replace(mean, left_out=left_out, coverage=coverage)
    yield from others
    yield from streams


def _queued_rows(rank: RankView) -> tuple[DeviceEvents, dict[str, int], Coverage]:
    """Device work in or across the windows, from the start of its call; counts of what is left out."""
    events, calls = device_events(rank.tables), rank.launch_calls
    call = calls.indices_of(events.correlations)
    begun = events.starts.copy()
    begun[call >= 0] = calls.starts[call[call >= 0]]
    in_windows = (begun < rank.windows.ends.max()) & (events.ends > rank.windows.starts.min())
    early = begun > events.starts
    is_queued = in_windows & (call >= 0) & ~early
    coverage = Coverage.from_rows(is_queued[in_windows], (events.ends - events.starts)[in_windows])
    if not coverage.rows:
        raise Unknown("no launch in the trace is linked to device work", coverage)
    left_out = {
        "device events without a launch": int((in_windows & (call < 0)).sum()),
        "that begin before their call": int((in_windows & early).sum()),
    }
    return replace(events, starts=begun).take_events(is_queued), left_out, coverage


def _queue_values(
    rank: RankView, length: _Length, blocked: Intervals, *, category: str | None
) -> Iterator[Value]:
    """Mean length (also by step for the whole rank), max, and shares of the window."""
    window_ns = rank.windows.ends - rank.windows.starts
    mean, *steps = share_values(rank, length.area_ns, window_ns, noun="time")
    yield replace(mean, category=category)
    yield from steps if category is None else ()
    yield Value(value=float(length.largest_length), stat="max", category=category)
    for stat, ns in (
        ("empty", window_ns.sum() - rank.inside(length.at_least(1)).sum()),
        ("blocked", rank.inside(blocked).sum()),
    ):
        total = rank.windows.total
        yield Value(value=int(ns) / total, stat=stat, category=category, weight=total, unit="1")


class _Length:
    """The length of a queue as a step function of time, summed only within windows."""

    def __init__(self, begins: Int64, ends: Int64, windows: Windows) -> None:
        # sorted in place as one array: time · 3 + kind of edge
        first = windows.starts.min()
        edges = np.concatenate([begins, ends, windows.starts, windows.ends])
        edges -= first
        edges *= len(_CHANGES)
        edges += np.repeat(np.arange(3, dtype=np.int8), [len(begins), len(ends), 2 * len(windows)])
        edges.sort()
        length = np.cumsum(_CHANGES[edges % len(_CHANGES)], dtype=np.int32)
        edges //= len(_CHANGES)
        edges += first
        # the last of several edges at one time has the length from then on
        last = np.append(edges[1:] > edges[:-1], True)
        self._edges, self._length = edges[last], length[last][:-1]
        begun = self._edges[:-1]
        window = np.searchsorted(windows.starts, begun, side="right").astype(np.int32) - 1
        inside = (window >= 0) & (begun < windows.ends[window])
        self._lasts = np.where(inside, np.diff(self._edges), 0)
        self._window, self._windows = window, len(windows)

    @property
    def area_ns(self) -> Int64:
        """Integral of the length over each window, ns, shape (windows,)."""
        area = np.zeros(self._windows, np.int64)
        np.add.at(area, self._window, self._length * self._lasts)
        return area

    @property
    def largest_length(self) -> int:
        """The largest length within the windows."""
        return int(self._length.max(initial=0, where=self._lasts > 0))

    def at_least(self, length: int) -> Intervals:
        """Times of at least this length, within and between windows."""
        long = self._length >= length
        turns = self._edges[np.diff(long, prepend=False, append=False)]
        return Intervals(turns[::2], turns[1::2])


def _stream_label(streams: Sequence[Stream], number: int) -> str:
    """`stream 7`, or `device 1 stream 7` where the rank has several devices."""
    track, device = streams[number]
    several = len({owner for _, owner in streams}) > 1
    return f"device {device} stream {track}" if several else f"stream {track}"
