# SPDX-License-Identifier: Apache-2.0
"""A rank's device rows with their launches, and what is fitted from them: latencies and gaps.

XLA's asynchronous transfers are issued by one op of the core (`-start`) and awaited by another (`-done`).
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
"""From one row's end to the next one's begin on a stream that has more to do: 1 to 5 µs are usual."""
_LONG_CALL_NS: Final = 100_000
_FEW: Final = 5
_FEWEST: Final = 3
_US: Final = 1_000
_LONG_AGO: Final = -(1 << 60)
_WHOLE_PROGRAMS: Final = 0.5
"""Fewer launches a row than this: whole programs are launched, of which not every row is told."""


@dataclass(frozen=True, slots=True, eq=False)
class LaunchPairs:
    """A device's rows, those that issue and await transfers included; and the transfers, shape (pairs,).

    `issue`, `transfer`, `wait` are rows.  A transfer has a lane of its own, since they come and go in any
    order.  A wait is the instant at which it is over; `waited` is how long it was, ns.
    """

    rows: RankRows
    issue: Int64
    transfer: Int64
    wait: Int64
    waited: Int64

    def in_lane_order(self) -> LaunchPairs:
        """The same with rows in order of (lane, start)."""
        order = np.lexsort((self.rows.end, self.rows.start, self.rows.lane))
        place = np.argsort(order)
        issue, transfer, wait = (place[of] for of in (self.issue, self.transfer, self.wait))
        return LaunchPairs(self.rows.take_rows(order), issue, transfer, wait, self.waited)


def launch_pairs(rank: GraphInput) -> LaunchPairs:
    """The rank's rows of work, with what issues and awaits its transfers.

    A transfer has the name and the begin of what issued it, and ends with what awaits it; both are rows
    of one lane, and it is of another.
    """
    nothing = np.empty(0, np.int64)
    if not len(rank.marks):
        return LaunchPairs(rank.work, nothing, nothing, nothing, nothing)
    both = join_rows([rank.work, rank.marks])
    work, marks = np.arange(len(rank.work)), np.arange(len(rank.work), len(both))
    issue = _match_word_and_time(marks, work, both.name.astype(np.int64), both.start)
    transfer, issue = work[issue >= 0], issue[issue >= 0]
    lane = both.lane.astype(np.int64)
    wanted = lane.copy()
    wanted[transfer] = lane[issue]
    wait = _match_word_and_time(marks, transfer, wanted, both.end)
    known = (wait >= 0) & (lane[transfer] != lane[issue]) & (wait != issue)
    issue, transfer, wait = issue[known], transfer[known], wait[known]
    lane[transfer] = len(both.lanes) + np.arange(len(transfer))
    start = both.start.copy()
    start[wait] = both.end[wait]
    whole = replace(
        both,
        start=start,
        lane=lane.astype(np.int32),
        lanes=(*both.lanes, *(both.lanes[of] for of in both.lane[transfer].tolist())),
    )
    kept = np.unique(np.concatenate([work, issue, wait]))
    waited = (both.end - both.start)[wait]
    issue, transfer, wait = (np.searchsorted(kept, of) for of in (issue, transfer, wait))
    return LaunchPairs(whole.take_rows(kept), issue, transfer, wait, waited)


def _match_word_and_time(known: Int64, wanted: Int64, word: Int64, time: Int64) -> Int64:
    """For each wanted row the known one of the same word and time, −1 for none; shape of `wanted`."""
    times, number = np.unique(time, return_inverse=True)
    code = word * len(times) + number
    at = pc.index_in(pa.array(code[wanted]), pa.array(code[known])).fill_null(-1).to_numpy()
    return np.asarray(np.append(known, -1)[at], np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class Device:
    """The device's rows in order of (lane, start), with their launches; arrays of shape (rows,)."""

    rows: RankRows
    launch: Int64
    """The row of the launch, −1 for none."""
    issue: Int64
    first: Mask
    gap: Int64
    latency: Int64
    batch: Int64
    """The launch of the graph or program that the row is part of; −1 for a row with a launch of its own."""
    fitted: Mask
    """Whether latency and gap are fitted, not this row's own."""
    pairs: LaunchPairs
    submitted: Int64
    """When each launch gives its work to the device, ns, shape (launches,)."""
    delay: Int64
    """How much of latency and gap nothing in the trace explains, ns."""
    doubt: int
    """How much later than latency and gap allow a row may start without having waited for another, ns."""


def device_of(rank: GraphInput) -> Device:
    """The rank's device, what is fitted included."""
    pairs = launch_pairs(rank).in_lane_order()
    rows = pairs.rows
    launch = _launch_of(rows, rank.launches)
    first = begins(rows.lane)
    before = np.where(first, rows.start, np.roll(rows.end, 1))
    measured = rows.start - before
    measured[pairs.wait] -= pairs.waited  # in its lane the issue is before it
    launched, issue = launch >= 0, rows.start.copy()
    submitted = _submission_times(rank.launches, rows, launch)
    issue[launched] = submitted[launch[launched]]
    of_graph = _of_graphs(launch, rank.launches)
    own_launch = launched & ~of_graph
    each = int(own_launch.sum()) >= _WHOLE_PROGRAMS * int((~of_graph).sum())
    batch = np.where(of_graph | (not each), launch, -1)
    launch = np.where(batch >= 0, _first_rows(rows, batch), launch)
    fitted = (launch >= 0) & (batch < 0)
    latency, gap = np.where(launch >= 0, rows.start - issue, 0), measured.copy()
    usual, doubt = _launch_latency(rows, issue, fitted) if fitted.any() else (None, TOLERANCE_NS)
    latency, gap = _of_programs(rows, (launch >= 0) & (batch >= 0), latency, gap, usual)
    if usual is not None:
        latency = np.where(fitted, usual, latency)
        queued = fitted & ~first & (issue + usual <= before) & (measured >= 0)
        queued &= previous_end(rows) <= before  # else it may have waited for another lane's row
        gap = np.where(fitted & ~first & (measured >= 0), _usual_gaps(rows, measured, queued), gap)
        own = queued & (measured <= OWN_GAP_NS)
        doubt = min(max(doubt, _ninth_decile(measured[own] - gap[own])), TOLERANCE_NS)
    delay = np.zeros_like(gap)
    return Device(rows, launch, issue, first, gap, latency, batch, fitted, pairs, submitted, delay, doubt)


