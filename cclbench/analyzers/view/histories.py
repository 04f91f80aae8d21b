# SPDX-License-Identifier: Apache-2.0
"""Allocator histories from a trace's [memory] events and from memory snapshots."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from cclbench.analyzers.view.allocator import History
from cclbench.analyzers.view.columns import has_word
from cclbench.analyzers.view.snapshots import SNAPSHOT_TABLES, of_snapshots
from cclbench.formats.trace import ALLOCATOR_EVENT
from cclbench.ground.schema import EVENTS

if TYPE_CHECKING:
    from cclbench.record.rank import Rank
    from cclbench.record.run import Run

_MOMENTS: Final = pa.schema([EVENTS.field(name) for name in ("start_ns", "device", "bytes", "reserved")])


def of_trace(tables: Rank, *, rank: int, source: str | None = None) -> Iterator[History]:
    """The history of each device with [memory] events in the trace; the CPU's comes first.

    A moment is an event; the state before the first one is unknown.
    """
    columns = ("name", "start_ns", "device", "bytes", "reserved")
    batches = [_memory_rows(batch) for batch in tables.events(("other",), columns)]
    rows = pa.Table.from_batches(batches, _MOMENTS).sort_by("start_ns")
    devices = rows["device"].fill_null(-1).to_numpy()
    for device in np.unique(devices).tolist():
        device_rows = rows.filter(devices == device)
        yield History(
            source=source,
            file=None,
            rank=rank,
            device=None if device < 0 else device,
            time_ns=device_rows["start_ns"].to_numpy(),
            allocated=device_rows["bytes"].to_numpy(),
            reserved=None if device_rows["reserved"].null_count else device_rows["reserved"].to_numpy(),
        )


def _memory_rows(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Allocator events that state allocated bytes, without their name."""
    states_bytes = batch["bytes"].is_valid().to_numpy(zero_copy_only=False)
    memory = batch.filter(pa.array(has_word(batch, "name", ALLOCATOR_EVENT) & states_bytes))
    return memory.select(_MOMENTS.names)


def of_run(run: Run, traced: Collection[int] | None = None) -> list[History]:
    """Histories of the ranks' own devices from traces, then those from snapshots.

    `traced`: the ranks whose traces are read; None for all.
    """
    histories = []
    for rank in run.ranks:
        if traced is None or rank in traced:
            tables = run.rank(rank)
            on_host = tables.facts.works_on == "host"
            rank_histories = of_trace(tables, rank=rank, source=run.reader)
            histories += [history for history in rank_histories if (history.device is None) == on_host]
    return histories + of_snapshots(*map(run.evidence, SNAPSHOT_TABLES))
