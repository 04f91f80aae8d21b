# SPDX-License-Identifier: Apache-2.0
"""A rank's device rows with their launches, and fitted latencies and gaps.

XLA's asynchronous transfers are issued by one op (`-start`) and awaited by another (`-done`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cclbench.ground.intervals import Int64, Mask, begins
from cclbench.replay.tables import GraphInput, RankRows, join_rows
from cclbench.replay.waits import TOLERANCE_NS

OWN_GAP_NS: Final = 10_000
"""Largest gap between successive rows on a busy stream; 1 to 5 µs are usual."""
_LONG_CALL_NS: Final = 100_000
_FEW: Final = 5
_FEWEST: Final = 3
_US: Final = 1_000
_LONG_AGO: Final = -(1 << 60)
_WHOLE_PROGRAMS: Final = 0.5
"""With fewer launches per row, launches are of whole programs."""


@dataclass(frozen=True, slots=True, eq=False)
class LaunchPairs:
    """A device's rows, including those that issue and await transfers; and transfers, shape (pairs,).

    `issue`, `transfer`, `wait` are row indices. Each transfer has its own lane, since their order is
    arbitrary. A wait is a point at its end; `waited`: its duration, ns.
    """

    rows: RankRows
    issue: Int64
    transfer: Int64
    wait: Int64
    waited: Int64

    def in_lane_order(self) -> LaunchPairs:
        """The same with rows ordered by (lane, start)."""
        order = np.lexsort((self.rows.end, self.rows.start, self.rows.lane))
        place = np.argsort(order)
        issue, transfer, wait = (place[column] for column in (self.issue, self.transfer, self.wait))
        return LaunchPairs(self.rows.take_rows(order), issue, transfer, wait, self.waited)


def launch_pairs(rank: GraphInput) -> LaunchPairs:
    """The rank's work rows, with the rows that issue and await transfers.

    A transfer has the name and start of its issue and ends with its wait; both are on one lane, the transfer
    is on another.
    """
    nothing = np.empty(0, np.int64)
    if not len(rank.marks):
        return LaunchPairs(rank.work, nothing, nothing, nothing, nothing)
    both = join_rows([rank.work, rank.marks])
    work, marks = np.arange(len(rank.work)), np.arange(len(rank.work), len(both))
    issue = _match_word_and_time(marks, work, both.name.astype(np.int64), both.start)
    transfer, issue = work[issue >= 0], issue[issue >= 0]
    lane = both.lane.astype(np.int64)
    wait_lane = lane.copy()
    wait_lane[transfer] = lane[issue]
    wait = _match_word_and_time(marks, transfer, wait_lane, both.end)
    valid = (wait >= 0) & (lane[transfer] != lane[issue]) & (wait != issue)
    issue, transfer, wait = issue[valid], transfer[valid], wait[valid]
    lane[transfer] = len(both.lanes) + np.arange(len(transfer))
    start = both.start.copy()
    start[wait] = both.end[wait]
    combined = replace(
        both,
        start=start,
        lane=lane.astype(np.int32),
        lanes=(*both.lanes, *(both.lanes[column] for column in both.lane[transfer].tolist())),
    )
    used = np.unique(np.concatenate([work, issue, wait]))
    waited = (both.end - both.start)[wait]
    issue, transfer, wait = (np.searchsorted(used, column) for column in (issue, transfer, wait))
    return LaunchPairs(combined.take_rows(used), issue, transfer, wait, waited)


def _match_word_and_time(candidates: Int64, rows: Int64, word: Int64, time: Int64) -> Int64:
    """For each of `rows` the candidate of the same word and time, −1 for none; shape of `rows`."""
    times, number = np.unique(time, return_inverse=True)
    code = word * len(times) + number
    at = pc.index_in(pa.array(code[rows]), pa.array(code[candidates])).fill_null(-1).to_numpy()
    return np.asarray(np.append(candidates, -1)[at], np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class Device:
    """The device's rows ordered by (lane, start), with their launches; arrays of shape (rows,)."""

    rows: RankRows
    launch: Int64
    """Index of the launch, −1 for none."""
    issue: Int64
    first: Mask
    gap: Int64
    latency: Int64
    batch: Int64
    """Launch of the row's graph or program; −1 for a row with its own launch."""
    fitted: Mask
    """Whether latency and gap are fitted rather than measured."""
    pairs: LaunchPairs
    submitted: Int64
    """When each launch submits its work to the device, ns, shape (launches,)."""
    delay: Int64
    """Unexplained part of latency and gap, ns."""
    doubt: int
    """Tolerance on a row's start after latency and gap, within which it waited for nothing, ns."""


