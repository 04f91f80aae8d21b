# SPDX-License-Identifier: Apache-2.0
"""Idle time of a rank whose device is its CPU, by cause."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from cclbench.analyzers.metric import NotApplicable
from cclbench.analyzers.view.columns import has_word, matching_rows, row_spans, word_codes
from cclbench.analyzers.view.host_gaps import causes_of
from cclbench.ground import intervals
from cclbench.ground.intervals import Intervals, Mask
from cclbench.normalize.cpu_host import RESUMED_NS, ThreadCalls, cpu_causes, divide_by_cause
from cclbench.normalize.operators import is_wrapper

if TYPE_CHECKING:
    from cclbench.analyzers.view.rank_view import RankView

_COLUMNS: Final = ("side", "track", "kind", "name", "category", "start_ns", "dur_ns")
_NO_TRANSFERS: Final = (
    "the trace has calls of the communication library but no transfers: waiting for them cannot be separated"
    " from other host time"
)


def cpu_gaps(rank: RankView) -> dict[str, Intervals]:
    """`time.idle` of a rank whose device is its CPU, by what the thread of its steps does.

    The causes, those of `normalize.cpu_host.CAUSES` and `unrecorded`, are disjoint.
    """
    thread = step_thread(rank)
    ranges: dict[str, list[Intervals]] = {cause: [] for cause in ("loader", "sync", "operators", "python")}
    empty = np.empty(0, np.int64)
    calls = [(empty, empty, empty)]
    names: dict[str, int] = {}
    for batch in rank.tables.events(("op", "annotation", "python"), _COLUMNS):
        on_thread = batch["track"].to_numpy() == thread
        starts, ends = row_spans(batch)
        name, words = word_codes(batch, "name")
        code = np.array([names.setdefault(word or "", len(names)) for word in words], np.int64)[name]
        is_op = has_word(batch, "kind", "op")
        library_free = is_op & ~_wrapping_rows(batch) & on_thread
        calls.append((starts[library_free], ends[library_free], code[library_free]))
        chosen = causes_of(batch) | {"sync": is_op & has_word(batch, "category", "communication")}
        for cause, rows in ranges.items():
            of_cause = chosen[cause] & on_thread
            rows.append(intervals.union(starts[of_cause], ends[of_cause]))
    by = {cause: intervals.join(*rows) for cause, rows in ranges.items()}
    if len(by["sync"]) and not len(rank.communication):
        raise NotApplicable(_NO_TRANSFERS)
    w = rank.windows
    idle = intervals.subtract(intervals.union(w.starts, w.ends), intervals.join(*rank.busy))
    woken = idle.starts[np.isin(idle.starts, rank.communication.ends)]
    by["sync"] = intervals.join(by["sync"], intervals.union(woken, woken + RESUMED_NS))
    causes = cpu_causes(
        ThreadCalls(*map(np.concatenate, zip(*calls, strict=True))),
        by,
        int(np.sort(w.starts)[1]) if len(w) > 1 else None,
    )
    return dict(divide_by_cause(idle, causes))


def step_thread(rank: RankView) -> int:
    """The thread whose annotations begin the windows; without these, the one that computes longest."""
    marks, computing = Counter[int](), Counter[int]()
    for batch in rank.tables.events(("op", "annotation"), _COLUMNS):
        track = batch["track"].to_numpy()
        begins = has_word(batch, "kind", "annotation") & np.isin(
            batch["start_ns"].to_numpy(), rank.windows.starts
        )
        marks.update(track[begins].tolist())
        works = has_word(batch, "kind", "op") & ~has_word(batch, "category", "communication")
        for thread in np.unique(track[works]).tolist():
            computing[thread] += int(batch["dur_ns"].to_numpy()[works & (track == thread)].sum())
    most = (marks or computing).most_common(1)
    return most[0][0] if most else -1


def _wrapping_rows(batch: pa.RecordBatch) -> Mask:
    """Mask of rows that wrap operators and do not compute themselves, shape (rows,)."""
    return matching_rows(batch, "name", is_wrapper)
