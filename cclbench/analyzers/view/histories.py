# SPDX-License-Identifier: Apache-2.0
"""Allocator histories from a trace's [memory] events and from memory snapshots."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from cclbench.analyzers.view.allocator import History
from cclbench.analyzers.view.columns import has_word, with_words
from cclbench.analyzers.view.snapshots import SNAPSHOT_TABLES, snapshot_histories
from cclbench.analyzers.view.traced_blocks import traced_owners
from cclbench.formats.trace import ALLOCATOR_EVENT
from cclbench.ground.intervals import Int64
from cclbench.ground.schema import EVENTS

if TYPE_CHECKING:
    from cclbench.record.rank import Rank
    from cclbench.record.run import Run

_COLUMNS: Final = ("start_ns", "device", "bytes", "reserved", "track", "change", "address")
_MOMENTS: Final = pa.schema([EVENTS.field(name) for name in _COLUMNS])


def trace_histories(
    tables: Rank, *, rank: int, source: str | None = None, with_owners: bool = False
) -> Iterator[History]:
    """The history of each device with [memory] events in the trace; the CPU's comes first.

    A moment is an event; the state before the first one is unknown. Blocks and the ends of steps are added
    `with_owners`.
    """
    columns = ("name", *_COLUMNS)
    batches = [_memory_rows(batch) for batch in tables.events(("other",), columns)]
    rows = pa.Table.from_batches(batches, _MOMENTS).sort_by("start_ns")
    devices = rows["device"].fill_null(-1).to_numpy()
    for device in np.unique(devices).tolist():
        device_rows = rows.filter(devices == device)
        owners, contradictions = traced_owners(device_rows, tables) if with_owners else (None, 0)
        yield History(
            source=source,
            file=None,
            rank=rank,
            device=None if device < 0 else device,
            time_ns=device_rows["start_ns"].to_numpy(),
            allocated=device_rows["bytes"].to_numpy(),
            reserved=None if device_rows["reserved"].null_count else device_rows["reserved"].to_numpy(),
            owners=owners,
            step_ends=_step_ends(tables, device_rows["start_ns"].to_numpy()) if with_owners else None,
            contradictions=contradictions,
        )


def _step_ends(tables: Rank, time_ns: Int64) -> Int64 | None:
    """The moments at which annotations end complete steps; None without any."""
    steps = with_words(tables.steps(), "source", ("annotation",))
    ends = np.sort(steps["end_ns"].to_numpy()[~steps["open"].to_numpy()])
    ends = ends[ends >= time_ns[0]]
    return np.searchsorted(time_ns, ends, side="right") - 1 if len(ends) else None


def _memory_rows(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Allocator events that state allocated bytes, without their name."""
    states_bytes = batch["bytes"].is_valid().to_numpy(zero_copy_only=False)
    memory = batch.filter(pa.array(has_word(batch, "name", ALLOCATOR_EVENT) & states_bytes))
    return memory.select(_MOMENTS.names)


def run_histories(run: Run, traced: Collection[int] | None = None) -> list[History]:
    """Histories of the ranks' own devices from traces, then those from snapshots.

    `traced`: the ranks whose traces are read; None for all.
    """
    histories = []
    for rank in run.ranks:
        if traced is None or rank in traced:
            tables = run.rank(rank)
            on_host = tables.facts.works_on == "host"
            rank_histories = trace_histories(tables, rank=rank, source=run.reader, with_owners=True)
            histories += [history for history in rank_histories if (history.device is None) == on_host]
    return histories + snapshot_histories(*map(run.evidence, SNAPSHOT_TABLES))
