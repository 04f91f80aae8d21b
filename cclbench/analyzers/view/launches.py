# SPDX-License-Identifier: Apache-2.0
"""What ran on a device and which call launched it: the one link between the two, by correlation.

A call may launch several kernels (a CUDA graph); of several calls of one correlation the earliest launched.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cclbench.analyzers.metric import Coverage, Unknown
from cclbench.intervals import Int64, Mask, begins

if TYPE_CHECKING:
    from cclbench.analyzers.view.rank_view import RankView
    from cclbench.record.run import Rank

Stream = tuple[int, int | None]
"""Track and device."""
_NO_CORRELATION: Final = np.iinfo(np.int64).min
_NO_DEVICE: Final = -1
SINCE_EVER: Final = np.iinfo(np.int64).min
"""Since when a stream is free on which nothing ran."""


@dataclass(frozen=True, slots=True, eq=False)
class LaunchCalls:
    """Calls that put work on a device, in order of their correlation, which each has alone.

    Arrays of shape (calls,); times in ns.
    """

    correlations: Int64
    starts: Int64
    ends: Int64
    threads: Int64
    """Thread that called."""

    def __len__(self) -> int:
        return len(self.starts)

    def of(self, correlations: Int64) -> Int64:
        """Index of the call of each correlation, −1 for none, shape of `correlations`."""
        at = np.searchsorted(self.correlations, correlations)
        found = np.append(self.correlations, _NO_CORRELATION)[at] == correlations
        return np.where(found & (correlations != _NO_CORRELATION), at, -1)

    def where(self, chosen: Mask | Int64) -> LaunchCalls:
        """Those calls alone, by a mask or by their indices."""
        columns = (self.correlations, self.starts, self.ends, self.threads)
        return LaunchCalls(*(column[chosen] for column in columns))


def launch_calls(tables: Rank) -> LaunchCalls:
    """The launch calls of a rank that state a correlation."""
    parts = [tuple(np.empty(0, np.int64) for _ in range(4))]
    for batch in tables.events(("launch",), ("correlation", "start_ns", "dur_ns", "track")):
        known = batch.filter(batch["correlation"].is_valid())
        correlations, starts, durations, threads = (
            known[name].to_numpy() for name in ("correlation", "start_ns", "dur_ns", "track")
        )
        parts.append((correlations, starts, starts + durations, threads))
    calls = LaunchCalls(*(np.concatenate(column) for column in zip(*parts, strict=True)))
    calls = calls.where(np.lexsort((-calls.ends, calls.starts, calls.correlations)))
    return calls.where(begins(calls.correlations))


def correlations_of(batch: pa.RecordBatch) -> Int64:
    """The rows' correlations, shape (rows,); an absent one is a number that no launch has."""
    return np.asarray(batch["correlation"].fill_null(_NO_CORRELATION).to_numpy(), np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class DeviceEvents:
    """Kernels, copies and memsets of a rank, arrays of shape (events,); times in ns."""

    starts: Int64
    ends: Int64
    stream: npt.NDArray[np.int32]
    """Index into `streams`."""
    correlations: Int64
    streams: Sequence[Stream]
    """In order of track, then device."""

    def where(self, chosen: Mask) -> DeviceEvents:
        """Those events alone."""
        return DeviceEvents(
            self.starts[chosen],
            self.ends[chosen],
            self.stream[chosen],
            self.correlations[chosen],
            self.streams,
        )


def device_events(tables: Rank) -> DeviceEvents:
    """All kernels, copies and memsets of a rank."""
    columns = ("device", "track", "start_ns", "dur_ns", "correlation")
    numbers: dict[tuple[int, int], int] = {}
    parts: list[tuple[Int64, Int64, npt.NDArray[np.int32], Int64]] = [
        (np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.int32), np.empty(0, np.int64))
    ]
    for batch in tables.events(("kernel", "copy", "memset"), columns):
        starts = batch["start_ns"].to_numpy()
        ends = starts + batch["dur_ns"].to_numpy()
        parts.append((starts, ends, stream_numbers(batch, numbers), correlations_of(batch)))
    starts, ends, stream, correlations = (np.concatenate(column) for column in zip(*parts, strict=True))
    place = np.empty(len(numbers), np.int32)
    place[[numbers[one] for one in sorted(numbers)]] = np.arange(len(numbers))
    streams = [(track, None if device == _NO_DEVICE else device) for track, device in sorted(numbers)]
    return DeviceEvents(starts, ends, place[stream], correlations, streams)