def _submission_times(launches: RankRows, rows: RankRows, launch: Int64) -> Int64:
    """When each launch gives its work to the device, ns, shape (launches,).

    A call that takes long, and of which nothing runs before it returns, does so at its end: it loads code,
    waits for a place in the queue or for a lock.  Any other does at its begin.
    """
    first = np.full(len(launches) + 1, np.iinfo(np.int64).max)
    np.minimum.at(first, launch, rows.start)
    late = (launches.end - launches.start >= _LONG_CALL_NS) & (first[:-1] >= launches.end)
    late &= first[:-1] < np.iinfo(np.int64).max
    return np.where(late, launches.end, launches.start)


def _of_graphs(launch: Int64, launches: RankRows) -> Mask:
    """Rows of CUDA and HIP graphs, and of other launches that gave several rows; shape of `launch`.

    Of a graph one row may be all that the profiler kept.
    """
    _, of, count = np.unique(launch, return_inverse=True, return_counts=True)
    graph = np.append(launches.rows_named("GraphLaunch"), False)[launch]
    return np.asarray((launch >= 0) & (graph | (count[of] > 1)))


def _launch_of(rows: RankRows, launches: RankRows) -> Int64:
    """The launch of each row: the earliest with its correlation, −1 for none."""
    # launches are in order of start, of several the first is found
    found = pc.index_in(pa.array(rows.correlation), pa.array(launches.correlation))
    launch = found.cast(pa.int64()).fill_null(-1).to_numpy()
    begun = np.append(launches.start, 0)[launch]
    return np.where((launch >= 0) & (rows.correlation >= 0) & (begun <= rows.start), launch, -1)


def _first_rows(rows: RankRows, batch: Int64) -> Int64:
    """Launches of graphs and programs belong to the first row of each."""
    order = np.lexsort((rows.start, batch))
    heads = order[np.unique(batch[order], return_index=True)[1]]
    found = np.full(len(rows), -1, np.int64)
    found[heads] = batch[heads]
    return found


def _of_programs(
    rows: RankRows, heads: Mask, latency: Int64, gap: Int64, usual: int | None
) -> tuple[Int64, Int64]:
    """Latency and gap of the first rows of graphs and programs: one that queued behind earlier work has the
    least latency seen of any, at most the usual one of other launches; one that did not, has its own, and no
    gap."""
    if not heads.any():
        return latency, gap
    queued = previous_end(rows) > rows.start - latency
    least = int(latency[heads].min())
    if usual is not None:
        least = min(least, usual)
    return np.where(heads & queued, least, latency), np.where(heads & ~queued, np.minimum(gap, 0), gap)


def previous_end(rows: RankRows) -> Int64:
    """When what ended last before each row's start, on any lane, ended; long ago where nothing did."""
    ends = np.sort(rows.end)
    place = np.searchsorted(ends, rows.start, side="right") - 1
    return np.where(place >= 0, np.append(ends, 0)[place], _LONG_AGO)


def _launch_latency(rows: RankRows, issue: Int64, fitted: Mask) -> tuple[int, int]:
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
    return usual, _ninth_decile(idle - usual)


def _ninth_decile(errors: Int64) -> int:
    """What nine in ten stay within."""
    return int(np.quantile(abs(errors), 0.9)) if len(errors) else 0


def _usual_gaps(rows: RankRows, measured: Int64, queued: Mask) -> Int64:
    """The gap that a stream itself leaves before each row: the mean of its queued rows' up to OWN_GAP_NS.

    Longer ones are waits.  By stream, whether another stream's row was running, and kernel, where there are
    enough such rows: a device that serves one stream alone may go on at once.  Else by the first two, by
    stream, of the whole device; none where there is no such row.
    """
    own = queued & (measured <= OWN_GAP_NS)
    beside = _has_company(rows, rows.start - measured)
    stream = rows.lane.astype(np.int64) * 2 + beside
    kernel = stream * len(rows.names) + rows.name
    usual = np.full(len(rows), measured[own].mean() if own.any() else 0.0)
    for key in (rows.lane, stream, kernel):
        _, of = np.unique(key, return_inverse=True)
        count = np.bincount(of[own], minlength=int(of.max()) + 1)
        total = np.bincount(of[own], measured[own], minlength=len(count))
        enough = count >= _FEW
        usual = np.where(enough[of], (total / np.maximum(count, 1))[of], usual)
    return np.asarray(np.rint(usual), np.int64)


def _has_company(rows: RankRows, at: Int64) -> Mask:
    """Whether a row is running at each time, of a lane that has none then."""
    begun = np.searchsorted(np.sort(rows.start), at, side="left")
    ended = np.searchsorted(np.sort(rows.end), at, side="right")
    return np.asarray(begun > ended)


def clock_grain_ns(rows: RankRows) -> int:
    """How exact the device's times are: 1 µs where all are whole µs, else 1 ns."""
    origin = int(rows.start[0])
    whole = not ((rows.start - origin) % _US).any() and not ((rows.end - origin) % _US).any()
    return _US if whole else 1
