# SPDX-License-Identifier: Apache-2.0
"""Kernels that wait for a place on the device: another stream's kernel fills it until its last blocks run."""

from __future__ import annotations

from typing import Final

import numpy as np

from cclbench.intervals import Int64, Mask
from cclbench.replay.waits import PROMPT_NS, TOLERANCE_NS, Issued

_TAIL: Final = 0.1
"""Share of a kernel in which its last blocks run and leave room for another's first."""
_LOOK_AHEAD: Final = 8


def held_up(rows: Issued, fills: Mask, late: Mask) -> tuple[Int64, Int64, Int64]:
    """Rows (source) that held others (target) up, and how long after their ends those began, a negative lag.

    A kernel that starts `late` for no other reason, in the last tenth of a kernel of another stream that was
    running when it was ready, had to wait for its last blocks.  `fills` are the kernels that can fill the
    device, with more blocks than it has processors: collectives have few, copies none.
    """
    target = np.flatnonzero(late)
    order = np.flatnonzero(fills)
    order = order[np.argsort(rows.end[order], kind="stable")]
    place = np.searchsorted(rows.end[order], rows.start[target], side="right")
    found = np.full(len(target), -1, np.int64)
    for ahead in range(_LOOK_AHEAD if len(order) else 0):
        at = place + ahead
        candidate = order[np.minimum(at, len(order) - 1)]
        left = rows.end[candidate] - rows.start[target]
        lasted = rows.end[candidate] - rows.start[candidate]
        fits = (found < 0) & (at < len(order)) & (rows.lane[candidate] != rows.lane[target])
        fits &= rows.start[candidate] <= rows.bound[target] + TOLERANCE_NS
        fits &= left <= np.maximum(lasted * _TAIL, np.minimum(PROMPT_NS, lasted))
        found = np.where(fits, candidate, found)
    source, target = found[found >= 0], target[found >= 0]
    return source, target, rows.start[target] - rows.end[source]
