# SPDX-License-Identifier: Apache-2.0
"""Dependencies that the trace states: event records, stream waits, synchronise calls.

An event marks all work that its stream had been given when it was recorded: the stream's last row, and the
waits given to the stream since.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from dataclasses import dataclass, field
from operator import itemgetter

import numpy as np

from cclbench.ground.intervals import Int64
from cclbench.replay.device import Device, clock_grain_ns
from cclbench.replay.tables import CONTEXT_SYNC, EVENT_SYNC, STREAM_SYNC, STREAM_WAIT, UNSTATED, StatedSyncs
from cclbench.replay.waits import PROMPT_NS

Awaited = dict[int, int]
"""Awaited rows by lane."""


@dataclass(slots=True, eq=False)
class StatedWaits:
    """Stated dependencies: pairs of device rows (the second waits for the first); rows whose stream waits for
    an event of unknown record; what each synchronise call waits for."""

    source: list[int] = field(default_factory=list)
    target: list[int] = field(default_factory=list)
    unknown: list[int] = field(default_factory=list)
    of_call: dict[int, Awaited] = field(default_factory=dict)
    """By the call's correlation."""


def stated_waits(syncs: StatedSyncs, device: Device) -> StatedWaits:
    """Dependencies of device rows by a rank's synchronisation rows, in order of time."""
    waits, streams = StatedWaits(), _Streams(device)
    for index in range(len(syncs.time)):
        time, sync_kind = int(syncs.time[index]), int(syncs.what[index])
        device_index, stream = int(syncs.device[index]), int(syncs.stream[index])
        awaited: Awaited | None = None
        if sync_kind in (STREAM_WAIT, EVENT_SYNC):
            if syncs.recorded[index] != UNSTATED:
                awaited = streams.work_before(
                    (device_index, int(syncs.event_stream[index])), int(syncs.recorded[index])
                )
        elif sync_kind == STREAM_SYNC:
            awaited = streams.work_before((device_index, stream), time) if stream >= 0 else None
        else:
            assert sync_kind == CONTEXT_SYNC  # noqa: S101  (the table has no other)
            awaited = {}
            for stream_key in streams.lanes:
                if stream_key[0] == device_index:
                    streams.merge_awaited(awaited, streams.work_before(stream_key, time))
        if sync_kind != STREAM_WAIT:
            if awaited is not None:
                waits.of_call[int(syncs.call[index])] = awaited
            continue
        row = streams.wait_for((device_index, stream), time, awaited or {})
        if row is not None and awaited is None:
            waits.unknown.append(row)
        for lane, source in (awaited or {}).items():
            if row is not None and lane != device.rows.lane[row]:
                waits.source.append(source)
                waits.target.append(row)
    return waits


class _Streams:
    """Work and waits given to each stream, by time."""

    def __init__(self, device: Device) -> None:
        rows = device.rows
        self.issue = device.issue
        self.lanes: dict[tuple[int, int], int] = {lane: number for number, lane in enumerate(rows.lanes)}
        self.rows: dict[int, list[int]] = {}
        self.issues: dict[int, list[int]] = {}
        for number in self.lanes.values():
            of_lane = np.flatnonzero(rows.lane == number)
            of_lane = of_lane[np.argsort(device.issue[of_lane], kind="stable")]
            self.rows[number], self.issues[number] = of_lane.tolist(), device.issue[of_lane].tolist()
        self.stream_waits: dict[int, list[tuple[int, Awaited]]] = defaultdict(list)
        """Waits given to each stream, and for what, since its last row."""

    def work_before(self, lane: tuple[int, int], time: int) -> Awaited:
        """The rows that must end before all work given to a stream until `time` ends."""
        number = self.lanes.get(lane)
        if number is None:
            return {}
        last = bisect_left(self.issues[number], time) - 1
        awaited = {number: self.rows[number][last]} if last >= 0 else {}
        since = self.issues[number][last] if last >= 0 else -(1 << 62)
        at = bisect_right(self.stream_waits[number], time, key=itemgetter(0)) - 1
        if at >= 0 and self.stream_waits[number][at][0] >= since:
            self.merge_awaited(awaited, self.stream_waits[number][at][1])
        return awaited

    def wait_for(self, lane: tuple[int, int], time: int, awaited: Awaited) -> int | None:
        """Let a stream wait; return the next row that it is given, None for none."""
        number = self.lanes.get(lane)
        if number is None:
            return None
        next_place = bisect_left(self.issues[number], time)
        all_awaited = dict(awaited)
        if (
            self.stream_waits[number]
            and bisect_left(self.issues[number], self.stream_waits[number][-1][0]) == next_place
        ):
            self.merge_awaited(all_awaited, self.stream_waits[number][-1][1])
        self.stream_waits[number].append((time, all_awaited))
        return self.rows[number][next_place] if next_place < len(self.rows[number]) else None

    def merge_awaited(self, into: Awaited, more: Awaited) -> None:
        """Add awaited rows; of two rows of a lane the later counts."""
        for lane, row in more.items():
            if lane not in into or self.issue[row] > self.issue[into[lane]]:
                into[lane] = row


def stream_lags(waits: StatedWaits, device: Device, bound: Int64) -> tuple[Int64, Int64, Int64, int]:
    """Stated waits of streams: source, target, lag; and the number that times contradict, left out.

    A wait that visibly holds its row up has the measured lag, at most the usual one; others have the usual
    one.
    """
    rows = device.rows
    source, target = np.array(waits.source, np.int64), np.array(waits.target, np.int64)
    measured_lag = rows.start[target] - rows.end[source]
    consistent = measured_lag >= -clock_grain_ns(rows) if len(rows) else measured_lag >= 0
    source, target, measured_lag = source[consistent], target[consistent], measured_lag[consistent]
    smallest_lag = np.full(len(rows), PROMPT_NS + 1)
    np.minimum.at(smallest_lag, target, measured_lag)
    held = (rows.start[target] > bound[target] + device.doubt) & (measured_lag == smallest_lag[target])
    usual = int(np.median(measured_lag[held])) if held.any() else 0
    return source, target, np.minimum(usual, measured_lag), int((~consistent).sum())
