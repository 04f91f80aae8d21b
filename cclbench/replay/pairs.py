# SPDX-License-Identifier: Apache-2.0
"""XLA's asynchronous transfers: issued by one op of the core (`-start`), awaited by another (`-done`)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from cclbench.intervals import Int64
from cclbench.replay.tables import RankRows, Rows, joined


@dataclass(frozen=True, slots=True, eq=False)
class Pairs:
    """A device's rows, those that issue and await transfers included; and the transfers, shape (pairs,).

    `issue`, `transfer`, `wait` are rows.  A transfer has a lane of its own, since they come and go in any
    order.  A wait is the instant at which it is over; `waited` is how long it was, ns.
    """

    rows: Rows
    issue: Int64
    transfer: Int64
    wait: Int64
    waited: Int64

    def sorted(self) -> Pairs:
        """The same with rows in order of (lane, start)."""
        order = np.lexsort((self.rows.end, self.rows.start, self.rows.lane))
        place = np.argsort(order)
        issue, transfer, wait = (place[of] for of in (self.issue, self.transfer, self.wait))
        return Pairs(self.rows.at(order), issue, transfer, wait, self.waited)


def paired(rank: RankRows) -> Pairs:
    """The rank's rows of work, with what issues and awaits its transfers.

    A transfer has the name and the begin of what issued it, and ends with what awaits it; both are rows
    of one lane, and it is of another.
    """
    nothing = np.empty(0, np.int64)
    if not len(rank.marks):
        return Pairs(rank.work, nothing, nothing, nothing, nothing)
    both = joined([rank.work, rank.marks])
    work, marks = np.arange(len(rank.work)), np.arange(len(rank.work), len(both))
    issue = _same(marks, work, both.name.astype(np.int64), both.start)
    transfer, issue = work[issue >= 0], issue[issue >= 0]
    lane = both.lane.astype(np.int64)
    wanted = lane.copy()
    wanted[transfer] = lane[issue]
    wait = _same(marks, transfer, wanted, both.end)
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
    return Pairs(whole.at(kept), issue, transfer, wait, waited)


def _same(known: Int64, wanted: Int64, word: Int64, time: Int64) -> Int64:
    """For each wanted row the known one of the same word and time, −1 for none; shape of `wanted`."""
    times, number = np.unique(time, return_inverse=True)
    code = word * len(times) + number
    order = known[np.argsort(code[known], kind="stable")]
    at = np.minimum(np.searchsorted(code[order], code[wanted]), len(order) - 1)
    return np.where(code[order[at]] == code[wanted], order[at], -1)
