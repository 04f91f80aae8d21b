# SPDX-License-Identifier: Apache-2.0
"""Device events and the calls that launched them, linked by correlation id.

A call may launch several kernels (a CUDA graph); of several calls with one correlation the earliest counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cclbench.analyzers.metric import Coverage, Unknown
from cclbench.analyzers.view.columns import event_table, row_spans
from cclbench.ground.intervals import Index, Int64, Mask, begins
from cclbench.normalize.device_rows import DEVICE_WORK

if TYPE_CHECKING:
    from cclbench.analyzers.view.rank_view import RankView
    from cclbench.record.rank import Rank

Stream = tuple[int, int | None]
"""Track and device."""
_NO_CORRELATION: Final = np.iinfo(np.int64).min
_NO_DEVICE: Final = -1
SINCE_EVER: Final = np.iinfo(np.int64).min
"""Time since which a stream without earlier events is free."""


@dataclass(frozen=True, slots=True, eq=False)
class LaunchCalls:
    """Calls that launch device work, ordered by correlation, which is unique.

    Arrays of shape (calls,); times in ns.
    """

    correlations: Int64
    starts: Int64
    ends: Int64
    threads: Int64
    """Calling thread."""

    def __len__(self) -> int:
        return len(self.starts)

    def indices_of(self, correlations: Int64) -> Int64:
        """Index of the call with each correlation, −1 for none; shape of `correlations`."""
        index = np.searchsorted(self.correlations, correlations)
        has_call = (index < len(self)) & (correlations != _NO_CORRELATION)
        has_call[has_call] = self.correlations[index[has_call]] == correlations[has_call]
        return np.where(has_call, index, -1)

    def take_calls(self, chosen: Mask | Int64 | Index) -> LaunchCalls:
        """The calls of a mask or of indices."""
        columns = (self.correlations, self.starts, self.ends, self.threads)
        return LaunchCalls(*(column[chosen] for column in columns))


def launch_calls(tables: Rank) -> LaunchCalls:
    """A rank's launch calls with a correlation."""
    table = event_table(tables, ("launch",), ("correlation", "start_ns", "dur_ns", "track"))
    table = table.filter(table["correlation"].is_valid())
    calls = LaunchCalls(table["correlation"].to_numpy(), *row_spans(table), table["track"].to_numpy())
    order = np.lexsort((-calls.ends, calls.starts, calls.correlations))
    return calls.take_calls(order[begins(calls.correlations[order])])


