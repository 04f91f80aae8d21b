# SPDX-License-Identifier: Apache-2.0
"""Data loading: the device waits for the input pipeline or a checkpoint."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from cclbench.analyzers.metric import NotApplicable, Value, metric
from cclbench.analyzers.view.columns import with_words
from cclbench.analyzers.view.loading import loading_intervals
from cclbench.analyzers.view.rank_view import RankView
from cclbench.ground import intervals
from cclbench.ground.intervals import Int64


@metric(
    "data.stall",
    definition="Share of the time in which the host is in a loader or checkpoint annotation, or a TPU"
    " waits for its infeed, while the device is idle. Loading counts for the step whose annotation"
    " contains it, else for the next step: input is loaded before its step's first kernel, in the"
    " previous step's window or before all windows. The time is that of the windows and of loading"
    " outside them.",
    formula="|S| / |W ∪ S|, S = loader annotations and infeeds of the windows' steps \\ (C∪K∪M)",
    unit="1",
    better="lower",
    not_applicable="no annotation in the trace is for loading or checkpoints, and no TPU waits for an infeed,"
    " or the CPU is the device",
    version=3,
    graphs="counted",
)
def stall(rank: RankView) -> Iterator[Value]:
    rank.needs_accelerator("its loading and computing cannot be separated")
    ranges = loading_intervals(rank)
    if not len(ranges.starts):
        raise NotApplicable("no annotation in the trace is for loading data or for a checkpoint")
    stalled = intervals.subtract(ranges, intervals.join(*rank.busy))
    w = rank.windows
    window = _window_of_step(rank, stalled.starts)
    counted = window >= 0
    lost = intervals.Intervals(stalled.starts[counted], stalled.ends[counted])
    time_ns = intervals.join(lost, intervals.union(w.starts, w.ends)).length
    if not time_ns:
        raise NotApplicable("there is no time in the window")
    yield Value(value=lost.length / time_ns, weight=time_ns)
    for place, step in enumerate(w.steps):
        of_step = window == place
        step_stalls = intervals.Intervals(stalled.starts[of_step], stalled.ends[of_step])
        step_ns = intervals.join(step_stalls, intervals.union(w.starts[[place]], w.ends[[place]])).length
        if step is not None and step_ns:
            yield Value(value=step_stalls.length / step_ns, step=step)


def _window_of_step(rank: RankView, times_ns: Int64) -> Int64:
    """The window of the annotated step that contains each time, else of the next one; −1 for none.

    Without annotated steps, the window that contains it. Shape of `at`.
    """
    marks = with_words(rank.steps, "source", ("annotation",)).sort_by("start_ns")
    if not len(marks) or rank.windows.policy == "trace":
        return rank.window_of(times_ns)
    index = {step: number for number, step in enumerate(rank.windows.steps)}
    windows = np.array([*(index.get(step, -1) for step in marks["step"].to_pylist()), -1])
    return np.asarray(windows[np.searchsorted(marks["end_ns"].to_numpy(), times_ns, side="right")])
