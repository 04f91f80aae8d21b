# SPDX-License-Identifier: Apache-2.0
"""The nodes of a rank with an accelerator: host points, device rows, and what ties them.

Rows of streams start when launch, stream and what they wait for allow, after latencies fitted from the
rank's own rows: none keeps the gap it was measured with, unless nothing tells of its launch.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final

import numpy as np

from cclbench.intervals import Int64, Mask
from cclbench.replay import nodes as n
from cclbench.replay.host import Found, Points, add_boundaries, add_turns, host_nodes, pauses, tracks, turns
from cclbench.replay.nodes import Edges, Nodes, Part
from cclbench.replay.tables import RankRows, Rows
from cclbench.replay.waits import PROMPT_NS, RESUMED_NS, TOLERANCE_NS, Issued, between_streams

OWN_GAP_NS: Final = 10_000
"""From one row's end to the next one's begin on a stream that has more to do: 1 to 5 µs are usual."""
_FEW: Final = 5
_FEWEST: Final = 3
_US: Final = 1_000
_WHOLE_PROGRAMS: Final = 0.5
"""Fewer launches a row than this: programs or graphs are launched, not rows."""


@dataclass(frozen=True, slots=True, eq=False)
class _Device:
    """The device's rows in order of (lane, start), with their launches; arrays of shape (rows,)."""

    rows: Rows
    launch: Int64
    """The row of the launch, −1 for none."""
    issue: Int64
    first: Mask
    gap: Int64
    latency: Int64
    fitted: Mask
    """Whether latency and gap are fitted, not this row's own."""
    doubt: int
    """How much later than latency and gap allow a row may start without having waited for another, ns."""


def accelerator(rank: RankRows) -> Part:
    """One rank's part of the graph."""
    inferred: Counter[str] = Counter()
    device = _device(rank)
    inferred["rows without a launch of their own: they keep their measured gaps"] += int(
        (~device.fitted).sum()
    )
    points, edges = Points(), Edges()
    launched = points.add(tracks(rank.launches), rank.launches.start)
    waits = _host_waits(rank, device, points, inferred)
    handed = _turns(rank, points, waits, inferred)
    add_boundaries(rank, points)
    host, place = host_nodes(rank.rank, points)
    between = _device_waits(device, inferred)
    work, start_of, end_of = _work_nodes(rank, device, int(host.lane.max(initial=-1)) + 1)
    fed = device.launch >= 0
    work.feeder[start_of[fed]] = place[launched[device.launch[fed]]]
    work.feed_lag[start_of[fed]] = device.latency[fed]
    for source, target, lag in waits:
        edges.add(end_of[source] + len(host), place[target], lag)
    for source, target, lag in handed:
        edges.add(place[source], place[target], lag)
    for source, target, lag in between:
        edges.add(end_of[source] + len(host), start_of[target] + len(host), lag)
    return Part(n.joined([host, work]), edges, inferred)


def _device(rank: RankRows) -> _Device:
    rows = rank.work.at(np.lexsort((rank.work.end, rank.work.start, rank.work.lane)))
    launch = _launch_of(rows, rank.launches)
    first = np.diff(rows.lane, prepend=-1) != 0
    before = np.where(first, rows.start, np.roll(rows.end, 1))
    measured = np.where(first, 0, rows.start - before)
    launches = np.append(rank.launches.start, 0)[launch]
    issue = np.where(launch >= 0, launches, rows.start)
    each = len(np.unique(launch[launch >= 0])) >= _WHOLE_PROGRAMS * max(len(rows), 1)
    fitted = (launch >= 0) & each
    latency, gap = np.where(launch >= 0, rows.start - issue, 0), measured.copy()
    doubt = TOLERANCE_NS
    if not each:
        launch = _first_rows(rows, launch)
        latency, gap = _of_programs(rows, launch, latency, gap)
    if fitted.any():
        usual, doubt = _latency(rows, issue, fitted)
        latency = np.where(fitted, usual, latency)
        queued = fitted & ~first & (issue + usual <= before) & (measured >= 0)
        queued &= ~_after_another(rows, before)
        gap = np.where(fitted & ~first & (measured >= 0), _usual_gaps(rows, measured, queued), measured)
        own = queued & (measured <= OWN_GAP_NS)
        doubt = min(max(doubt, _spread(measured[own] - gap[own])), TOLERANCE_NS)
    return _Device(rows, launch, issue, first, gap, latency, fitted, doubt)