def correlations_of(batch: pa.RecordBatch | pa.Table) -> Int64:
    """The rows' correlations, shape (rows,); null becomes a number that no launch has."""
    return np.asarray(batch["correlation"].fill_null(_NO_CORRELATION).to_numpy(), np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class DeviceEvents:
    """Kernels, copies, memsets and graphs of a rank; arrays of shape (events,), times in ns."""

    starts: Int64
    ends: Int64
    stream: npt.NDArray[np.int32]
    """Index into `streams`."""
    correlations: Int64
    streams: Sequence[Stream]
    """Ordered by track, then device."""

    def __len__(self) -> int:
        return len(self.starts)

    def take_events(self, chosen: Mask | Int64 | slice) -> DeviceEvents:
        """The events of a mask, indices or a slice."""
        return DeviceEvents(
            self.starts[chosen],
            self.ends[chosen],
            self.stream[chosen],
            self.correlations[chosen],
            self.streams,
        )


def device_events(tables: Rank) -> DeviceEvents:
    """All device events of a rank."""
    table = event_table(tables, DEVICE_WORK, ("device", "track", "start_ns", "dur_ns", "correlation"))
    stream, streams = stream_numbers(table["track"].to_numpy(), devices_of(table))
    return DeviceEvents(*row_spans(table), stream, correlations_of(table), streams)


def devices_of(batch: pa.RecordBatch | pa.Table) -> npt.NDArray[np.int16]:
    """The rows' devices, shape (rows,); null becomes a number that no device has."""
    return np.asarray(batch["device"].fill_null(_NO_DEVICE).to_numpy(), np.int16)


def stream_numbers(
    tracks: Int64, devices: npt.NDArray[np.int16]
) -> tuple[npt.NDArray[np.int32], list[Stream]]:
    """Index of each row's stream, shape (rows,), and the streams ordered by track, then device."""
    track, device = (pa.array(column).dictionary_encode() for column in (tracks, devices))
    width = len(device.dictionary)
    pairs = track.indices.to_numpy().astype(np.int64) * width + device.indices.to_numpy()
    present = np.bincount(pairs, minlength=1) > 0
    streams = sorted(
        (track.dictionary[pair // width].as_py(), device.dictionary[pair % width].as_py(), pair)
        for pair in np.flatnonzero(present).tolist()
    )
    number = np.empty(len(present), np.int32)
    number[[pair for *_, pair in streams]] = np.arange(len(streams))
    return number[pairs], [(track, None if device == _NO_DEVICE else device) for track, device, _ in streams]


def previous_ends(ends: Int64, streams: npt.NDArray[np.integer[Any]]) -> Int64:
    """Latest end of an earlier event on the same stream, or `SINCE_EVER`, for events ordered by start."""
    by_stream = np.argsort(streams, kind="stable")
    edges = np.flatnonzero(np.diff(streams[by_stream])) + 1
    previous = np.full(len(ends), SINCE_EVER)
    for rows in np.split(by_stream, edges):
        previous[rows[1:]] = np.maximum.accumulate(ends[rows])[:-1]
    return previous


@dataclass(frozen=True, slots=True, eq=False)
class LaunchedKernels:
    """A rank's kernels by launch call.

    `first`, `kernel_ns` and `calls` have shape (calls,), for calls that launched any; times in ns.
    """

    calls: LaunchCalls
    first: Int64
    """Start of the call's first kernel."""
    kernel_ns: Int64
    """Total duration of the call's kernels."""
    coverage: Coverage
    """Coverage of the kernels in the windows whose call is known."""

    @property
    def longer_than_kernels(self) -> Mask:
        """Mask of the calls that take longer than their kernels."""
        return np.asarray(self.kernel_ns < self.calls.ends - self.calls.starts)

    @property
    def left_out(self) -> dict[str, int]:
        """Number of kernels without a known launch."""
        return {"kernels without a launch": self.coverage.all_rows - self.coverage.rows}


def launched_kernels(rank: RankView) -> LaunchedKernels:
    """A rank's kernels by launch call; `Unknown` where no kernel in a window has one."""
    calls = rank.launch_calls
    never = np.iinfo(np.int64).max
    first, kernel_ns = np.full(len(calls), never), np.zeros(len(calls), np.int64)
    for batch, call in kernels_with_calls(rank, calls):
        has_call = call >= 0
        np.minimum.at(first, call[has_call], batch["start_ns"].to_numpy()[has_call])
        np.add.at(kernel_ns, call[has_call], batch["dur_ns"].to_numpy()[has_call])
    coverage = Coverage(0, 0, 0, 0)
    for batch, _ in rank.kernels("correlation"):
        coverage += Coverage.from_rows(
            calls.indices_of(correlations_of(batch)) >= 0, batch["dur_ns"].to_numpy()
        )
    if not coverage.rows:
        raise Unknown("no launch in the trace is linked to a kernel in the window", coverage)
    launched = first < never
    return LaunchedKernels(calls.take_calls(launched), first[launched], kernel_ns[launched], coverage)


def kernels_with_calls(
    rank: RankView, calls: LaunchCalls, *columns: str
) -> Iterator[tuple[pa.RecordBatch, Int64]]:
    """All kernels of the trace in bounded batches, with the index of each one's call, −1 for none."""
    for batch in rank.tables.events(("kernel",), ("start_ns", "dur_ns", "correlation", *columns)):
        yield batch, calls.indices_of(correlations_of(batch))
