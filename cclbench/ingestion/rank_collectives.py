# SPDX-License-Identifier: Apache-2.0
"""Describe and write the collectives of one rank."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from cclbench import classify
from cclbench.formats import StatedPayloads
from cclbench.ground.intervals import Index
from cclbench.ground.schema import COLLECTIVES
from cclbench.ingestion import entry
from cclbench.ingestion.evidence import ListedFiles, calls_of
from cclbench.ingestion.launches import Launches
from cclbench.ingestion.part import ROW_GROUP
from cclbench.ingestion.pending import Pending, or_none
from cclbench.ingestion.plausible import without_oversized
from cclbench.normalize import collectives, steps
from cclbench.normalize.logged_calls import lacks_group_or_payload, place_calls
from cclbench.record import manifest
from cclbench.record.facts import TraceFacts
from cclbench.record.files import TableFile, closed_at_end


def write_collectives(
    folder: Path,
    rank: int,
    stated_payloads: StatedPayloads,
    facts: TraceFacts,
    pending: Pending,
    launches: Launches,
    marks: steps.Marks,
    step: Index,
    listed: Sequence[ListedFiles] = (),
) -> tuple[manifest.Collectives, collectives.Groups, int, list[str]]:
    """Write the rank's collectives, completed from the files `listed`.

    Returns their manifest record, groups, the number of payloads too large for the call's time, and notes.
    """
    calls = _communication_calls(facts, pending, launches, marks, step)
    ungrouped: dict[str, int] = {}
    notes = list[str]()
    if facts.works_on == "device":
        owner = collectives.on_device(calls, stated_payloads)
        stated = {group.name: group for group in facts.groups}
        for files in listed:
            if (lacking := lacks_group_or_payload(calls, stated_payloads, owner, stated)).any():
                owner, note = place_calls(
                    calls, stated_payloads, owner, lacking, calls_of(files, rank), stated
                )
                notes.append(note)
    else:
        owner, ungrouped = collectives.on_host(calls, stated_payloads, facts)
    rows, groups = collectives.collectives_table(rank, calls, stated_payloads, owner, facts)
    lasted = rows["end_ns"].to_numpy() - rows["start_ns"].to_numpy()
    rows, oversized = without_oversized(rows, lasted, "in_bytes", "out_bytes")
    with closed_at_end(TableFile(folder / "collectives" / f"rank={rank}.parquet", COLLECTIVES)) as file:
        for first in range(0, len(rows), ROW_GROUP):
            file.write(rows.slice(first, ROW_GROUP))
    return entry.collectives_entry(rows, ungrouped), groups, oversized, notes


def _communication_calls(
    facts: TraceFacts, pending: Pending, launches: Launches, marks: steps.Marks, step: Index
) -> collectives.CommunicationCalls:
    """The rank's communication rows; `step` is each pending row's index into `marks`."""
    at = np.flatnonzero(pending.is_call)
    launch = pending.launch[at]
    unknown = classify.CollectiveName(None, "custom")
    return collectives.CommunicationCalls(
        row=pending.call_row,
        start_ns=pending.starts[at],
        end_ns=pending.ends[at],
        track=pending.call_track,
        step=or_none(marks.numbers, step[at]),
        launch_track=or_none(launches.track, launch),
        launch_ns=or_none(launches.start_ns, launch),
        name=pending.call_name,
        names=[classify.collective_name(name, facts.vendor) or unknown for name in pending.names],
    )
