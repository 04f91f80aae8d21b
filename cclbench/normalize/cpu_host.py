# SPDX-License-Identifier: Apache-2.0
"""Causes of idle time of a thread on a CPU-only rank."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from cclbench.ground import intervals
from cclbench.ground.intervals import Int64, Intervals, Mask

DISPATCH_NS: Final = 50_000
"""Gaps between two operators below this are the overhead of their calls."""
RESUMED_NS: Final = 1_000_000
"""A thread that waits for another resumes within this time after it."""
CAUSES: Final = ("loader", "sync", "cold_start", "launch", "operators", "python")
"""In order of precedence; time with none of these causes is unrecorded."""
_TIMES: Final = 50
"""A gap between two operators is long from this multiple of its median on."""
_LEAST_NS: Final = 100_000
_FEW: Final = 5
"""Least number of gaps between operators of the same names to use their own median, not that of all."""


@dataclass(frozen=True, slots=True, eq=False)
class ThreadCalls:
    """A thread's operators and calls of the communication library, in any order; arrays of shape (calls,).

    `name` is a code, times in ns.
    """

    starts: Int64
    ends: Int64
    name: Int64


def cpu_causes(
    calls: ThreadCalls, ranges: Mapping[str, Intervals], second_step: int | None
) -> dict[str, Intervals]:
    """Times of a thread by `CAUSES`; the sets may overlap.

    `ranges` are those of `loader` (a data loader or a checkpoint), `sync` (calls of the communication
    library, and the time to resume after a transfer), `operators` (nodes of autograd) and `python`.  A gap
    between two calls is `launch` below `DISPATCH_NS`.  It is `cold_start` if it takes at least 50 times the
    median gap between operators of the same names, no such gap ends after the begin of `second_step`, and
    no gap there that exceeds its own median as far is as long (as when other processes use the core).
    """
    starts, ends, between = _gaps_between_calls(calls)
    short = ends - starts < DISPATCH_NS
    cold = _cold_gaps(ends, ends - starts, between, second_step)
    return {cause: ranges.get(cause, intervals.EMPTY) for cause in CAUSES} | {
        "cold_start": intervals.union(starts[cold], ends[cold]),
        "launch": intervals.union(starts[short], ends[short]),
    }


def divide_by_cause(time: Intervals, causes: Mapping[str, Intervals]) -> Iterator[tuple[str, Intervals]]:
    """Divide a set of instants by cause, each instant in one part; the rest is `unrecorded`."""
    for cause, ranges in causes.items():
        yield cause, intervals.intersect(time, ranges)
        time = intervals.subtract(time, ranges)
    yield "unrecorded", time


def _gaps_between_calls(calls: ThreadCalls) -> tuple[Int64, Int64, Int64]:
    """Begin and end of the gaps between calls, and a code of the operators before and after each."""
    order = np.argsort(calls.starts, kind="stable")
    starts, ends, name = calls.starts[order], calls.ends[order], calls.name[order]
    reach = np.maximum.accumulate(ends)
    at = np.flatnonzero(starts[1:] > reach[:-1])
    # the call that ends last is the one before
    last = np.maximum.accumulate(np.where(ends == reach, np.arange(len(ends)), 0))
    names = int(name.max(initial=0)) + 1
    return reach[at], starts[at + 1], name[last[at]] * names + name[at + 1]


def _cold_gaps(ends: Int64, durations: Int64, between: Int64, second_step: int | None) -> Mask:
    """Which gaps are far longer than others of the same operators and than any such in later steps."""
    if second_step is None or not len(durations):
        return np.zeros(len(durations), np.bool_)
    _, like, count = np.unique(between, return_inverse=True, return_counts=True)
    order = np.lexsort((durations, like))
    middle = np.cumsum(count) - count + (count - 1) // 2
    usual = np.where(count >= _FEW, durations[order][middle], np.median(durations))
    long = (durations >= _LEAST_NS) & (durations >= _TIMES * usual[like])
    later = long & (ends > second_step)
    again = np.isin(like, like[later])
    return np.asarray(long & ~again & (durations > durations[later].max(initial=0)))
