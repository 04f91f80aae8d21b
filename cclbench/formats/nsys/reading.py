# SPDX-License-Identifier: Apache-2.0
"""Read one rank's rows from a database of Nsight Systems."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pyarrow as pa

from cclbench.formats import Part, Rows, Trace
from cclbench.formats.nsys.capture import CapturedProcesses, profiler_diagnostics
from cclbench.formats.nsys.counters import counter_samples
from cclbench.formats.nsys.database import Database
from cclbench.formats.nsys.facts import member_facts
from cclbench.formats.nsys.nccl import add_nccl_payloads
from cclbench.formats.nsys.nvtx import mpi_calls, nvtx_rows
from cclbench.formats.nsys.rows import TableReader
from cclbench.ground.errors import InputError


def member_parts(path: Path, kind: type[Database] = Database) -> list[Part]:
    """One part for each process that is a rank; `kind` is how the export is stored."""
    with kind(path) as database:
        return [Part(member=member) for member in CapturedProcesses.open_capture(database).members]


def member_batches(
    path: Path, part: Part, trace: Trace, kind: type[Database] = Database
) -> Iterator[Rows | pa.Table]:
    """All rows; `trace` is complete after the last batch."""
    with kind(path) as database:
        capture = CapturedProcesses.open_capture(database)
        if part.member not in capture.members:
            raise InputError(f"has no process {part.member!r}", where=str(path))
        first = capture.is_first(part.member)
        reader = TableReader(capture, part.member)
        yield from reader.all_rows()
        yield from nvtx_rows(reader)
        yield from mpi_calls(reader, trace.stated_payloads)
        communicators = add_nccl_payloads(reader, trace.stated_payloads)
        if reader.mpi_calls and capture.count_rows(part.member):
            note = "MPI calls are host rows: their time is not device time"
            reader.notes.append(f"{reader.mpi_calls} {note}")
        yield from counter_samples(capture, part.member, reader.dropped, first=first)
        if first:
            reader.dropped.update(capture.left_out())
        trace.dropped, trace.device_steps = +reader.dropped, reader.graphs.device_iterations()
        trace.facts = msgspec.structs.replace(member_facts(capture, part.member), communicators=communicators)
        trace.notes = [*capture.notes, *reader.notes, *(profiler_diagnostics(database) if first else ())]
