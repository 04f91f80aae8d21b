# SPDX-License-Identifier: Apache-2.0
"""Data loading: the device waiting for the input pipeline or a checkpoint."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cclbench.analyzers.metric import NotApplicable, Value, metric
from cclbench.analyzers.view.loading import loading_intervals
from cclbench.analyzers.view.rank_view import RankView
from cclbench.ground import intervals
from cclbench.ground.intervals import Int64


@metric(
    "data.stall",
    definition="Share of the time in which the host is in a loader or checkpoint annotation while the device"
    " is idle. It counts for the step whose annotation holds it, else for the next: input is loaded before"
    " its step's first kernel, in the window of the step before or before all windows. The time is the"
    " windows' and what of the loading lies outside of them.",
    formula="|S| / |W ∪ S|, S = loader annotations of the windows' steps \\ (C∪K∪M)",
    unit="1",
    better="lower",
    not_applicable="nothing in the trace is annotated as loading or checkpointing, or the CPU is the device",
    version=2,
    graphs="counted",
)
def stall(rank: RankView) -> Iterator[Value]:
    rank.needs_accelerator("it loads and computes, and one can't be told from the other")
    ranges = loading_intervals(rank)
    if not len(ranges.starts):
        raise NotApplicable("nothing in the trace is annotated as loading data or a checkpoint")
    stalled = intervals.subtract(ranges, intervals.join(*rank.busy))
    w = rank.windows
    window = _window_of_step(rank, stalled.starts)
    own = window >= 0
    lost = intervals.Intervals(stalled.starts[own], stalled.ends[own])
    whole = intervals.join(lost, intervals.union(w.starts, w.ends)).length
    if not whole:
        raise NotApplicable("there is no time in the window")
    yield Value(value=lost.length / whole, weight=whole)
    for place, step in enumerate(w.steps):
        here = window == place
        each = intervals.Intervals(stalled.starts[here], stalled.ends[here])
        time = intervals.join(each, intervals.union(w.starts[[place]], w.ends[[place]])).length
        if step is not None and time:
            yield Value(value=each.length / time, step=step)


def _window_of_step(rank: RankView, at: Int64) -> Int64:
    """The window of the annotated step that holds each instant, or else begins next; −1 for none.

    Without annotated steps the window that holds it; shape of `at`.
    """
    table = rank.tables.steps()
    marks = table.filter(pc.equal(table["source"].cast(pa.string()), "annotation")).sort_by("start_ns")
    if not len(marks) or rank.windows.policy == "trace":
        return rank.window_of(at)
    place = {step: number for number, step in enumerate(rank.windows.steps)}
    windows = np.array([*(place.get(step, -1) for step in marks["step"].to_pylist()), -1])
    return np.asarray(windows[np.searchsorted(marks["end_ns"].to_numpy(), at, side="right")])