def stream_numbers(batch: pa.RecordBatch, numbers: dict[tuple[int, int], int]) -> npt.NDArray[np.int32]:
    """The number of each row's (track, device), shape (rows,); new streams are added to `numbers`."""
    tracks = batch["track"].dictionary_encode()
    devices = batch["device"].fill_null(_NO_DEVICE).dictionary_encode()
    width = len(devices.dictionary)
    pairs = tracks.indices.to_numpy() * width + devices.indices.to_numpy()
    present = np.unique(pairs)
    table = np.empty(len(tracks.dictionary) * width, np.int32)
    for pair in present.tolist():
        stream = (tracks.dictionary[pair // width].as_py(), devices.dictionary[pair % width].as_py())
        table[pair] = numbers.setdefault(stream, len(numbers))
    return np.asarray(table[pairs], np.int32)


def previous_ends(ends: Int64, streams: npt.NDArray[np.integer[Any]]) -> Int64:
    """For events in order of start: the latest end of an earlier one on the same stream, or `SINCE_EVER`."""
    by_stream = np.argsort(streams, kind="stable")
    edges = np.flatnonzero(np.diff(streams[by_stream])) + 1
    previous = np.full(len(ends), SINCE_EVER)
    for rows in np.split(by_stream, edges):
        previous[rows[1:]] = np.maximum.accumulate(ends[rows])[:-1]
    return previous


@dataclass(frozen=True, slots=True, eq=False)
class LaunchedKernels:
    """The kernels of a rank by the calls that launched them.

    `first`, `kernel_ns` and `calls` have shape (calls,), of calls that launched any; times in ns.
    """

    calls: LaunchCalls
    first: Int64
    """Start of the call's first kernel."""
    kernel_ns: Int64
    """Σ durations of the call's kernels."""
    coverage: Coverage
    """Of the kernels that begin in a window, those whose call is known."""

    @property
    def durations(self) -> Int64:
        """How long each call takes."""
        return self.calls.ends - self.calls.starts

    @property
    def longer_than_kernels(self) -> Mask:
        """Which calls take longer than what they launched."""
        return self.kernel_ns < self.durations

    @property
    def left_out(self) -> dict[str, int]:
        """The kernels of unknown launch."""
        return {"kernels without a launch record": self.coverage.all_rows - self.coverage.rows}


def launched_kernels(rank: RankView) -> LaunchedKernels:
    """The kernels of a rank by their calls; not applicable where no kernel in a window has one."""
    calls = rank.launch_calls
    first = np.full(len(calls), np.iinfo(np.int64).max)
    kernel_ns = np.zeros(len(calls), np.int64)
    for batch, call in kernels_with_calls(rank, calls):
        known = call >= 0
        np.minimum.at(first, call[known], batch["start_ns"].to_numpy()[known])
        np.add.at(kernel_ns, call[known], batch["dur_ns"].to_numpy()[known])
    coverage = Coverage(0, 0, 0, 0)
    for batch, _ in rank.kernels("correlation"):
        coverage += Coverage.of_rows(calls.of(correlations_of(batch)) >= 0, batch["dur_ns"].to_numpy())
    if not coverage.rows:
        raise Unknown("no launch in the trace is linked to a kernel in the window", coverage)
    launched = first < np.iinfo(np.int64).max
    return LaunchedKernels(calls.where(launched), first[launched], kernel_ns[launched], coverage)


def kernels_with_calls(
    rank: RankView, calls: LaunchCalls, *columns: str
) -> Iterator[tuple[pa.RecordBatch, Int64]]:
    """All kernels of the trace with the index of each one's call, −1 for none, in bounded batches."""
    for batch in rank.tables.events(("kernel",), ("start_ns", "dur_ns", "correlation", *columns)):
        yield batch, calls.of(correlations_of(batch))
