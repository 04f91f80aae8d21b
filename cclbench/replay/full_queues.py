# SPDX-License-Identifier: Apache-2.0
"""Launches that wait for a place in a full queue: the host is as far ahead of its device as it may be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

import numpy as np

from cclbench.replay.device import Device
from cclbench.replay.host import HostInstants, Wait, host_threads
from cclbench.replay.tables import GraphInput

_FEWEST: Final = 64
"""Launches that a queue holds at least; CUDA's hold some 1,000."""
_SLACK: Final = 8
"""Launches by which a full queue may seem shorter: calls that launch nothing have places, too."""
_LONG_NS: Final = 20_000
"""What a call takes that does not wait, at most; 2 to 10 µs are usual."""
_PROMPT_NS: Final = 100_000
"""A place is taken so soon after the row that had it has ended."""


def full_queues(
    rank: GraphInput, device: Device, points: HostInstants, inferred: Counter[str]
) -> Iterator[Wait]:
    """Such launches as waits: (device row whose end made the place, point of the return, lag in ns).

    A queue's length is the most launches of a lane that had not ended when another was made.  A call waited
    where the queue was as long as that, it took long, and it returned promptly behind the end of a row; of
    its own it takes what calls usually do.
    """
    calls, rows = rank.launches, device.rows
    if not len(calls):
        return
    taken = calls.end - calls.start
    long = taken >= _LONG_NS
    if not long.any():
        return
    queued = np.zeros(len(calls), np.int64)
    freed = np.full(len(calls), -1, np.int64)
    for lane in np.unique(rows.lane[device.launch >= 0]).tolist():
        own = np.flatnonzero((rows.lane == lane) & (device.launch >= 0))
        own = own[np.lexsort((rows.end[own], device.launch[own]))]
        last = own[np.append(device.launch[own][1:] != device.launch[own][:-1], True)]
        made = np.sort(calls.start[device.launch[last]])
        ended = last[np.argsort(rows.end[last], kind="stable")]
        call = device.launch[last]
        before = np.searchsorted(rows.end[ended], calls.end[call], side="right")
        queued[call] = np.searchsorted(made, calls.start[call], side="left") - before
        freed[call] = np.append(ended, -1)[before - 1]
    length = int(queued.max())
    full = np.flatnonzero(long & (queued >= max(length - _SLACK, _FEWEST)) & (freed >= 0))
    lag = calls.end[full] - rows.end[freed[full]]
    waited = (lag <= _PROMPT_NS) & (rows.end[freed[full]] > calls.start[full])
    full, lag = full[waited], lag[waited]
    if len(full):
        inferred["launches that wait for a place in a full queue"] += len(full)
        usual = int(np.median(taken[~long])) if not long.all() else 0
        own_ns = np.full(len(full), usual)
        yield freed[full], points.add_instants(host_threads(calls)[full], calls.end[full], own_ns), lag