def device_of(rank: GraphInput) -> Device:
    """The rank's device, with fitted latencies and gaps."""
    pairs = launch_pairs(rank).in_lane_order()
    rows = pairs.rows
    launch = _launch_of(rows, rank.launches)
    first = begins(rows.lane)
    previous_ends = np.where(first, rows.start, np.roll(rows.end, 1))
    measured = rows.start - previous_ends
    measured[pairs.wait] -= pairs.waited  # in its lane the issue is before it
    launched, issue = launch >= 0, rows.start.copy()
    submitted = _submission_times(rank.launches, rows, launch)
    issue[launched] = submitted[launch[launched]]
    of_graph = _is_graph_row(launch, rank.launches)
    own_launch = launched & ~of_graph
    each = int(own_launch.sum()) >= _WHOLE_PROGRAMS * int((~of_graph).sum())
    batch = np.where(of_graph | (not each), launch, -1)
    launch = np.where(batch >= 0, _first_rows(rows, batch), launch)
    fitted = (launch >= 0) & (batch < 0)
    latency, gap = np.where(launch >= 0, rows.start - issue, 0), measured.copy()
    usual_latency, doubt = _launch_latency(rows, issue, fitted) if fitted.any() else (None, TOLERANCE_NS)
    latency, gap = _head_latency_and_gap(rows, (launch >= 0) & (batch >= 0), latency, gap, usual_latency)
    if usual_latency is not None:
        latency = np.where(fitted, usual_latency, latency)
        queued = fitted & ~first & (issue + usual_latency <= previous_ends) & (measured >= 0)
        queued &= previous_end(rows) <= previous_ends  # otherwise it may have waited for another lane
        gap = np.where(fitted & ~first & (measured >= 0), _usual_gaps(rows, measured, queued), gap)
        short_gaps = queued & (measured <= OWN_GAP_NS)
        doubt = min(max(doubt, _ninth_decile(measured[short_gaps] - gap[short_gaps])), TOLERANCE_NS)
    delay = np.zeros_like(gap)
    return Device(rows, launch, issue, first, gap, latency, batch, fitted, pairs, submitted, delay, doubt)


def _submission_times(launches: RankRows, rows: RankRows, launch: Int64) -> Int64:
    """When each launch submits its work to the device, ns, shape (launches,).

    A long call whose work does not run before it returns submits at its end: it loads code, or waits for a
    place in the queue or a lock. Others submit at their start.
    """
    first = np.full(len(launches) + 1, np.iinfo(np.int64).max)
    np.minimum.at(first, launch, rows.start)
    late = (launches.end - launches.start >= _LONG_CALL_NS) & (first[:-1] >= launches.end)
    late &= first[:-1] < np.iinfo(np.int64).max
    return np.where(late, launches.end, launches.start)


def _is_graph_row(launch: Int64, launches: RankRows) -> Mask:
    """Rows of CUDA and HIP graphs, and of other launches with several rows; shape of `launch`.

    The profiler may have kept only one row of a graph.
    """
    _, launch_code, count = np.unique(launch, return_inverse=True, return_counts=True)
    graph = np.append(launches.rows_named("GraphLaunch"), False)[launch]
    return np.asarray((launch >= 0) & (graph | (count[launch_code] > 1)))


def _launch_of(rows: RankRows, launches: RankRows) -> Int64:
    """Launch of each row: the earliest with its correlation, −1 for none."""
    # launches are ordered by start: the first match is the earliest
    index = pc.index_in(pa.array(rows.correlation), pa.array(launches.correlation))
    launch = index.cast(pa.int64()).fill_null(-1).to_numpy()
    launch_starts = np.append(launches.start, 0)[launch]
    return np.where((launch >= 0) & (rows.correlation >= 0) & (launch_starts <= rows.start), launch, -1)


