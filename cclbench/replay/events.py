# SPDX-License-Identifier: Apache-2.0
"""Which rows waits are for, where the trace states its events: records, stream waits, synchronise calls.

An event marks all that its stream had been given when the event was recorded: the stream's last row then,
and what the stream itself had been told to wait for since.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from dataclasses import dataclass, field
from operator import itemgetter

import numpy as np

from cclbench.ground.intervals import Int64
from cclbench.replay.device import Device, clock_grain_ns
from cclbench.replay.tables import CONTEXT_SYNC, EVENT_SYNC, STREAM_SYNC, STREAM_WAIT, UNTOLD, StatedSyncs
from cclbench.replay.waits import PROMPT_NS

Awaited = dict[int, int]
"""The row that is awaited, by its lane."""


@dataclass(slots=True, eq=False)
class StatedWaits:
    """What the trace states: pairs of device rows of which the second waits for the first; rows whose stream
    waits for an event that was recorded nobody knows where; what each synchronise call waits for."""

    source: list[int] = field(default_factory=list)
    target: list[int] = field(default_factory=list)
    unknown: list[int] = field(default_factory=list)
    of_call: dict[int, Awaited] = field(default_factory=dict)
    """By the call's correlation."""


def stated_waits(syncs: StatedSyncs, device: Device) -> StatedWaits:
    """What a rank's synchronisation rows, in order of time, say of its device's rows."""
    found, streams = StatedWaits(), _Streams(device)
    for at in range(len(syncs.time)):
        time, what = int(syncs.time[at]), int(syncs.what[at])
        place, stream = int(syncs.device[at]), int(syncs.stream[at])
        awaited: Awaited | None = None
        if what in (STREAM_WAIT, EVENT_SYNC):
            if syncs.recorded[at] != UNTOLD:
                awaited = streams.given_until((place, int(syncs.event_stream[at])), int(syncs.recorded[at]))
        elif what == STREAM_SYNC:
            awaited = streams.given_until((place, stream), time) if stream >= 0 else None
        else:
            assert what == CONTEXT_SYNC  # noqa: S101  (the table has no other)
            awaited = {}
            for one in streams.lanes:
                if one[0] == place:
                    streams.merge_awaited(awaited, streams.given_until(one, time))
        if what != STREAM_WAIT:
            if awaited is not None:
                found.of_call[int(syncs.call[at])] = awaited
            continue
        row = streams.wait_for((place, stream), time, awaited or {})
        if row is not None and awaited is None:
            found.unknown.append(row)
        for lane, source in (awaited or {}).items():
            if row is not None and lane != device.rows.lane[row]:
                found.source.append(source)
                found.target.append(row)
    return found


class _Streams:
    """What each stream has been given when."""

    def __init__(self, device: Device) -> None:
        rows = device.rows
        self.issue = device.issue
        self.lanes: dict[tuple[int, int], int] = {lane: number for number, lane in enumerate(rows.lanes)}
        self.rows: dict[int, list[int]] = {}
        self.issues: dict[int, list[int]] = {}
        for number in self.lanes.values():
            own = np.flatnonzero(rows.lane == number)
            own = own[np.argsort(device.issue[own], kind="stable")]
            self.rows[number], self.issues[number] = own.tolist(), device.issue[own].tolist()
        self.told: dict[int, list[tuple[int, Awaited]]] = defaultdict(list)
        """When each stream was told to wait, and for what since the row that it had been given last."""

    def given_until(self, lane: tuple[int, int], time: int) -> Awaited:
        """What has to end before all that a stream had been given by then has."""
        number = self.lanes.get(lane)
        if number is None:
            return {}
        last = bisect_left(self.issues[number], time) - 1
        found = {number: self.rows[number][last]} if last >= 0 else {}
        since = self.issues[number][last] if last >= 0 else -(1 << 62)
        at = bisect_right(self.told[number], time, key=itemgetter(0)) - 1
        if at >= 0 and self.told[number][at][0] >= since:
            self.merge_awaited(found, self.told[number][at][1])
        return found

    def wait_for(self, lane: tuple[int, int], time: int, awaited: Awaited) -> int | None:
        """Tell a stream to wait; the next row that it is given, None where it is given no more."""
        number = self.lanes.get(lane)
        if number is None:
            return None
        after = bisect_left(self.issues[number], time)
        whole = dict(awaited)
        if self.told[number] and bisect_left(self.issues[number], self.told[number][-1][0]) == after:
            self.merge_awaited(whole, self.told[number][-1][1])
        self.told[number].append((time, whole))
        return self.rows[number][after] if after < len(self.rows[number]) else None

    def merge_awaited(self, into: Awaited, more: Awaited) -> None:
        """Of two rows of a lane the later one is awaited."""
        for lane, row in more.items():
            if lane not in into or self.issue[row] > self.issue[into[lane]]:
                into[lane] = row


def stream_lags(found: StatedWaits, device: Device, bound: Int64) -> tuple[Int64, Int64, Int64, int]:
    """The stated waits of streams: source, target, lag; and how many its rows contradict, which are left out.

    A wait that visibly holds its row back has the measured lag, at most the usual one; others the usual one.
    """
    rows = device.rows
    source, target = np.array(found.source, np.int64), np.array(found.target, np.int64)
    after = rows.start[target] - rows.end[source]
    kept = after >= -clock_grain_ns(rows) if len(rows) else after >= 0
    source, target, after = source[kept], target[kept], after[kept]
    least = np.full(len(rows), PROMPT_NS + 1)
    np.minimum.at(least, target, after)
    held = (rows.start[target] > bound[target] + device.doubt) & (after == least[target])
    usual = int(np.median(after[held])) if held.any() else 0
    return source, target, np.minimum(usual, after), int((~kept).sum())
