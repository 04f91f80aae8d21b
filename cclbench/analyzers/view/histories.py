# SPDX-License-Identifier: Apache-2.0
"""What allocators held over time, whoever tells: a trace's [memory] events, or memory snapshots."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cclbench.analyzers.view.allocator import History
from cclbench.analyzers.view.snapshots import of_snapshots
from cclbench.ground.schema import EVENTS

if TYPE_CHECKING:
    from cclbench.record.rank import Rank
    from cclbench.record.run import Run

_MEMORY: Final = "[memory]"
"""What torch calls an allocator's events in a trace."""
_MOMENTS: Final = pa.schema([EVENTS.field(name) for name in ("start_ns", "device", "bytes", "reserved")])


def of_trace(tables: Rank, *, rank: int, source: str | None = None) -> Iterator[History]:
    """The history of each device that the trace's [memory] events are of; the CPU's own comes first.

    A moment is an event: what was before the first one is not told.
    """
    columns = ("name", "start_ns", "device", "bytes", "reserved")
    batches = [_memory_rows(batch) for batch in tables.events(("other",), columns)]
    rows = pa.Table.from_batches(batches, _MOMENTS).sort_by("start_ns")
    devices = rows["device"].fill_null(-1).to_numpy()
    for device in np.unique(devices).tolist():
        own = rows.filter(devices == device)
        yield History(
            source=source,
            file=None,
            rank=rank,
            device=None if device < 0 else device,
            time_ns=own["start_ns"].to_numpy(),
            allocated=own["bytes"].to_numpy(),
            reserved=None if own["reserved"].null_count else own["reserved"].to_numpy(),
        )


def _memory_rows(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The allocator's events that state what is allocated, without their name."""
    named: npt.NDArray[np.bool_] = np.array(
        pc.equal(batch["name"].cast(pa.string()), _MEMORY).to_numpy(zero_copy_only=False), np.bool_
    )
    kept = batch.filter(pa.array(named & batch["bytes"].is_valid().to_numpy(zero_copy_only=False)))
    return kept.select(_MOMENTS.names)


def of_run(run: Run, traced: Collection[int] | None = None) -> list[History]:
    """What traces tell of the ranks' own devices, then what snapshots tell.

    `traced` are the ranks whose traces are asked; None asks all.
    """
    found = []
    for rank in run.ranks:
        if traced is None or rank in traced:
            tables = run.rank(rank)
            on_host = tables.facts.works_on == "host"
            own = of_trace(tables, rank=rank, source=run.reader)
            found += [history for history in own if (history.device is None) == on_host]
    return found + of_snapshots(run.evidence("allocations"), run.evidence("memory_blocks"))
