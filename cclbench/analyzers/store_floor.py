# SPDX-License-Identifier: Apache-2.0
"""The step time below which no loader gets, by what the job reads and what its store delivers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa

from cclbench.analyzers.counters import windows_of_steps
from cclbench.analyzers.io_calls import NO_CALLS
from cclbench.analyzers.metric import NotApplicable, Value, run_metric
from cclbench.analyzers.stores import store_rows
from cclbench.analyzers.view.columns import with_words
from cclbench.analyzers.view.run_view import RunView
from cclbench.ground.units import humanise

BENCHMARKS: Final = ("fio", "elbencho")
"""What asks a store for as much as it delivers; a device's rate by iostat is what was asked for."""
_CONDITION: Final = "if the job reads from that store, as the benchmark does, and no cache serves it"


@run_metric(
    "data.store_floor",
    definition="Least time of a step that the store allows, however well loading is hidden: bytes that all"
    " processes read a step (DFTracer, reads that begin within the steps), over the largest rate of reading"
    " that FIO or elbencho measured of the store. It holds if the job reads from that store, with readers and"
    " sizes with which it delivers no more than the benchmark got, and no cache of a host serves the reads."
    " A prediction of `whatif --set host[loader].time=0` below it needs a faster store, too.",
    formula="bytes read / steps / rate",
    unit="s",
    inputs=("io_calls", "storage", "steps"),
    not_applicable="needs steps, a trace of I/O calls, and a benchmark of the store (FIO, elbencho)",
)
def store_floor(run: RunView) -> Iterator[Value]:
    """Time to read a step's bytes."""
    rate = _fastest_read(run)
    calls = with_words(run.table("io_calls"), "kind", ("read",))
    if not len(calls):
        raise NotApplicable(NO_CALLS)
    windows = windows_of_steps(run)
    begin, end = min(int(w.starts.min()) for w in windows), max(int(w.ends.max()) for w in windows)
    starts = calls["start_ns"].to_numpy()
    inside = (begin <= starts) & (starts < end)
    if not inside.any():
        raise NotApplicable("no read begins within the steps")
    read_bytes = int(calls["bytes"].fill_null(0).to_numpy()[inside].sum())
    a_step = read_bytes / max(map(len, windows))
    words = f"{humanise(a_step, 'B')} a step at {humanise(rate, 'B/s')}, {_CONDITION}"
    yield Value(value=a_step / rate, reason=words, provenance="derived")


def _fastest_read(run: RunView) -> float:
    rows = with_words(store_rows(run, "bytes_per_s"), "source", BENCHMARKS)
    reads: pa.Table = with_words(rows, "phase", ("read",))
    rate = np.max(reads["value"].to_numpy(), initial=0.0)
    if not rate:
        raise NotApplicable("needs a benchmark of the store that reads (FIO, elbencho)")
    return float(rate)
