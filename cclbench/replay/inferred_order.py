# SPDX-License-Identifier: Apache-2.0
"""Device rows without launches of their own: which other row each follows, inferred from their times."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Final

import numpy as np

from cclbench.ground import intervals
from cclbench.ground.intervals import Int64
from cclbench.replay.device import Device, previous_end
from cclbench.replay.host import Found
from cclbench.replay.tables import RankRows
from cclbench.replay.waits import PROMPT_NS

_SAME_INSTANT: Final = 0.05
"""Share of two rows by which they may overlap where one follows the other."""


def chain_rows(device: Device, inferred: Counter[str]) -> Found:
    """Rows without launches of their own follow what ended last before them, whichever lane it ran in.

    Of calls that were made as one, with the same begin and end, they follow all.
    """
    rows = device.rows
    source = _ended_before(rows)
    queued = (device.launch < 0) | (previous_end(rows) > device.issue)
    other = (source >= 0) & (rows.lane[source] != rows.lane) & queued
    known = np.isin(np.arange(len(rows)), device.pairs.transfer)
    other &= ~known & ~known[source]
    target = np.flatnonzero(other)
    inferred["rows that follow another lane's last"] += len(target)
    # the lane's own order holds, without the gap, which was waiting for the other lane
    device.gap[target] = np.minimum(device.gap[target], 0)
    source, target = _made_as_one(rows, source[target], target)
    return [(source, target, rows.start[target] - rows.end[source])]


def batch_rows(device: Device, inferred: Counter[str]) -> Found:
    """Rows that a launch gave among others, as that of a CUDA graph does, in streams of which others have
    launches of their own.

    The first of them follows what ended last before it on the device, if it starts promptly then; each other
    one what ended last of its own launch's, on whichever lane, else the first.  The rest is the device's own
    gaps, which are kept: nobody told it anything in between.
    """
    rows, batch = device.rows, device.batch
    own = np.flatnonzero(batch >= 0)
    if not len(own):
        return []
    head = device.launch[own] >= 0
    apart = rows.take_rows(own)
    shift = _separating_shifts(apart, batch[own])
    among = _ended_before(replace(apart, start=apart.start + shift, end=apart.end + shift))
    among = np.where((among >= 0) & (batch[own][among] == batch[own]), own[among], -1)
    first_of = dict(zip(batch[own[head]].tolist(), own[head].tolist(), strict=True))
    firsts = np.array([first_of[launch] for launch in batch[own].tolist()], np.int64)
    before = _ended_before(rows)[own]
    prompt = (before >= 0) & (rows.start[own] - rows.end[before] <= PROMPT_NS)
    prompt &= previous_end(rows)[own] > device.issue[own]
    source = np.where(head, np.where(prompt, before, -1), np.where(among >= 0, among, firsts))
    inside = (source == own - 1) & (rows.lane[source] == rows.lane[own])
    chosen = (source >= 0) & ~inside
    source, target = source[chosen], own[chosen]
    device.gap[target] = np.minimum(device.gap[target], 0)
    inferred["rows of graphs that follow another lane's last"] += len(target)
    source, target = _made_as_one(rows, source, target)
    return [(source, target, rows.start[target] - rows.end[source])]


def _separating_shifts(rows: RankRows, batch: Int64) -> Int64:
    """By how much to move rows so that those of different batches never overlap, ns, shape (rows,)."""
    _, of = np.unique(batch, return_inverse=True)
    begin = np.full(int(of.max()) + 1, np.iinfo(np.int64).max)
    end = np.full(len(begin), np.iinfo(np.int64).min)
    np.minimum.at(begin, of, rows.start)
    np.maximum.at(end, of, rows.end)
    return np.asarray((np.append(0, np.cumsum(end - begin + 2 * PROMPT_NS)[:-1]) - begin)[of], np.int64)


def _ended_before(rows: RankRows) -> Int64:
    """What ended last before each row began, −1 for nothing; shape (rows,).

    Begins and ends may be taken by different clocks: a row that overlaps another by no more than a small
    share of either follows it.
    """
    by_end = np.argsort(rows.end, kind="stable")
    ends, lasted = rows.end[by_end], rows.end - rows.start
    begun = rows.start[by_end]
    place = np.searchsorted(ends, rows.start + PROMPT_NS, side="right") - 1
    found = np.full(len(rows), -1, np.int64)
    looked = np.flatnonzero(place >= 0)
    while len(looked):
        at = place[looked]
        shorter = np.minimum(lasted[looked], ends[at] - begun[at])
        fits = ends[at] <= rows.start[looked]
        fits |= (ends[at] - rows.start[looked] <= shorter * _SAME_INSTANT) & (begun[at] < rows.start[looked])
        found[looked[fits]] = by_end[at[fits]]
        looked = looked[~fits]
        place[looked] -= 1
        looked = looked[place[looked] >= 0]
    return found


def _made_as_one(rows: RankRows, source: Int64, target: Int64) -> tuple[Int64, Int64]:
    """The pairs, and those with rows of other lanes that begin and end as a source does."""
    together = np.lexsort((rows.end, rows.start))
    new = intervals.begins(rows.start[together], rows.end[together]) | (rows.row[together] < 0)
    crowd = np.empty(len(rows), np.int64)
    crowd[together] = np.cumsum(new) - 1
    first, count = np.flatnonzero(new), np.diff(np.append(np.flatnonzero(new), len(rows)))
    of = crowd[source]
    each = np.repeat(np.arange(len(source)), count[of])
    place = np.arange(len(each)) - np.repeat(np.cumsum(count[of]) - count[of], count[of])
    sources = together[first[of[each]] + place]
    apart = sources != target[each]
    return sources[apart], target[each[apart]]