def _launch_of(rows: Rows, launches: Rows) -> Int64:
    """The launch of each row: the earliest with its correlation, −1 for none."""
    if not len(launches):
        return np.full(len(rows), -1, np.int64)
    order = np.lexsort((launches.start, launches.correlation))
    known = launches.correlation[order]
    at = np.minimum(np.searchsorted(known, rows.correlation), len(known) - 1)
    hit = (known[at] == rows.correlation) & (rows.correlation >= 0)
    hit &= launches.start[order[at]] <= rows.start
    return np.where(hit, order[at], -1)


def _first_rows(rows: Rows, launch: Int64) -> Int64:
    """Launches of programs belong to the first row of each."""
    order = np.lexsort((rows.start, launch))
    first = np.zeros(len(rows), np.bool_)
    first[order[np.diff(launch[order], prepend=-2) != 0]] = True
    return np.where(first, launch, -1)


def _of_programs(rows: Rows, launch: Int64, latency: Int64, gap: Int64) -> tuple[Int64, Int64]:
    """Latency and gap of programs' first rows: one that queued behind earlier work has the least latency
    seen of any; one that did not, has its own, and no gap."""
    heads = launch >= 0
    if not heads.any():
        return latency, gap
    queued = _previous_end(rows) > rows.start - latency
    least = latency[heads].min()
    return np.where(heads & queued, least, latency), np.where(heads & ~queued, np.minimum(gap, 0), gap)


def _previous_end(rows: Rows) -> Int64:
    """When what ended last before each row's start, on any lane, ended; long ago where nothing did."""
    ends = np.sort(rows.end)
    place = np.searchsorted(ends, rows.start, side="right") - 1
    return np.where(place >= 0, np.append(ends, 0)[place], -(1 << 60))


def _latency(rows: Rows, issue: Int64, fitted: Mask) -> tuple[int, int]:
    """From a launch to its row, where the device had nothing left to do: the median, and how far it spreads.

    Without such rows the least seen, and what clocks are good for.
    """
    order = np.argsort(issue, kind="stable")
    order = order[fitted[order]]
    done = np.maximum.accumulate(np.append(np.iinfo(np.int64).min, rows.end[order]))[:-1]
    latency = (rows.start - issue)[order]
    idle = latency[done <= issue[order]]
    if len(idle) < _FEWEST:
        return int(latency.min()), TOLERANCE_NS
    usual = int(np.median(idle))
    return usual, _spread(idle - usual)


def _spread(errors: Int64) -> int:
    """What nine in ten stay within."""
    return int(np.quantile(abs(errors), 0.9)) if len(errors) else 0


def _after_another(rows: Rows, before: Int64) -> Mask:
    """Rows that start promptly after one of another lane that ended later than their own lane's last."""
    latest = np.maximum(_previous_end(rows), before)
    return (latest > before) & (rows.start - latest <= PROMPT_NS)


def _usual_gaps(rows: Rows, measured: Int64, queued: Mask) -> Int64:
    """The gap that a stream itself leaves before each row: the mean of its queued rows' up to OWN_GAP_NS.

    Longer ones are waits.  By stream and kernel where it has enough such rows, else by stream, else of
    the whole device; none where there is no such row.
    """
    own = queued & (measured <= OWN_GAP_NS)
    kernel = rows.lane.astype(np.int64) * len(rows.names) + rows.name
    usual = np.full(len(rows), measured[own].mean() if own.any() else 0.0)
    for key in (rows.lane, kernel):
        _, of = np.unique(key, return_inverse=True)
        count = np.bincount(of[own], minlength=int(of.max()) + 1)
        total = np.bincount(of[own], measured[own], minlength=len(count))
        enough = count >= _FEW
        usual = np.where(enough[of], (total / np.maximum(count, 1))[of], usual)
    return np.asarray(np.rint(usual), np.int64)


def _host_waits(rank: RankRows, device: _Device, points: Points, inferred: Counter[str]) -> Found:
    """Calls that return when the device has ended something: (device row, point of the return, lag)."""
    found: Found = []
    _blocking_copies(rank, device, points, found, inferred)
    _synchronisations(rank, device, points, found, inferred)
    _step_ends(rank, device, points, found, inferred)
    _programs(rank, device, points, found, inferred)
    return found


