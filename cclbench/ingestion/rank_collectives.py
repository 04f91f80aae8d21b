# SPDX-License-Identifier: Apache-2.0
"""The collectives of one rank, described and written."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from cclbench import classify
from cclbench.disk_columns import DiskColumn, pieces
from cclbench.formats import StatedPayloads
from cclbench.ingestion import entry
from cclbench.ingestion.launches import Launches
from cclbench.ingestion.pending import Pending, or_none
from cclbench.ingestion.plausible import without_oversized
from cclbench.normalize import collectives, steps
from cclbench.record import manifest
from cclbench.record.facts import TraceFacts
from cclbench.record.files import TableFile, finished
from cclbench.schema import COLLECTIVES


def write_collectives(
    folder: Path,
    rank: int,
    told: StatedPayloads,
    facts: TraceFacts,
    pending: Pending,
    launches: Launches,
    found: steps.Marks,
    step: DiskColumn[np.int32],
) -> tuple[manifest.Collectives, collectives.Groups, int]:
    """The account of the rank's collectives, which are written, and their groups.

    Last, how many payloads are set aside as more than anything moves in the call's time.
    """
    calls = _calls(facts, pending, launches, found, step)
    ungrouped: dict[str, int] = {}
    if facts.works_on == "device":
        owner = collectives.on_device(calls, told)
    else:
        owner, ungrouped = collectives.on_host(calls, told, facts)
    counted, groups, oversized = entry.Collectives(), dict[str, tuple[int, ...]](), 0
    path = folder / "collectives" / f"rank={rank}.parquet"
    with finished(TableFile(path, COLLECTIVES)) as file:
        for rows, of_rows in collectives.tables(rank, calls, told, owner, facts):
            lasted = rows["end_ns"].to_numpy() - rows["start_ns"].to_numpy()
            rows, over = without_oversized(rows, lasted, "in_bytes", "out_bytes")
            file.write(rows)
            counted.add(rows)
            groups |= of_rows
            oversized += over
    return counted.entry(ungrouped), groups, oversized


def _calls(
    facts: TraceFacts, pending: Pending, launches: Launches, found: steps.Marks, step: DiskColumn[np.int32]
) -> collectives.Calls:
    """The rank's communication rows; `step` are indices into the steps found, of all pending rows."""
    names = ("start_ns", "end_ns", "step", "launch_track", "launch_ns")
    columns = {name: DiskColumn(np.int64) for name in names}
    index = step.values()
    for here in pieces(len(pending), pending, launches, step):
        at = here.start + np.flatnonzero(pending.is_call[here])
        launch = pending.launch[at]
        of_piece = {
            "start_ns": pending.starts[at],
            "end_ns": pending.ends[at],
            "step": or_none(found.numbers, index[at]),
            "launch_track": or_none(launches.track, launch),
            "launch_ns": or_none(launches.start_ns, launch),
        }
        for name, values in of_piece.items():
            columns[name].append(values)
    unknown = classify.CollectiveName(None, "custom")
    return collectives.Calls(
        **{name: column.values() for name, column in columns.items()},
        row=pending.call_row,
        track=pending.call_track,
        name=pending.call_name,
        names=[classify.collective(name, facts.vendor) or unknown for name in pending.names],
    )
