# SPDX-License-Identifier: Apache-2.0
"""Calls of the runtime that take long because they are the first: they load code or create a context."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from cclbench.analyzers.view.columns import codes
from cclbench.analyzers.view.launches import correlations_of
from cclbench.disk_columns import DiskTable, disk_array, release
from cclbench.intervals import Int64
from cclbench.normalize.host_calls import ALLOCATES, LOADS, cold_calls

if TYPE_CHECKING:
    from cclbench.analyzers.view.rank_view import RankView


@dataclass(frozen=True, slots=True, eq=False)
class FirstCalls:
    """Calls of the runtime that take long because they are the first, arrays of shape (calls,), in ns."""

    launches: Int64
    """Index among the rank's launch calls, −1 for calls that launch nothing."""
    threads: Int64
    starts: Int64
    ends: Int64

    def __len__(self) -> int:
        return len(self.starts)


def first_calls(rank: RankView) -> FirstCalls:
    """The first calls of a rank, as `host_calls.cold_calls` tells them apart."""
    calls = rank.launch_calls
    kernel = disk_array(len(calls) + 1, np.int32, -1)
    kernels: dict[str, int] = {}
    for batch in rank.tables.events(("kernel",), ("correlation", "name")):
        call = calls.of(correlations_of(batch))
        name, names = codes(batch, "name")
        known = np.array([kernels.setdefault(word or "", len(kernels)) for word in names], np.int32)
        kernel[call[call >= 0]] = known[name][call >= 0]
        release(calls, kernel)
    functions: dict[str, int] = {}
    table = DiskTable(
        function=np.int32, kernel=np.int32, start=np.int64, dur=np.int64, thread=np.int64, call=np.int32
    )
    columns = ("side", "track", "kind", "name", "start_ns", "dur_ns", "correlation")
    for batch in rank.tables.events(("launch", "other"), columns):
        name, names = codes(batch, "name")
        of_runtime = [
            ALLOCATES.match(word or "") is not None or LOADS.match(word or "") is not None for word in names
        ]
        kind, side = (batch[c].cast(pa.string()).to_numpy(zero_copy_only=False) for c in ("kind", "side"))
        chosen = (side == "host") & ((kind == "launch") | np.array(of_runtime, np.bool_)[name])
        known = np.array([functions.setdefault(word or "", len(functions)) for word in names], np.int32)
        call = np.where(kind == "launch", calls.of(correlations_of(batch)), -1)
        table.append(
            function=known[name][chosen],
            kernel=kernel[call][chosen],
            start=batch["start_ns"].to_numpy()[chosen],
            dur=batch["dur_ns"].to_numpy()[chosen],
            thread=batch["track"].to_numpy()[chosen],
            call=call[chosen],
        )
        release(calls, kernel)
    if not len(table):
        return FirstCalls(*(np.empty(0, np.int64),) * 4)
    function, start, dur = table["function"], table["start"], table["dur"]
    words = [*functions]
    cold = np.flatnonzero(
        cold_calls(
            function,
            table["kernel"],
            start,
            dur,
            np.array([ALLOCATES.match(word) is not None for word in words], np.bool_)[function],
            np.array([LOADS.match(word) is not None for word in words], np.bool_)[function],
            int(np.sort(rank.windows.starts)[1]) if len(rank.windows) > 1 else None,
        )
    )
    found = FirstCalls(
        table["call"][cold].astype(np.int64), table["thread"][cold], start[cold], start[cold] + dur[cold]
    )
    release(*(table[column] for column in ("function", "kernel", "start", "dur", "thread", "call")))
    return found
