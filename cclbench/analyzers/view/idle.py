# SPDX-License-Identifier: Apache-2.0
"""Why the device is idle: each gap by the launch of the device event that ends it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cclbench import intervals
from cclbench.intervals import Int64, Intervals, Mask

if TYPE_CHECKING:
    from cclbench.record.run import Rank

_ALWAYS = np.iinfo(np.int64).min
_NEVER = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True, eq=False)
class Idle:
    """The gaps between device events from the first window's start to the last one's end, by cause."""

    host: Intervals
    device: Intervals
    unknown: Intervals
    any_launch: bool
    """Whether any gap's event has a launch record at all."""


def split(tables: Rank, busy: Intervals, window_starts: Int64, window_ends: Int64) -> Idle:
    """The idle time of a rank, split by what the event that ends each gap waited for; `busy` is C∪K∪M."""
    gap_starts = np.append(np.append(window_starts, busy.starts).min(), busy.ends)
    gap_ends = np.append(busy.starts, np.append(window_ends, busy.ends).max())
    launched, free = _launch_and_free(tables, busy.starts)
    known = launched < _NEVER
    late = known & (launched > free)

    def gaps(chosen: Mask, *, last: bool = False) -> Intervals:
        chosen = np.append(chosen, last)
        return intervals.union(gap_starts[chosen], gap_ends[chosen])

    return Idle(gaps(late), gaps(known & ~late), gaps(~known, last=True), bool(known.any()))


def _launch_and_free(tables: Rank, at: Int64) -> tuple[Int64, Int64]:
    """Of the device event that starts at each of `at`: its launch's start and when its stream was free.

    Sorted `at` of shape (gaps,) gives two arrays of that shape; an unknown launch is at the end of
    time, a stream without an earlier event is free since its beginning.
    """
    starts, ends, streams, correlations = _device_events(tables)
    by_start = np.lexsort((streams, starts))
    first = np.searchsorted(starts[by_start], at, side="left")
    launched = _launch_starts(tables, correlations[by_start[first]])
    return launched, _previous_ends(ends[by_start], streams[by_start])[first]


def _device_events(tables: Rank) -> tuple[Int64, Int64, npt.NDArray[np.int32], Int64]:
    """Start, end, stream number (in the order of track, device) and correlation of all device events.

    Events without length occupy no stream and are left out; an absent correlation is a number that
    no launch has.
    """
    columns = ("device", "track", "start_ns", "dur_ns", "correlation")
    numbers: dict[tuple[int, int], int] = {}
    parts: list[tuple[Int64, Int64, npt.NDArray[np.int32], Int64]] = [
        (np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.int32), np.empty(0, np.int64))
    ]
    for batch in tables.events(("kernel", "copy", "memset"), columns):
        starts = batch["start_ns"].to_numpy()
        ends = starts + batch["dur_ns"].to_numpy()
        full = ends > starts
        streams = _stream_numbers(batch, numbers)
        correlations = batch["correlation"].fill_null(_ALWAYS).to_numpy()
        parts.append((starts[full], ends[full], streams[full], correlations[full]))
    starts, ends, streams, correlations = (np.concatenate(column) for column in zip(*parts, strict=True))
    place = np.empty(len(numbers), np.int32)
    place[[numbers[stream] for stream in sorted(numbers)]] = np.arange(len(numbers))
    return starts, ends, place[streams], correlations


def _stream_numbers(batch: pa.RecordBatch, numbers: dict[tuple[int, int], int]) -> npt.NDArray[np.int32]:
    """The number of each row's (track, device), shape (rows,); new streams are added to `numbers`."""
    tracks, devices = batch["track"].dictionary_encode(), batch["device"].fill_null(-1).dictionary_encode()
    width = len(devices.dictionary)
    pairs = tracks.indices.to_numpy() * width + devices.indices.to_numpy()
    present = np.unique(pairs)
    table = np.empty(len(tracks.dictionary) * width, np.int32)
    for pair in present.tolist():
        stream = (tracks.dictionary[pair // width].as_py(), devices.dictionary[pair % width].as_py())
        table[pair] = numbers.setdefault(stream, len(numbers))
    return np.asarray(table[pairs], np.int32)


def _previous_ends(ends: Int64, streams: npt.NDArray[np.int32]) -> Int64:
    """For events in order of start: the latest end of any earlier event on the same stream."""
    by_stream = np.argsort(streams, kind="stable")
    edges = np.flatnonzero(np.diff(streams[by_stream])) + 1
    previous = np.full(len(ends), _ALWAYS, np.int64)
    for rows in np.split(by_stream, edges):
        previous[rows[1:]] = np.maximum.accumulate(ends[rows])[:-1]
    return previous


def _launch_starts(tables: Rank, correlations: Int64) -> Int64:
    """When the launch of each correlation began: the earliest of several, the end of time for none."""
    wanted, back = np.unique(correlations, return_inverse=True)
    begun = np.full(len(wanted), _NEVER, np.int64)
    if len(wanted):
        for batch in tables.events(("launch",), ("correlation", "start_ns")):
            known = batch.filter(batch["correlation"].is_valid())
            number, start = known["correlation"].to_numpy(), known["start_ns"].to_numpy()
            at = np.minimum(np.searchsorted(wanted, number), len(wanted) - 1)
            hit = wanted[at] == number
            np.minimum.at(begun, at[hit], start[hit])
    return begun[back]
