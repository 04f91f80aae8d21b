# SPDX-License-Identifier: Apache-2.0
"""Launches that wait for a place in a full launch queue."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

import numpy as np

from cclbench.replay.device import Device
from cclbench.replay.host import HostInstants, Wait, host_threads
from cclbench.replay.tables import GraphInput

_FEWEST: Final = 64
"""Smallest capacity of a queue, launches; CUDA's hold some 1,000."""
_SLACK: Final = 8
"""Launches by which a full queue may seem shorter, since other calls also take places."""
_LONG_NS: Final = 20_000
"""Longest call that does not wait; 2 to 10 µs are usual."""
_PROMPT_NS: Final = 100_000
"""Longest time from the end of a row until its place is taken."""


def full_queues(
    rank: GraphInput, device: Device, points: HostInstants, inferred: Counter[str]
) -> Iterator[Wait]:
    """Waits of launches for a place: (device row whose end freed it, point of the return, lag in ns).

    The capacity is the most launches of a lane that were pending at another launch. A call waited if the
    queue was that long, the call took long, and it returned promptly after the end of a row; its own time is
    the usual one.
    """
    calls, rows = rank.launches, device.rows
    if not len(calls):
        return
    call_ns = calls.end - calls.start
    long = call_ns >= _LONG_NS
    if not long.any():
        return
    queued = np.zeros(len(calls), np.int64)
    freed = np.full(len(calls), -1, np.int64)
    for lane in np.unique(rows.lane[device.launch >= 0]).tolist():
        of_lane = np.flatnonzero((rows.lane == lane) & (device.launch >= 0))
        of_lane = of_lane[np.lexsort((rows.end[of_lane], device.launch[of_lane]))]
        last = of_lane[np.append(device.launch[of_lane][1:] != device.launch[of_lane][:-1], True)]
        launch_times = np.sort(calls.start[device.launch[last]])
        by_end = last[np.argsort(rows.end[last], kind="stable")]
        call = device.launch[last]
        ended_before = np.searchsorted(rows.end[by_end], calls.end[call], side="right")
        queued[call] = np.searchsorted(launch_times, calls.start[call], side="left") - ended_before
        freed[call] = np.append(by_end, -1)[ended_before - 1]
    length = int(queued.max())
    full = np.flatnonzero(long & (queued >= max(length - _SLACK, _FEWEST)) & (freed >= 0))
    lag = calls.end[full] - rows.end[freed[full]]
    waited = (lag <= _PROMPT_NS) & (rows.end[freed[full]] > calls.start[full])
    full, lag = full[waited], lag[waited]
    if len(full):
        inferred["launches that wait for a place in a full queue"] += len(full)
        usual_ns = int(np.median(call_ns[~long])) if not long.all() else 0
        own_ns = np.full(len(full), usual_ns)
        yield freed[full], points.add_instants(host_threads(calls)[full], calls.end[full], own_ns), lag