def _blocking_copies(
    rank: RankRows, device: _Device, points: Points, found: Found, inferred: Counter[str]
) -> None:
    """Copies that have ended when their call returns."""
    rows = np.flatnonzero(device.rows.copy & (device.launch >= 0))
    launch = device.launch[rows]
    returned = rank.launches.end[launch]
    blocking = (returned >= device.rows.end[rows]) & (returned > device.issue[rows])
    rows, launch, returned = rows[blocking], launch[blocking], returned[blocking]
    if len(rows):
        back = points.add(tracks(rank.launches)[launch], returned, np.zeros(len(rows), np.int64))
        found.append((rows, back, returned - device.rows.end[rows]))
        inferred["copies whose call returns behind their end"] += len(rows)


def _synchronisations(
    rank: RankRows, device: _Device, points: Points, found: Found, inferred: Counter[str]
) -> None:
    """Synchronise calls: of a device all streams, of a stream or event the last row to end in the call."""
    calls, rows = rank.syncs, device.rows
    if not len(calls):
        return
    thread = tracks(calls)
    points.add(thread, calls.start)
    own = calls.end - calls.start
    awaited: list[tuple[int, int, int]] = []
    whole = calls.named("DeviceSynchronize", "Context Sync", "CtxSynchronize")
    order = np.argsort(rows.end, kind="stable")
    for i, (begin, end) in enumerate(zip(calls.start.tolist(), calls.end.tolist(), strict=True)):
        stop = int(np.searchsorted(rows.end[order], end + TOLERANCE_NS, side="right"))
        since = int(np.searchsorted(rows.end[order], begin, side="right"))
        during = order[since:stop]
        during = during[(device.issue[during] <= begin) & (device.issue[during] < end)]
        if not len(during):
            continue
        last = int(during[-1])
        lag = max(end - int(rows.end[last]), 0)
        own[i] = 0
        awaited.append((last, i, lag))
        if whole[i]:
            for lane in np.unique(rows.lane).tolist():
                given = np.flatnonzero((rows.lane == lane) & (device.issue <= begin))
                if len(given) and int(given[-1]) != last and rows.end[given[-1]] + lag <= end:
                    awaited.append((int(given[-1]), i, lag))
    back = points.add(thread, calls.end, own)
    if awaited:
        source, call, lag_ns = (np.array(column, np.int64) for column in zip(*awaited, strict=True))
        found.append((source, back[call], lag_ns))
        inferred["synchronise calls, by the row that ended last in them"] += len(set(call.tolist()))


def _step_ends(rank: RankRows, device: _Device, points: Points, found: Found, inferred: Counter[str]) -> None:
    """Step annotations that all end promptly after the device has: an untraced wait for it."""
    rows, notes = device.rows, rank.annotation & rank.host.named("ProfilerStep#")
    at = np.flatnonzero(notes)
    if not len(at) or not len(rows):
        return
    ends, thread = rank.host.end[at], tracks(rank.host)[at]
    launches = np.concatenate([rank.launches.end, rank.syncs.end])
    awaited = []
    for i, end in enumerate(ends.tolist()):
        given = device.issue < end
        drained = int(rows.end[given].max(initial=0))
        called = int(launches[launches <= end].max(initial=0))
        if not given.any() or not called < drained <= end <= drained + 2 * RESUMED_NS // 100:
            return
        for lane in np.unique(rows.lane[given]).tolist():
            last = int(np.flatnonzero(given & (rows.lane == lane))[-1])
            awaited.append((last, i, end - drained))
    back = points.add(thread, ends, np.zeros(len(ends), np.int64))
    source, call, lag = (np.array(column, np.int64) for column in zip(*awaited, strict=True))
    found.append((source, back[call], lag))
    inferred["waits for the device at steps' ends"] += len(ends)


def _programs(rank: RankRows, device: _Device, points: Points, found: Found, inferred: Counter[str]) -> None:
    """Pauses of the host that end promptly after a whole program has."""
    if device.fitted.any() or not (device.launch >= 0).any():
        return
    begins = np.sort(device.rows.start[device.launch >= 0])
    by_end = np.argsort(device.rows.end, kind="stable")
    last = by_end[np.searchsorted(device.rows.end[by_end], np.append(begins[1:], 1 << 61)) - 1]
    idle = pauses(rank)
    for row in np.unique(last).tolist():
        end = int(device.rows.end[row])
        hit = np.flatnonzero((idle.start < end) & (idle.end >= end) & (idle.end - end <= RESUMED_NS))
        if len(hit):
            back = points.add(idle.thread[hit], idle.end[hit], np.zeros(len(hit), np.int64))
            points.add(idle.thread[hit], idle.start[hit])
            found.append((np.full(len(hit), row), back, idle.end[hit] - end))
            inferred["pauses of the host for a program's end"] += len(hit)


