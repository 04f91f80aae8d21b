# SPDX-License-Identifier: Apache-2.0
"""Calls for files, as DFTracer records them: how long processes are in them, what they move, how fast."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa

from cclbench.analyzers.metric import NotApplicable, Value, run_metric
from cclbench.analyzers.view.columns import with_words
from cclbench.analyzers.view.named_times import longest_names, spread_values
from cclbench.analyzers.view.run_view import RunView
from cclbench.analyzers.view.values import NS_PER_S
from cclbench.ground.intervals import Intervals, union

NO_CALLS: Final = "needs a trace of I/O calls, as DFTracer writes it"
KINDS: Final = ("read", "write", "metadata")
_MOST_FUNCTIONS: Final = 12
_call_metric = partial(run_metric, inputs=("io_calls",), not_applicable=NO_CALLS)


def _calls(run: RunView, *kinds: str) -> pa.Table:
    """The calls of these kinds; `NotApplicable` without any."""
    calls = with_words(run.table("io_calls"), "kind", kinds)
    if not len(calls):
        raise NotApplicable(NO_CALLS if not len(run.table("io_calls")) else "no such call is recorded")
    return calls


def _times(calls: pa.Table) -> Intervals:
    """When at least one process is in a call."""
    starts = calls["start_ns"].to_numpy()
    return union(starts, starts + calls["dur_ns"].to_numpy())


@_call_metric(
    "storage.io_time",
    definition="Time in which at least one process is in a call of POSIX or STDIO for a file, by their hosts'"
    " clocks; by category read, write and metadata (all others: open, stat, ...). Calls shorter than the"
    " trace's resolution of 1 µs take no time. Stat share: of the time from the first call to the last;"
    " count: calls.",
    formula="|∪ calls|",
    unit="s",
    better="lower",
)
def io_time(run: RunView) -> Iterator[Value]:
    """Time in calls for files."""
    calls = _calls(run, *KINDS)
    processes = len(np.unique(calls["process"].to_numpy()))
    starts = calls["start_ns"].to_numpy()
    span = int((starts + calls["dur_ns"].to_numpy()).max() - starts.min())
    inside = _times(calls).length
    words = f"{len(calls):,} calls of {processes:,} process{'es'[: 2 * (processes > 1)]}"
    yield Value(value=inside / NS_PER_S, reason=words, source="dftracer")
    if span:
        yield Value(value=inside / span, stat="share", unit="1", provenance="derived", source="dftracer")
    for kind in KINDS:
        kind_calls = with_words(calls, "kind", (kind,))
        if len(kind_calls):
            value = partial(Value, category=kind, source="dftracer")
            yield value(value=_times(kind_calls).length / NS_PER_S)
            yield value(value=len(kind_calls), stat="count", unit="count")


def _moved(calls: pa.Table) -> int:
    return int(calls["bytes"].fill_null(0).to_numpy().sum())


@_call_metric(
    "storage.io_bytes",
    definition="Bytes that calls of POSIX and STDIO read and wrote, as they returned; in all and by category"
    " read and write. Accesses through mmap are no calls.",
    formula="Σ bytes",
    unit="B",
)
def io_bytes(run: RunView) -> Iterator[Value]:
    """Bytes read and written."""
    calls = _calls(run, "read", "write")
    unknown = {"calls that failed or do not say": calls["bytes"].null_count}
    yield Value(value=float(_moved(calls)), left_out=unknown, source="dftracer")
    for kind in ("read", "write"):
        kind_calls = with_words(calls, "kind", (kind,))
        yield Value(value=float(_moved(kind_calls)), category=kind, source="dftracer")


@_call_metric(
    "storage.io_rate",
    definition="Bytes read and written over the time in which at least one process reads or writes; by"
    " category read and write over the time of these calls. Reads that the page cache serves count.",
    formula="Σ bytes / |∪ calls|",
    unit="B/s",
    better="higher",
)
def io_rate(run: RunView) -> Iterator[Value]:
    """Bytes a second of time in calls."""
    calls = _calls(run, "read", "write")
    for kind in (None, "read", "write"):
        kind_calls = calls if kind is None else with_words(calls, "kind", (kind,))
        seconds = _times(kind_calls).length / NS_PER_S
        if seconds:
            rate = _moved(kind_calls) / seconds
            yield Value(value=rate, category=kind, provenance="derived", source="dftracer")


@_call_metric(
    "storage.io_latency",
    definition="Time of a call for a file, the mean, over all calls of POSIX and STDIO, and of the dozen"
    " functions that take most time in all, by category; with p50, p99, max, sum and count.",
    formula="Σ dur / calls",
    unit="s",
    better="lower",
)
def io_latency(run: RunView) -> Iterator[Value]:
    """Time of a call."""
    calls = _calls(run, *KINDS)
    times = calls["dur_ns"].to_numpy() / NS_PER_S
    yield Value(value=float(times.mean()), source="dftracer")
    for name, function_mask in longest_names(calls, "function", times, _MOST_FUNCTIONS):
        yield from spread_values(times[function_mask], (50, 99), category=name, source="dftracer")
