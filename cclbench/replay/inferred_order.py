# SPDX-License-Identifier: Apache-2.0
"""Dependencies of device rows without their own launch, inferred from times."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Final

import numpy as np

from cclbench.ground import intervals
from cclbench.ground.intervals import Int64
from cclbench.replay.device import Device, previous_end
from cclbench.replay.host import Waits
from cclbench.replay.tables import RankRows
from cclbench.replay.waits import PROMPT_NS

_SAME_INSTANT: Final = 0.05
"""Largest overlap of two successive rows, as a share of the shorter one."""


def chain_rows(device: Device, inferred: Counter[str]) -> Waits:
    """Rows without their own launch follow the row that ended last before them, on any lane.

    They follow all rows of simultaneous calls, which have the same start and end.
    """
    rows = device.rows
    source = _ended_before(rows)
    queued = (device.launch < 0) | (previous_end(rows) > device.issue)
    other = (source >= 0) & (rows.lane[source] != rows.lane) & queued
    is_transfer = np.isin(np.arange(len(rows)), device.pairs.transfer)
    other &= ~is_transfer & ~is_transfer[source]
    target = np.flatnonzero(other)
    inferred["rows that follow another lane's last"] += len(target)
    # lane order holds without the gap, which was a wait for the other lane
    device.gap[target] = np.minimum(device.gap[target], 0)
    source, target = _with_simultaneous_rows(rows, source[target], target)
    return [(source, target, rows.start[target] - rows.end[source])]


def batch_rows(device: Device, inferred: Counter[str]) -> Waits:
    """Rows of launches with several rows, such as CUDA graphs, in streams where others have their own launch.

    The first follows the row that ended last on the device, if it starts promptly; each other one follows the
    last ended row of its launch, on any lane, else the first. The remaining gaps are the device's own.
    """
    rows, batch = device.rows, device.batch
    members = np.flatnonzero(batch >= 0)
    if not len(members):
        return []
    head = device.launch[members] >= 0
    apart = rows.take_rows(members)
    shift = _separating_shifts(apart, batch[members])
    among = _ended_before(replace(apart, start=apart.start + shift, end=apart.end + shift))
    among = np.where((among >= 0) & (batch[members][among] == batch[members]), members[among], -1)
    first_of = dict(zip(batch[members[head]].tolist(), members[head].tolist(), strict=True))
    firsts = np.array([first_of[launch] for launch in batch[members].tolist()], np.int64)
    ended_before = _ended_before(rows)[members]
    prompt = (ended_before >= 0) & (rows.start[members] - rows.end[ended_before] <= PROMPT_NS)
    prompt &= previous_end(rows)[members] > device.issue[members]
    source = np.where(head, np.where(prompt, ended_before, -1), np.where(among >= 0, among, firsts))
    same_lane = (source == members - 1) & (rows.lane[source] == rows.lane[members])
    chosen = (source >= 0) & ~same_lane
    source, target = source[chosen], members[chosen]
    device.gap[target] = np.minimum(device.gap[target], 0)
    inferred["rows of graphs that follow another lane's last"] += len(target)
    source, target = _with_simultaneous_rows(rows, source, target)
    return [(source, target, rows.start[target] - rows.end[source])]


def _separating_shifts(rows: RankRows, batch: Int64) -> Int64:
    """Shifts of rows so that different batches never overlap, ns, shape (rows,)."""
    _, batch_code = np.unique(batch, return_inverse=True)
    begin = np.full(int(batch_code.max()) + 1, np.iinfo(np.int64).max)
    end = np.full(len(begin), np.iinfo(np.int64).min)
    np.minimum.at(begin, batch_code, rows.start)
    np.maximum.at(end, batch_code, rows.end)
    return np.asarray(
        (np.append(0, np.cumsum(end - begin + 2 * PROMPT_NS)[:-1]) - begin)[batch_code], np.int64
    )


def _ended_before(rows: RankRows) -> Int64:
    """The row that ended last before each row began, −1 for none; shape (rows,).

    Starts and ends may come from different clocks: a row that overlaps another by a small share of either
    follows it.
    """
    by_end = np.argsort(rows.end, kind="stable")
    ends, lasted = rows.end[by_end], rows.end - rows.start
    starts = rows.start[by_end]
    place = np.searchsorted(ends, rows.start + PROMPT_NS, side="right") - 1
    previous = np.full(len(rows), -1, np.int64)
    remaining = np.flatnonzero(place >= 0)
    while len(remaining):
        candidate = place[remaining]
        shorter = np.minimum(lasted[remaining], ends[candidate] - starts[candidate])
        accepted = ends[candidate] <= rows.start[remaining]
        accepted |= (ends[candidate] - rows.start[remaining] <= shorter * _SAME_INSTANT) & (
            starts[candidate] < rows.start[remaining]
        )
        previous[remaining[accepted]] = by_end[candidate[accepted]]
        remaining = remaining[~accepted]
        place[remaining] -= 1
        remaining = remaining[place[remaining] >= 0]
    return previous


def _with_simultaneous_rows(rows: RankRows, source: Int64, target: Int64) -> tuple[Int64, Int64]:
    """The pairs, and those with rows of other lanes that start and end with a source."""
    together = np.lexsort((rows.end, rows.start))
    is_new = intervals.begins(rows.start[together], rows.end[together]) | (rows.row[together] < 0)
    crowd = np.empty(len(rows), np.int64)
    crowd[together] = np.cumsum(is_new) - 1
    first, count = np.flatnonzero(is_new), np.diff(np.append(np.flatnonzero(is_new), len(rows)))
    crowd_of_source = crowd[source]
    pair_index = np.repeat(np.arange(len(source)), count[crowd_of_source])
    place = np.arange(len(pair_index)) - np.repeat(
        np.cumsum(count[crowd_of_source]) - count[crowd_of_source], count[crowd_of_source]
    )
    sources = together[first[crowd_of_source[pair_index]] + place]
    distinct = sources != target[pair_index]
    return sources[distinct], target[pair_index[distinct]]
