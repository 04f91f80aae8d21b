# SPDX-License-Identifier: Apache-2.0
"""Waits of the host for its device that no call shows: at the ends of steps and of programs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np

from cclbench.normalize.cpu_host import RESUMED_NS
from cclbench.replay.device import Device
from cclbench.replay.host import HostInstants, Wait, Waits, host_threads, thread_pauses
from cclbench.replay.tables import GraphInput


def silent_waits(rank: GraphInput, device: Device, points: HostInstants, inferred: Counter[str]) -> Waits:
    """Add the points of such waits; return (device row, point of the return, lag in ns)."""
    return [*_step_ends(rank, device, points, inferred), *_program_end_waits(rank, device, points, inferred)]


def _step_ends(
    rank: GraphInput, device: Device, points: HostInstants, inferred: Counter[str]
) -> Iterator[Wait]:
    """Step annotations that all end promptly after the device's work: an untraced wait."""
    rows = device.rows
    at = np.flatnonzero(rank.annotation & rank.host.rows_named("ProfilerStep#"))
    if not len(at) or not len(rows):
        return
    ends, thread = rank.host.end[at], host_threads(rank.host)[at]
    launches = np.concatenate([rank.launches.end, rank.syncs.end])
    awaited = []
    for i, end in enumerate(ends.tolist()):
        is_issued = device.issue < end
        drained = int(rows.end[is_issued].max(initial=0))
        called = int(launches[launches <= end].max(initial=0))
        if not is_issued.any() or not called < drained <= end <= drained + 2 * RESUMED_NS // 100:
            return
        for lane in np.unique(rows.lane[is_issued]).tolist():
            last = int(np.flatnonzero(is_issued & (rows.lane == lane))[-1])
            awaited.append((last, i, end - drained))
    back = points.add_instants(thread, ends, np.zeros(len(ends), np.int64))
    source, call, lag = (np.array(column, np.int64) for column in zip(*awaited, strict=True))
    inferred["waits for the device at steps' ends"] += len(ends)
    yield source, back[call], lag


def _program_end_waits(
    rank: GraphInput, device: Device, points: HostInstants, inferred: Counter[str]
) -> Iterator[Wait]:
    """Host pauses that end promptly after a program."""
    if device.fitted.any() or not (device.launch >= 0).any():
        return
    begins = np.sort(device.rows.start[device.launch >= 0])
    by_end = np.argsort(device.rows.end, kind="stable")
    last = by_end[np.searchsorted(device.rows.end[by_end], np.append(begins[1:], 1 << 61)) - 1]
    idle = thread_pauses(rank)
    for row in np.unique(last).tolist():
        end = int(device.rows.end[row])
        hit = np.flatnonzero((idle.start < end) & (idle.end >= end) & (idle.end - end <= RESUMED_NS))
        if len(hit):
            back = points.add_instants(idle.thread[hit], idle.end[hit], np.zeros(len(hit), np.int64))
            points.add_instants(idle.thread[hit], idle.start[hit])
            inferred["pauses of the host for a program's end"] += len(hit)
            yield np.full(len(hit), row), back, idle.end[hit] - end