def _first_rows(rows: RankRows, batch: Int64) -> Int64:
    """Launch of the first row of each graph or program, −1 for other rows."""
    order = np.lexsort((rows.start, batch))
    heads = order[np.unique(batch[order], return_index=True)[1]]
    first_launch = np.full(len(rows), -1, np.int64)
    first_launch[heads] = batch[heads]
    return first_launch


def _head_latency_and_gap(
    rows: RankRows, heads: Mask, latency: Int64, gap: Int64, usual: int | None
) -> tuple[Int64, Int64]:
    """Latency and gap of the first rows of graphs and programs: one that queued behind earlier work has the
    smallest observed latency, at most the usual one of other launches; others have their own, and no gap."""
    if not heads.any():
        return latency, gap
    queued = previous_end(rows) > rows.start - latency
    least = int(latency[heads].min())
    if usual is not None:
        least = min(least, usual)
    return np.where(heads & queued, least, latency), np.where(heads & ~queued, np.minimum(gap, 0), gap)


def previous_end(rows: RankRows) -> Int64:
    """Latest end before each row's start, on any lane; `_LONG_AGO` for none."""
    ends = np.sort(rows.end)
    place = np.searchsorted(ends, rows.start, side="right") - 1
    return np.where(place >= 0, np.append(ends, 0)[place], _LONG_AGO)


def _launch_latency(rows: RankRows, issue: Int64, fitted: Mask) -> tuple[int, int]:
    """Median launch latency on an idle device, and its spread, ns.

    Without such rows the smallest latency, and the clock tolerance.
    """
    order = np.argsort(issue, kind="stable")
    order = order[fitted[order]]
    done = np.maximum.accumulate(np.append(np.iinfo(np.int64).min, rows.end[order]))[:-1]
    latency = (rows.start - issue)[order]
    idle = latency[done <= issue[order]]
    if len(idle) < _FEWEST:
        return int(latency.min()), TOLERANCE_NS
    median_latency = int(np.median(idle))
    return median_latency, _ninth_decile(idle - median_latency)


def _ninth_decile(errors: Int64) -> int:
    """90 % quantile of the absolute errors."""
    return int(np.quantile(abs(errors), 0.9)) if len(errors) else 0


def _usual_gaps(rows: RankRows, measured: Int64, queued: Mask) -> Int64:
    """Usual gap of a stream before each row: mean of the gaps of queued rows, up to OWN_GAP_NS.

    Longer gaps are waits. By stream, whether another stream is busy, and kernel, where there are enough rows
    (a device that serves a single stream may continue at once); else by the first two, by stream, or over the
    device; 0 without such rows.
    """
    short_gaps = queued & (measured <= OWN_GAP_NS)
    has_company = _has_company(rows, rows.start - measured)
    stream = rows.lane.astype(np.int64) * 2 + has_company
    kernel = stream * len(rows.names) + rows.name
    gaps = np.full(len(rows), measured[short_gaps].mean() if short_gaps.any() else 0.0)
    for key in (rows.lane, stream, kernel):
        _, code = np.unique(key, return_inverse=True)
        count = np.bincount(code[short_gaps], minlength=int(code.max()) + 1)
        total = np.bincount(code[short_gaps], measured[short_gaps], minlength=len(count))
        enough = count >= _FEW
        gaps = np.where(enough[code], (total / np.maximum(count, 1))[code], gaps)
    return np.asarray(np.rint(gaps), np.int64)


def _has_company(rows: RankRows, at: Int64) -> Mask:
    """Whether another lane's row runs at each time."""
    started = np.searchsorted(np.sort(rows.start), at, side="left")
    finished = np.searchsorted(np.sort(rows.end), at, side="right")
    return np.asarray(started > finished)


def clock_grain_ns(rows: RankRows) -> int:
    """Resolution of the device's times: 1 µs where all are whole µs, else 1 ns."""
    origin = int(rows.start[0])
    is_whole_us = not ((rows.start - origin) % _US).any() and not ((rows.end - origin) % _US).any()
    return _US if is_whole_us else 1
