# SPDX-License-Identifier: Apache-2.0
"""One rank's rows of a database of Nsight Systems."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pyarrow as pa

from cclbench.errors import InputError
from cclbench.formats import Part, Rows, Trace
from cclbench.formats.nsys.capture import Capture, diagnostics
from cclbench.formats.nsys.counters import samples
from cclbench.formats.nsys.database import Database
from cclbench.formats.nsys.facts import facts
from cclbench.formats.nsys.nccl import tell
from cclbench.formats.nsys.nvtx import mpi_calls, ranges
from cclbench.formats.nsys.rows import TableReader


def parts(path: Path) -> list[Part]:
    """One for each process that is a rank."""
    with Database(path) as database:
        return [Part(member=member) for member in Capture.of(database).members]


def batches(path: Path, part: Part, trace: Trace) -> Iterator[Rows | pa.Table]:
    """All rows; `trace` is complete when the last one is taken."""
    with Database(path) as database:
        capture = Capture.of(database)
        if part.member not in capture.members:
            raise InputError(f"has no process {part.member!r}", where=str(path))
        first = capture.first(part.member)
        reader = TableReader(capture, part.member)
        yield from reader.rows()
        yield from ranges(reader)
        yield from mpi_calls(reader, trace.told)
        communicators = tell(reader, trace.told)
        if reader.mpi_calls and capture.count(part.member):
            note = "calls of MPI are rows of the host: their time is no time of the device"
            reader.notes.append(f"{reader.mpi_calls} {note}")
        yield from samples(capture, part.member, reader.dropped, first=first)
        if first:
            reader.dropped.update(capture.left_out())
        trace.dropped, trace.device_steps = +reader.dropped, reader.graphs.iterations()
        trace.facts = msgspec.structs.replace(facts(capture, part.member), communicators=communicators)
        trace.notes = [*capture.notes, *reader.notes, *(diagnostics(database) if first else ())]
