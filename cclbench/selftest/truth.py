# SPDX-License-Identifier: Apache-2.0
"""True figures of a simulated job: its steps and their parts, from the simulated history."""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import itemgetter
from typing import Final

from cclbench.record.metric_name import MetricName, metric_name
from cclbench.selftest.program import Collective, Copy, Kernel, Program
from cclbench.selftest.simulation import DeviceWork, RankHistory, Simulation

_STEP: Final = metric_name("time.step")
_COMPUTE_TIME: Final = metric_name("compute.time")
_EXPOSED_COMM: Final = metric_name("time.exposed_comm")
_EXPOSED_COPY: Final = metric_name("time.exposed_copy")
_IDLE: Final = metric_name("time.idle")
_COMM_WAIT: Final = metric_name("comm.wait")
_COMM_TRANSFER: Final = metric_name("comm.transfer")

Spans = list[tuple[int, int]]


@dataclass(frozen=True)
class Truth:
    """Means over closed steps, in seconds: the step of the slowest rank, the others of all ranks.

    A rank's step begins with the first kernel that it launched and ends where the next one begins; the last
    is open and left out.
    """

    step_s: float
    period_s: float
    """Mean step of the rank whose steps are longest, which a job of many steps takes per step."""
    histories: list[RankHistory]

    @cached_property
    def figures(self) -> dict[MetricName, float]:
        """The means by metric."""
        windows = [_step_windows(history) for history in self.histories]
        sums: dict[MetricName, int] = {}
        for history, rank_windows in zip(self.histories, windows, strict=True):
            for metric, ns in _window_parts(history.device, rank_windows):
                sums[metric] = sums.get(metric, 0) + ns
        count = sum(map(len, windows))
        return {_STEP: self.step_s, **{metric: ns / count / 1e9 for metric, ns in sums.items()}}


def simulate_truth(program: Program) -> Truth:
    """Run a program and measure it."""
    histories = Simulation(program).simulate_ranks()
    windows = [_step_windows(history) for history in histories]
    steps = len(windows[0])
    slowest = [
        max(rank_windows[step][1] - rank_windows[step][0] for rank_windows in windows)
        for step in range(steps)
    ]
    step_s = sum(slowest) / steps / 1e9
    period_s = max(rank_windows[-1][1] - rank_windows[0][0] for rank_windows in windows) / steps / 1e9
    return Truth(step_s, period_s, histories)


def _step_windows(history: RankHistory) -> Spans:
    begins: dict[int, int] = {}
    for item in history.device:
        if not isinstance(item.work, Copy):
            begins[item.step] = min(begins.get(item.step, item.start_ns), item.start_ns)
    times = [begins[step] for step in sorted(begins)]
    return list(itertools.pairwise(times))


def _window_parts(works: Sequence[DeviceWork], windows: Spans) -> Iterable[tuple[MetricName, int]]:
    compute = _span_union((w.start_ns, w.end_ns) for w in works if isinstance(w.work, Kernel))
    transfers = _span_union((w.start_ns, w.end_ns) for w in works if isinstance(w.work, Collective))
    busy = _span_union(compute + transfers)
    everything = _span_union((w.start_ns, w.end_ns) for w in works)
    waits = _span_union((w.start_ns, w.arrived_ns) for w in works if isinstance(w.work, Collective))
    moves = _span_union((w.arrived_ns, w.end_ns) for w in works if isinstance(w.work, Collective))
    for window in windows:
        inside = {
            name: _length_within(spans, window)
            for name, spans in (("c", compute), ("b", busy), ("e", everything))
        }
        yield _COMPUTE_TIME, inside["c"]
        yield _EXPOSED_COMM, inside["b"] - inside["c"]
        yield _EXPOSED_COPY, inside["e"] - inside["b"]
        yield _IDLE, window[1] - window[0] - inside["e"]
        yield _COMM_WAIT, _length_within(waits, window)
        yield _COMM_TRANSFER, _length_within(moves, window)


def _span_union(spans: Iterable[tuple[int, int]]) -> Spans:
    merged: Spans = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def _length_within(spans: Spans, window: tuple[int, int]) -> int:
    """Time of the spans, which are disjoint and in order, within a window."""
    begin, end = window
    first = bisect_right(spans, begin, key=itemgetter(1))
    inside = itertools.takewhile(lambda span: span[0] < end, itertools.islice(spans, first, None))
    return sum(min(stop, end) - max(start, begin) for start, stop in inside)