def _turns(rank: RankRows, points: Points, waits: Found, inferred: Counter[str]) -> Found:
    """Threads that go on when another pauses: (point of the pause, point of going on, lag)."""
    if len({*tracks(rank.launches).tolist(), *tracks(rank.syncs).tolist()}) < 2:
        return []
    idle = pauses(rank)
    _, time, own = points.arrays()
    explained = np.flatnonzero(np.isin(idle.end, time[own >= 0])) if waits else np.empty(0, np.int64)
    released, resumed = turns(idle, explained)
    return add_turns(idle, released, resumed, points, inferred)


def _work_nodes(rank: RankRows, device: _Device, lanes: int) -> tuple[Nodes, Int64, Int64]:
    """Device rows as nodes, collectives as two; the node in which each row begins, and ends."""
    rows = device.rows
    called = rows.row >= 0
    row = np.repeat(np.arange(len(rows)), np.where(called, 2, 1))
    begins = np.diff(row, prepend=-1) != 0
    half = called[row]
    start_of = np.flatnonzero(begins)
    end_of = start_of + called
    arrival, transfer = half & begins, half & ~begins
    kind = np.where(rows.copy[row], n.COPY, n.COMPUTE)
    kind = np.where(arrival, n.ARRIVAL, np.where(transfer, n.TRANSFER, kind))
    made = n.blank(
        len(row),
        rank=rank.rank,
        lane=rows.lane[row] + lanes,
        kind=kind,
        start=rows.start[row],
        end=np.where(arrival, rows.start[row], rows.end[row]),
        gap=np.where(begins, device.gap[row], 0),
        dur=np.where(arrival, 0, rows.end[row] - rows.start[row]),
        call=rows.row[row],
        step=rows.step[row],
        name=rows.name[row],
        category=rows.category[row],
    )
    return made, start_of, end_of


def _device_waits(device: _Device, inferred: Counter[str]) -> Found:
    """Device rows that wait for rows of other lanes."""
    rows = device.rows
    if not len(rows):
        return []
    if not device.fitted.any():
        return _chained(device, inferred)
    before = np.where(device.first, -(1 << 60), np.roll(rows.end, 1))
    bound = np.maximum(device.issue + device.latency, before + device.gap)
    bound = np.where(device.fitted, bound, rows.start)
    issued = Issued(rows.lane.astype(np.int64), device.issue, bound, rows.start, rows.end, rows.row >= 0)
    waits = between_streams(issued, device.doubt, _grain(rows))
    inferred["waits of a stream for another's row"] += int(waits.seen.sum())
    inferred["collectives taken to wait for the kernel launched before them"] += int((~waits.seen).sum())
    return [(waits.source, waits.target, waits.lag)]


def _grain(rows: Rows) -> int:
    """How exact the device's times are: 1 µs where all are whole µs, else 1 ns."""
    origin = int(rows.start[0])
    whole = not ((rows.start - origin) % _US).any() and not ((rows.end - origin) % _US).any()
    return _US if whole else 1


def _chained(device: _Device, inferred: Counter[str]) -> Found:
    """Rows without launches of their own follow what ended last before them, whichever lane it ran in."""
    rows = device.rows
    by_end = np.argsort(rows.end, kind="stable")
    place = np.searchsorted(rows.end[by_end], rows.start, side="right") - 1
    source = by_end[np.maximum(place, 0)]
    queued = (device.launch < 0) | (_previous_end(rows) > device.issue)
    other = (place >= 0) & (rows.lane[source] != rows.lane) & queued
    target = np.flatnonzero(other)
    inferred["rows that follow another lane's last"] += len(target)
    # the lane's own order holds, without the gap, which was waiting for the other lane
    device.gap[target] = np.minimum(device.gap[target], 0)
    return [(source[target], target, rows.start[target] - rows.end[source[target]])]
