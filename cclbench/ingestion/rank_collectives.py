# SPDX-License-Identifier: Apache-2.0
"""The collectives of one rank, described and written."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from cclbench import classify
from cclbench.disk_columns import DiskColumn, pieces
from cclbench.formats import StatedPayloads
from cclbench.ingestion import entry
from cclbench.ingestion.evidence import ListedFiles, calls_of
from cclbench.ingestion.launches import Launches
from cclbench.ingestion.pending import Pending, or_none
from cclbench.ingestion.plausible import without_oversized
from cclbench.normalize import collectives, steps
from cclbench.normalize.logged_calls import lacks, place
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
    listed: Sequence[ListedFiles] = (),
) -> tuple[manifest.Collectives, collectives.Groups, int, list[str]]:
    """The account of the rank's collectives, which are written, and their groups; `listed` complete them.

    Then how many payloads are set aside as more than anything moves in the call's time, and notes.
    """
    calls = _calls(facts, pending, launches, found, step)
    ungrouped: dict[str, int] = {}
    notes = list[str]()
    if facts.works_on == "device":
        owner = collectives.on_device(calls, told)
        stated = {group.name: group for group in facts.groups}
        for files in listed:
            if (lacking := lacks(calls, told, owner, stated)).any():
                owner, note = place(calls, told, owner, lacking, calls_of(files, rank), stated)
                notes.append(note)
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
    return counted.entry(ungrouped), groups, oversized, notes


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
