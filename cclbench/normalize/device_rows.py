# SPDX-License-Identifier: Apache-2.0
"""Rows of a rank's accelerator: extents of steps, and the share of kernels that each step launched."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from cclbench.ground import intervals
from cclbench.ground.intervals import Index, Int64, Mask

DEVICE_WORK: Final = ("kernel", "copy", "memset", "graph")
"""Kinds of rows in which an accelerator works."""
_LEAST, _MOST = np.iinfo(np.int64).min, np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True, eq=False)
class DeviceRows:
    """The rows of a rank's accelerator, arrays of shape (rows,): `step` indexes `Marks`, −1 for none."""

    step: Index
    starts: Int64
    ends: Int64
    kernel: Mask


def step_extents(rows: DeviceRows, steps: int) -> tuple[dict[int, int], dict[int, int]]:
    """Begin of the first kernel and end of the last row, ns, by step index below `steps`."""
    opening, ending = np.full(steps, _MOST), np.full(steps, _LEAST)
    launched = rows.step >= 0
    kernel = launched & rows.kernel
    np.minimum.at(opening, rows.step[kernel], rows.starts[kernel])
    np.maximum.at(ending, rows.step[launched], rows.ends[launched])
    first, last = np.flatnonzero(opening < _MOST), np.flatnonzero(ending > _LEAST)
    return (
        dict(zip(first.tolist(), opening[first].tolist(), strict=True)),
        dict(zip(last.tolist(), ending[last].tolist(), strict=True)),
    )


def own_shares(rows: DeviceRows, starts: Int64, ends: Int64, window: Index) -> list[float | None]:
    """Share of the kernel time in each window that its own step launched; None without kernels.

    `window` is the window index of each step, −1 for none.
    """
    of_step = np.where(rows.step >= 0, window[rows.step], -1)
    is_own = rows.kernel & (of_step >= 0)
    at = of_step[is_own]
    by_own = intervals.union(
        np.maximum(rows.starts[is_own], starts[at]), np.minimum(rows.ends[is_own], ends[at])
    )
    by_any = intervals.union(rows.starts[rows.kernel], rows.ends[rows.kernel])
    parts, totals = (intervals.within(kernels, starts, ends).tolist() for kernels in (by_own, by_any))
    return [part / total if total else None for part, total in zip(parts, totals, strict=True)]
