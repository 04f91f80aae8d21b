# SPDX-License-Identifier: Apache-2.0
"""Exposed copies and memsets by direction and kind of host memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cclbench.analyzers.view.columns import row_spans, word_codes
from cclbench.ground import intervals
from cclbench.ground.intervals import Intervals

if TYPE_CHECKING:
    from cclbench.analyzers.view.rank_view import RankView


def exposed_copies(rank: RankView) -> dict[str, Intervals]:
    """Times of copies and memsets without kernels, by label; empty where the CPU is the device.

    A label is the direction, with `pageable` or `pinned` where the profiler states the kind of host memory.
    """
    if rank.on_host:
        return {}
    pieces: dict[str, list[Intervals]] = {}
    columns = ("kind", "name", "copy_direction", "start_ns", "dur_ns")
    for batch in rank.tables.events(("copy", "memset"), columns):
        starts, ends = row_spans(batch)
        coded = [word_codes(batch, column) for column in ("kind", "name", "copy_direction")]
        distinct, key = np.unique(np.stack([number for number, _ in coded]), axis=1, return_inverse=True)
        for code, numbers in enumerate(distinct.T.tolist()):
            kind, name, direction = (words[n] for n, (_, words) in zip(numbers, coded, strict=True))
            of_label = key.ravel() == code
            label = _copy_label(kind, name or "", direction)
            pieces.setdefault(label, []).append(intervals.union(starts[of_label], ends[of_label]))
    kernels = intervals.join(rank.compute, rank.communication)
    return {
        label: intervals.subtract(intervals.join(*parts), kernels) for label, parts in sorted(pieces.items())
    }


def _copy_label(kind: str | None, name: str, direction: str | None) -> str:
    if kind == "memset":
        return "memset"
    memory = next((word for word in ("pageable", "pinned") if word in name.lower()), None)
    return " ".join(filter(None, (direction or "copy", memory)))
