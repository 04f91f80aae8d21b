# SPDX-License-Identifier: Apache-2.0
"""Time: where a step goes, an exact partition per rank and window."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from cclbench.analyzers.metric import Value, metric
from cclbench.analyzers.view import RankView
from cclbench.intervals import Int64

_NS = 1e-9


def per_step(rank: RankView, ns: Int64) -> Iterator[Value]:
    """The mean over the windows, and a row for each step, in seconds; `ns` has shape (windows,)."""
    yield Value(value=int(ns.sum()) / len(ns) / 1e9)
    for step, length in zip(rank.windows.steps, ns.tolist(), strict=True):
        if step is not None:
            yield Value(value=length / 1e9, step=step)


def slowest_rank_each_step(ranks: Mapping[int, Sequence[Value]]) -> Iterable[Value]:
    """Mean over steps of the maximum over ranks; p50, p95, max and cv of those maxima."""
    longest: dict[int | None, float] = {}
    for values in ranks.values():
        stepped = [v for v in values if v.step is not None and v.stat is None]
        for v in stepped or [v for v in values if v.stat is None]:
            longest[v.step] = max(longest.get(v.step, 0.0), v.value or 0.0)
    lengths = np.array(list(longest.values()))
    yield Value(value=float(lengths.mean()))
    yield from _statistics(lengths)
    for step in sorted(s for s in longest if s is not None):
        yield Value(value=longest[step], step=step)


def _statistics(seconds: np.ndarray[tuple[int], np.dtype[np.float64]]) -> Iterator[Value]:
    yield Value(value=float(np.percentile(seconds, 50)), stat="p50")
    yield Value(value=float(np.percentile(seconds, 95)), stat="p95")
    yield Value(value=float(seconds.max()), stat="max")
    if len(seconds) > 1:
        yield Value(value=float(seconds.std(ddof=1) / seconds.mean()), stat="cv")


@metric(
    "time.step",
    definition="Length of the window. The run's value is the mean over steps of the slowest rank's window.",
    formula="W",
    unit="s",
    better="lower",
    aliases=("avg_step_time",),
    combine=slowest_rank_each_step,
    not_applicable="the trace holds no work",
)
def step(rank: RankView) -> Iterator[Value]:
    yield from per_step(rank, rank.parts.window)


@metric(
    "time.compute_only",
    definition="Time in which kernels compute and no communication runs.",
    formula="|C| − |C∩K|",
    unit="s",
    better=None,
)
def compute_only(rank: RankView) -> Iterator[Value]:
    yield from per_step(rank, rank.parts.compute_only)
